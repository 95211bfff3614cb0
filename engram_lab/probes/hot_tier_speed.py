"""What the hot tier costs in time: addresses alone, and a forward and backward pass."""

import time
from collections.abc import Callable, Mapping

import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor, nn

PARTS = ("addresses", "forward and backward")


def speed_frame(
    models: Mapping[str, nn.Module], token_ids: Int64[Tensor, "batch seq"], *, repeats: int = 15
) -> pd.DataFrame:
    """Time of every model on the same tokens, in turn, so that a busy machine disturbs all alike.

    Args:
        models: by arm; models of this library with memory. Their gradients are left as found.
        token_ids: what they read.
        repeats: timed calls of each.

    Returns:
        One row per arm, part and repeat, with columns arm, part, repeat, tokens, cpu_ms (of this
        process, which other programs disturb less), wall_ms and tokens_per_s (by processor time; by
        wall time where the model is not on the CPU).

    Raises:
        ValueError: if there is no model, one has no memory, or `repeats` is below 1.
    """
    if not models or repeats < 1:
        raise ValueError(
            f"speed_frame needs a model and repeats of at least 1; got {len(models)} and {repeats}"
        )
    works = {arm: _works(arm, model, token_ids) for arm, model in models.items()}
    rows = []
    for repeat in range(-1, repeats):  # the first round warms up
        for arm, parts in works.items():
            for part, work in parts.items():
                timed = _timed(work, token_ids) if repeat >= 0 else work()
                if repeat >= 0:
                    rows.append({"arm": arm, "part": part, "repeat": repeat} | timed)
    return pd.DataFrame(rows)


def _works(arm: str, model: nn.Module, token_ids: Tensor) -> dict[str, Callable[[], object]]:
    memories = list(getattr(model, "memories", {}).values())
    if not memories:
        raise ValueError(f"speed_frame needs models with memory; {arm!r} has none")
    canonical_ids = model.compression(token_ids)
    weights = [weight for weight in model.parameters() if weight.requires_grad]

    def passes() -> object:
        loss = model(input_ids=token_ids, labels=token_ids).loss
        return torch.autograd.grad(loss, weights, allow_unused=True)

    return dict(
        zip(PARTS, (lambda: memories[0].hash.addresses(canonical_ids), passes), strict=True)
    )


def _timed(work: Callable[[], object], token_ids: Tensor) -> dict[str, int | float]:
    if token_ids.is_cuda:
        torch.cuda.synchronize()
    wall, busy = time.perf_counter(), time.process_time()
    work()
    if token_ids.is_cuda:
        torch.cuda.synchronize()
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    spent = busy if token_ids.device.type == "cpu" else wall
    tokens = token_ids.numel()
    return {
        "tokens": tokens,
        "cpu_ms": 1e3 * busy,
        "wall_ms": 1e3 * wall,
        "tokens_per_s": tokens / max(spent, 1e-9),
    }
