"""E37: does a memory make drafting easier, and can its table itself draft?

Two targets, with a memory and without, are alike in everything else; for each, DSpark drafts once
without and once with the rows of the tokens before its slots. A target without a memory has no
rows, so its drafter reads the table of the other target of the same seed: rows hang on tokens
alone. Counted pairs, alone and as a bias on the parallel drafter, are the baseline.

`DSPARK_MEMORY` is what every prompt gained and read, `DSPARK_MEMORY_READS` the same decodings
under thresholds on the confidence. Targets answer in their own words, so texts differ between them,
and a target with a memory has more parameters; each row states its target's loss and size.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from engram_lab.draft.rounds import Generation
from engram_lab.experiments.catalog.dspark_drafters import drafter_run, on_unseen_text
from engram_lab.experiments.catalog.dspark_targets import DOMAINS, memory_target, text_target
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.model.budget import budget
from engram_lab.probes.allocation import rounded
from engram_lab.probes.draft_memory import RowReader, memory_lengths, read_thresholds
from engram_lab.training.draft_config import DraftRunConfig
from engram_lab.training.draft_fit import TrainedDrafter
from engram_lab.training.draft_simple import (
    SimpleDrafterConfig,
    load_any_drafter,
    parameter_count,
)
from engram_lab.training.evaluate import document_losses
from engram_lab.training.fit import TrainedRun

TARGETS = {"plain": text_target, "memory": memory_target}
COUNTS = ("bigram", "parallel_bigram")


def memory_drafter_run(
    target: str, drafter: str, rows: bool, seed: int
) -> DraftRunConfig | SimpleDrafterConfig:
    """Config of a cell.

    Args:
        target: a key of `TARGETS`.
        drafter: "dspark" or one of `COUNTS`.
        rows: whether the sequential head reads rows; counts have none.
        seed: of targets, drafter, anchors and order of texts.

    Raises:
        KeyError: if target or drafter is not known.
        ValueError: if counts are to read rows.
    """
    if rows and drafter in COUNTS:
        raise ValueError(f"counts read no rows; got drafter={drafter!r} with rows=True")
    run = _for_target(drafter_run(drafter, seed), TARGETS[target](seed))
    return replace(run, rows_of=memory_target(seed)) if rows else run


def lengths_and_reads(trained: TrainedDrafter) -> pd.DataFrame:
    """What each unseen prompt gained and read, beside target and drafter.

    Returns:
        Columns domain and temperature, those of `probes.draft_memory.memory_lengths`,
        target_loss_nats (per token of the domain's held-out documents), target_params and
        target_active_params (embedding and head left out) and draft_params.
    """
    measure = partial(memory_lengths, reader=RowReader.of(trained))
    frame = on_unseen_text(trained, measure)
    losses, size = _losses(trained.target_run), budget(trained.target_run.config.model)
    frame = frame.assign(
        target_loss_nats=frame["domain"].map(losses),
        target_params=size.total,
        target_active_params=size.active,
        draft_params=parameter_count(trained.drafter),
    )
    return rounded(frame)


def reads_by_threshold(trained: TrainedDrafter) -> pd.DataFrame:
    """What thresholds would make of the reads; `domain temperature` and `read_thresholds`."""
    reader = RowReader.of(trained)

    def measure(generation: Generation) -> pd.DataFrame:
        return read_thresholds(generation, reader)

    return rounded(on_unseen_text(trained, measure))


def _for_target(run: Any, target: Any) -> Any:
    """A drafter's run with another target, also in the drafter it is built on."""
    base = getattr(run, "base", None)
    if base is None:
        return replace(run, target=target)
    return replace(run, target=target, base=replace(base, target=target))


def _losses(run: TrainedRun) -> dict[str, float]:
    """Loss of a target on the held-out documents of every kind of text, in nats per token."""
    train = run.config.train
    frame = document_losses(
        run.model, run.validation, seq_len=train.seq_len, batch_size=train.batch_size
    )
    sums = frame.assign(nats=frame["loss_nats"] * frame["eval_tokens"]).groupby("token_class")
    means = sums["nats"].sum() / sums["eval_tokens"].sum()
    return {domain: float(means[part]) for domain, part in DOMAINS.items()}


def _dspark() -> list[Point]:
    return product(target=tuple(TARGETS), drafter=("dspark",), rows=(False, True), seed=seeds())


def _cells() -> list[Point]:
    return _dspark() + product(target=tuple(TARGETS), drafter=COUNTS, rows=(False,), seed=seeds())


DSPARK_MEMORY = Sweep(
    name="dspark_memory",
    grid=_cells,
    configure=memory_drafter_run,
    measure=lengths_and_reads,
    execute=load_any_drafter,
)
DSPARK_MEMORY_READS = Sweep(
    name="dspark_memory_reads",
    grid=_dspark,
    configure=memory_drafter_run,
    measure=reads_by_threshold,
    execute=load_any_drafter,
)
