"""E34, one step at a time: what every length rule verifies, and leaves behind, at a given load.

The rounds of a trained drafter on unseen text are replayed at several numbers of requests, for the
cost curves of `dspark_serving`, with confidences that are raw, calibrated, or the mean rate of
their position, blind to the request. `DSPARK_ROUNDS` keeps rounds of one seed as they were drafted,
so that a scheduler can be tried without training anything.

Source: DSpark paper, sections 3.2.2 and 5.2, figure 8.
"""

from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from engram_lab.draft.costs import CostTable
from engram_lab.experiments.catalog.dspark_confidence import (
    ConfidenceRun,
    acceptance_records,
    confidence_run,
)
from engram_lab.experiments.catalog.dspark_serving import CURVES, DRAFTING
from engram_lab.experiments.catalog.dspark_targets import DOMAINS
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.schedule import Traces, schedule_frame, traces_of
from engram_lab.scales import pick

REPLAYED = ("sequential", "raw", "mean")
"""How confidences come about, of `probes.schedule.QUALITIES`."""
ROUNDED = 3
"""Decimals of stored logits."""


@dataclass(frozen=True, kw_only=True)
class ScheduleRun:
    """What is replayed.

    Attributes:
        confidence: the run whose rounds are replayed.
        domain: kind of text they were drafted on.
        quality: how confidences come about.
        costs: seconds of verifying, by tokens in the batch.
        draft_costs: seconds of drafting, by requests.
        concurrency: numbers of requests.
        steps: replayed at each.
    """

    confidence: ConfidenceRun
    domain: str
    quality: str
    costs: CostTable
    draft_costs: CostTable
    concurrency: tuple[int, ...]
    steps: int


@dataclass(frozen=True, kw_only=True)
class RoundsRun:
    """Rounds that are kept.

    Attributes:
        confidence: the run they come from.
        domain: kind of text they were drafted on.
        prompts: of these the first so many.
    """

    confidence: ConfidenceRun
    domain: str
    prompts: int


class Replay(NamedTuple):
    """What is measured: a run and the rounds it replays.

    Attributes:
        run: what was asked for.
        traces: the second half of the rounds, with confidences fitted on the first.
    """

    run: ScheduleRun
    traces: Traces


def schedule_run(domain: str, seed: int, costs: str, quality: str) -> ScheduleRun:
    """Config of one point.

    Args:
        domain: a key of `dspark_targets.DOMAINS`.
        seed: of the drafter's run.
        costs: a key of `dspark_serving.CURVES`.
        quality: one of `REPLAYED`.

    Raises:
        ValueError: if one of them is not known.
    """
    if domain not in DOMAINS or costs not in CURVES or quality not in REPLAYED:
        raise ValueError(
            f"domain must be one of {', '.join(DOMAINS)}, costs one of {', '.join(CURVES)} and "
            f"quality one of {', '.join(REPLAYED)}; got {domain!r}, {costs!r} and {quality!r}"
        )
    every = (1, 4, 16, 32, 64, 128, 256)
    return ScheduleRun(
        confidence=confidence_run(seed),
        domain=domain,
        quality=quality,
        costs=CURVES[costs],
        draft_costs=DRAFTING,
        concurrency=pick(tiny=(2, 64), workshop=every, full=every),
        steps=pick(tiny=4, workshop=64, full=256),
    )


def rounds_run(domain: str, seed: int) -> RoundsRun:
    """Config of the rounds of one kind of text.

    Args:
        domain: a key of `dspark_targets.DOMAINS`.
        seed: of the drafter's run.
    """
    prompts = pick(tiny=8, workshop=48, full=48)
    return RoundsRun(confidence=confidence_run(seed), domain=domain, prompts=prompts)


def replay(run: ScheduleRun) -> Replay:
    """Rounds of a run, with the confidences that a rule sees."""
    records = acceptance_records(run.domain, run.confidence.drafter.seed)
    return Replay(run, traces_of(records, quality=run.quality))


def scheduled(found: Replay) -> pd.DataFrame:
    """`probes.schedule.schedule_frame` of a run, with the number of rounds behind it."""
    run, traces = found
    frame = schedule_frame(
        traces,
        run.costs,
        draft_costs=run.draft_costs,
        concurrency=run.concurrency,
        steps=run.steps,
    )
    return frame.assign(rounds=len(traces.accepted))


def first_rounds(run: RoundsRun) -> pd.DataFrame:
    """Records of the first prompts of a run."""
    records = acceptance_records(run.domain, run.confidence.drafter.seed)
    return records[records["prompt"] < run.prompts].reset_index(drop=True)


def rounded(records: pd.DataFrame) -> pd.DataFrame:
    """Records as they are stored."""
    return records.assign(logit=records["logit"].round(ROUNDED))


def _grid() -> list[Point]:
    domains = pick(tiny=("structured",), workshop=tuple(DOMAINS), full=tuple(DOMAINS))
    return product(domain=domains, seed=seeds(), costs=tuple(CURVES), quality=REPLAYED)


def _kept() -> list[Point]:
    return product(domain=tuple(DOMAINS), seed=(0,))


DSPARK_SCHEDULE = Sweep(
    name="dspark_schedule",
    grid=_grid,
    configure=schedule_run,
    measure=scheduled,
    execute=replay,
)
DSPARK_ROUNDS = Sweep(
    name="dspark_rounds",
    grid=_kept,
    configure=rounds_run,
    measure=rounded,
    execute=first_rounds,
)
