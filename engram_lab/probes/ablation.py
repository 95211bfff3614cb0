"""What the table holds: scores with parts of the memory taken away, and the share they retain.

Taking away a part that a model was trained with shows dependence, not storage: it leaves the model
in a state it never saw. Rows set to zero leave nothing of a memory without biases, so there
"rows_zero" and "gate_zero" are the same cut.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from engram_lab.hooks import edit, record
from engram_lab.memory.engram import Engram
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.intervals import draws, middle
from engram_lab.probes.tasks import (
    INDEX,
    Task,
    above_chance,
    item_frame,
    read_batches,
    score_frame,
)

Change = Callable[[Tensor], Tensor]

CUTS = ("rows_zero", "rows_mean", "rows_permuted", "gate_zero", "gate_one")
MEASURED = ["score", "stderr", "chance", "items", "loss_nats"]
RETAINED = [
    f"{name}{end}" for name in ("retained", "retained_corrected") for end in ("", "_low", "_high")
]


def ablation_frame(
    model: nn.Module,
    tasks: Sequence[Task],
    *,
    cuts: Sequence[str] = CUTS,
    seed: int = 0,
    batch_size: int = 32,
) -> pd.DataFrame:
    """Scores of a model, intact and with every cut, for each memory module and for all together.

    Args:
        model: a model with memory; left as it was.
        tasks: what it is asked; see `probes.task_sets`.
        cuts: "rows_zero" reads zeros; "rows_mean" reads in every table the mean of what the tasks
            read there; "rows_permuted" reads another row of the same table, by a fixed random
            order; "gate_zero" closes the gate, "gate_one" opens it wholly.
        seed: number of the model, also of the random order.
        batch_size: items per forward pass.

    Returns:
        One row per task, arm ("intact" or a cut) and layer ("all" for every module together, else
        the block's number; single modules only where there are several), with columns family, task,
        arm, layer, seed, score, stderr, chance, items, loss_nats, retained (score as a share of the
        intact one) and retained_corrected (the same of what is above chance), each with _low and
        _high (95 % over items, drawn in pairs). Shares are empty where the intact score is 0, or
        not clearly above chance.

    Raises:
        ValueError: if the model has no memory, a cut is unknown, or tasks are not fit to score.

    Source: Engram paper, section 6.3 (memory output suppressed at inference).
    """
    unknown = [cut for cut in cuts if cut not in CUTS]
    if unknown or not cuts:
        raise ValueError(f"cuts must be some of {', '.join(CUTS)}; got {list(cuts)}")
    paths = memory_paths(model)
    intact = item_frame(model, tasks, batch_size=batch_size)
    parts = [score_frame(intact, tasks).assign(**_whole(intact, tasks))]
    means = mean_rows(model, tasks, batch_size=batch_size) if "rows_mean" in cuts else {}
    for cut in cuts:
        for layer, chosen in _groups(paths):
            changes = _changes(model, cut, chosen, means=means, seed=seed)
            with edit(model, changes):
                items = item_frame(model, tasks, batch_size=batch_size)
            parts.append(_cut_scores(intact, items, tasks).assign(arm=cut, layer=layer))
    return pd.concat(parts, ignore_index=True).assign(seed=seed)[[*INDEX, *MEASURED, *RETAINED]]


def memory_paths(model: nn.Module) -> dict[int, str]:
    """Module path of every memory, by block.

    Raises:
        ValueError: if the model has none.
    """
    found = {
        module.layer_id: name
        for name, module in model.named_modules()
        if isinstance(module, Engram)
    }
    if not found:
        raise ValueError(
            f"memory is taken from a model that has some; this {type(model).__name__} has none. "
            "Give its config an EngramConfig and train it again."
        )
    return dict(sorted(found.items()))


def mean_rows(
    model: nn.Module, tasks: Sequence[Task], *, batch_size: int = 32
) -> dict[int, Tensor]:
    """Mean of the rows that the tasks read in each table, `[table row]`, by block."""
    paths = memory_paths(model)
    device = next(model.parameters()).device
    sums: dict[int, Tensor] = {}
    tokens = 0
    names = {layer: f"{path}.hook_rows" for layer, path in paths.items()}
    with undisturbed(model), record(model, list(names.values()), dtype=torch.float64) as seen:
        for task in tasks:
            for _, batch in read_batches(task.documents, batch_size):
                batch = batch.to(device)
                model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
                live = batch.attention_mask == 1
                tokens += int(live.sum())
                for layer, name in names.items():
                    sums[layer] = sums.get(layer, 0) + seen[name][live].sum(0)
    return {layer: total / tokens for layer, total in sums.items()}


@contextmanager
def without_memory(model: nn.Module, cut: str = "rows_zero", *, seed: int = 0) -> Iterator[None]:
    """Every memory of a model cut, inside the `with` block; not for "rows_mean", which needs tasks.

    Raises:
        ValueError: if the model has no memory or the cut cannot be made.
    """
    if cut not in CUTS or cut == "rows_mean":
        known = [name for name in CUTS if name != "rows_mean"]
        raise ValueError(f"cut must be one of {', '.join(known)}; got {cut!r}")
    with edit(model, _changes(model, cut, memory_paths(model), means={}, seed=seed)):
        yield


def _groups(paths: Mapping[int, str]) -> list[tuple[str, Mapping[int, str]]]:
    """All modules together, and each of them where there are several."""
    alone = [(str(layer), {layer: path}) for layer, path in paths.items()]
    return [("all", paths), *(alone if len(alone) > 1 else [])]


def _changes(
    model: nn.Module,
    cut: str,
    paths: Mapping[int, str],
    *,
    means: Mapping[int, Tensor],
    seed: int,
) -> dict[str, Change]:
    """Hook points of some modules, and what becomes of their values."""
    return dict(
        _change(model.get_submodule(path), cut, layer, path, means=means, seed=seed)
        for layer, path in paths.items()
    )


def _change(
    memory: nn.Module,
    cut: str,
    layer: int,
    path: str,
    *,
    means: Mapping[int, Tensor],
    seed: int,
) -> tuple[str, Change]:
    if cut == "gate_zero":
        return f"{path}.hook_gate", torch.zeros_like
    if cut == "gate_one":
        return f"{path}.hook_gate", torch.ones_like
    if cut == "rows_zero":
        return f"{path}.hook_rows", torch.zeros_like
    if cut == "rows_mean":
        return f"{path}.hook_rows", lambda rows: means[layer].to(rows).expand_as(rows)
    lengths = memory.hash.primes.flatten().tolist()
    return f"{path}.hook_addresses", _permuted(lengths, seed=1_000 * seed + layer)


def _permuted(lengths: Sequence[int], *, seed: int) -> Change:
    """Another address within each table, by a random order."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(length, generator=generator) for length in lengths]

    def change(addresses: Tensor) -> Tensor:
        columns = [
            order.to(addresses.device)[addresses[..., table]] for table, order in enumerate(orders)
        ]
        return torch.stack(columns, dim=-1)

    return change


def _cut_scores(intact: pd.DataFrame, items: pd.DataFrame, tasks: Sequence[Task]) -> pd.DataFrame:
    """Scores of a cut model with the shares they are of the intact ones."""
    shares = pd.DataFrame([_retained(intact, items, task) for task in tasks])
    return score_frame(items, tasks).assign(**shares)


def _whole(items: pd.DataFrame, tasks: Sequence[Task]) -> dict[str, np.ndarray]:
    """The shares of the intact model, with intervals of no width."""
    scores = score_frame(items, tasks)
    return {
        f"{name}{end}": scores[name].to_numpy()
        for name in ("retained", "retained_corrected")
        for end in ("_low", "_high")
    }


def _retained(intact: pd.DataFrame, items: pd.DataFrame, task: Task) -> dict[str, float]:
    """Retained share of one task, raw and above chance, with intervals over items."""
    on, off = (
        frame.loc[frame["task"] == task.name, "score"].to_numpy() for frame in (intact, items)
    )
    counts = draws(len(on))
    means = {name: counts @ scores / len(on) for name, scores in (("on", on), ("off", off))}
    stderr = float(on.std() / len(on) ** 0.5)
    found: dict[str, float] = {}
    for name, base in (("retained", 0.0), ("retained_corrected", task.chance)):
        clear = on.mean() > 0 if base == 0 else above_chance(float(on.mean()), stderr, task)
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = (means["off"] - base) / (means["on"] - base)
        low, high = middle(samples) if clear else (np.nan, np.nan)
        share = (off.mean() - base) / (on.mean() - base) if clear else np.nan
        found |= {name: float(share), f"{name}_low": low, f"{name}_high": high}
    return found
