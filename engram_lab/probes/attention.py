"""How far attention reaches: the share of its mass on the newest tokens, layer by layer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pandas as pd
import torch
from einops import einsum, reduce, repeat
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from engram_lab.model.layers import Attention
from engram_lab.model.residual import residual_stream

WINDOWS = (8, 32, 128)
SCORES = 2**24  # scores worked on at a time

# What a layer saw: its number, weights [batch head query key], and the position of the first query
Watcher = Callable[[int, Tensor, int], None]


def attention_mass(
    model: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    attention_mask: Tensor | None = None,
    *,
    windows: Sequence[int] = WINDOWS,
    first_query: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Share of attention on the newest `window` tokens, the query's own among them.

    The mean is over heads, sequences and queries. All windows are seen from the same queries, by
    default those of the second half of each text: an early query has nothing far away to look at.
    Windows longer than the text have mass 1.

    An `EngramLM` keeps no weights, so they are computed from its own queries, keys and bias as it
    runs. A decoder of `transformers` runs with its eager attention meanwhile. One layer's weights
    are in memory at a time.

    Args:
        model: left as it was.
        token_ids: texts of at least two tokens.
        attention_mask: 0 at padding; None for no padding.
        windows: tokens, at least 1 each.
        first_query: position in its text from which on a token counts as query.
        seed: of the model, for the frame.

    Returns:
        Columns layer (block, counted from 0), seed, window, mass (0 to 1) and queries (positions
        the mean is over).

    Raises:
        ValueError: if a window is below 1, no query is left, the model shows no attention weights,
            or the text does not suit it, as `residual_stream` says.
    """
    _check(token_ids, windows)
    queries = _queries(token_ids, attention_mask, first_query)
    masses = _Masses(windows)
    with _watching(model, masses.add):
        batch, seq = token_ids.shape
        heads = getattr(getattr(model, "config", None), "num_attention_heads", 16)
        rows = max(1, SCORES // (heads * seq * seq))
        for start in range(0, batch, rows):
            part = slice(start, start + rows)
            masses.queries = queries[part]
            mask = None if attention_mask is None else attention_mask[part]
            residual_stream(model, token_ids[part], mask)
    return masses.frame(seed)


class _Masses:
    """Adds up mass by layer and window over the passes of a model."""

    def __init__(self, windows: Sequence[int]):
        self.windows = tuple(windows)
        self.queries: Bool[Tensor, "batch seq"] = torch.zeros(0, 0, dtype=torch.bool)
        self.sums: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}

    def add(self, layer: int, weights: Float[Tensor, "batch head query key"], first: int) -> None:
        """Count the weights of queries from position `first` on."""
        weights = reduce(weights.float(), "batch head query key -> batch query key", "mean")
        positions = torch.arange(first, first + weights.shape[1], device=weights.device)
        keys = torch.arange(weights.shape[2], device=weights.device)
        distance = positions[:, None] - keys
        counted = self.queries[:, first : first + weights.shape[1]].to(weights)
        near = torch.stack([(distance < window) & (distance >= 0) for window in self.windows])
        mass = einsum(
            weights, near.to(weights), counted,
            "batch query key, window query key, batch query -> window",
        )  # fmt: skip
        self.sums[layer] = self.sums.get(layer, 0) + mass.double().cpu()
        self.counts[layer] = self.counts.get(layer, 0) + int(counted.sum())

    def frame(self, seed: int) -> pd.DataFrame:
        """One row per layer and window."""
        if not self.sums:
            raise ValueError(
                "no layer of this model gave attention weights: an EngramLM has them, and decoders "
                "of transformers whose attention can be eager"
            )
        rows = [
            {
                "layer": layer,
                "seed": seed,
                "window": window,
                "mass": float(mass) / self.counts[layer],
                "queries": self.counts[layer],
            }
            for layer in sorted(self.sums)
            for window, mass in zip(self.windows, self.sums[layer], strict=True)
        ]
        return pd.DataFrame(rows)


@contextmanager
def _watching(model: nn.Module, watcher: Watcher) -> Iterator[None]:
    """Show the watcher every layer's weights while the model runs; afterwards all is as before."""
    ours = [module for module in model.modules() if isinstance(module, Attention)]
    handles = [handle for module in ours for handle in _watch_ours(module, watcher)]
    try:
        if ours:
            yield
            return
        with _eager(model):
            for module in model.modules():
                if isinstance(getattr(module, "layer_idx", None), int):
                    handles.append(module.register_forward_hook(_theirs(watcher)))
            yield
    finally:
        for handle in handles:
            handle.remove()


def _watch_ours(attention: Attention, watcher: Watcher) -> list[RemovableHandle]:
    """Hooks that keep queries, keys and bias of a pass until the weights are made of them."""
    seen: dict[str, Tensor | None] = {}

    def before(_: nn.Module, args: tuple, kwargs: dict) -> None:
        seen["bias"] = kwargs.get("bias", args[2] if len(args) > 2 else None)

    def keep(name: str) -> Callable:
        def hook(_: nn.Module, args: tuple, output: Tensor) -> None:
            seen[name] = output.detach()

        return hook

    def after(*call: object) -> None:
        for first, weights in _weights(seen["query"], seen["key"], seen["bias"]):
            watcher(attention.layer, weights, first)
        seen.clear()

    return [
        attention.register_forward_pre_hook(before, with_kwargs=True),
        attention.hook_q.register_forward_hook(keep("query")),
        attention.hook_k.register_forward_hook(keep("key")),
        attention.register_forward_hook(after),
    ]


def _weights(
    query: Float[Tensor, "batch head seq size"],
    key: Float[Tensor, "batch key_head seq size"],
    bias: Float[Tensor, "rows 1 seq seq"] | None,
) -> Iterator[tuple[int, Float[Tensor, "batch head query seq"]]]:
    """Weights of a few queries at a time, with the position of the first; at least in float32."""
    batch, heads, seq, size = query.shape
    dtype = torch.promote_types(query.dtype, torch.float32)
    key = repeat(
        key.to(dtype), "batch key_head seq size -> batch (key_head share) seq size",
        share=heads // key.shape[1],
    )  # fmt: skip
    keys = torch.arange(seq, device=query.device)
    step = max(1, SCORES // (batch * heads * seq))
    for first in range(0, seq, step):
        part = slice(first, first + step)
        scores = query[:, :, part].to(dtype) @ key.mT / size**0.5
        if bias is None:
            scores = scores.masked_fill(keys > keys[part, None], -torch.inf)
        else:
            scores = scores + bias[:, :, part]
        yield first, scores.softmax(dim=-1)


def _theirs(watcher: Watcher) -> Callable:
    """Hook on an attention module of `transformers`, which returns weights beside its output."""

    def hook(module: nn.Module, args: tuple, output: object) -> None:
        if isinstance(output, tuple) and len(output) > 1:
            weights = output[1]
            if isinstance(weights, Tensor) and weights.dim() == 4:
                watcher(module.layer_idx, weights.detach(), 0)

    return hook


@contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Attention that shows its weights, for the time being."""
    before = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if before in (None, "eager"):
        yield
        return
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        model.set_attn_implementation(before)


def _check(token_ids: Tensor, windows: Sequence[int]) -> None:
    if token_ids.shape[0] == 0 or token_ids.shape[1] < 2:
        raise ValueError(
            "attention_mass needs texts of at least two tokens, so that there is something to look "
            f"back at; got ids of shape {tuple(token_ids.shape)}"
        )
    if not windows or min(windows) < 1:
        raise ValueError(f"windows must be at least one token each; got {tuple(windows)}")


def _queries(
    token_ids: Tensor, attention_mask: Tensor | None, first_query: int | None
) -> Bool[Tensor, "batch seq"]:
    """Which positions count as queries: those far enough into their own text."""
    real = torch.ones_like(token_ids) if attention_mask is None else attention_mask.long()
    positions = real.cumsum(dim=1) - 1
    first = real.sum(dim=1, keepdim=True) // 2 if first_query is None else first_query
    queries = real.bool() & (positions >= first)
    if not bool(queries.any()):
        raise ValueError(
            f"first_query must lie within the texts, the longest of {int(real.sum(dim=1).max())} "
            f"tokens; got {first_query}"
        )
    return queries
