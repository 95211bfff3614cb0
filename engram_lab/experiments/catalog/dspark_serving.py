"""E34, an engine under load: does a scheduler that knows its costs beat fixed draft lengths?

A trained drafter drafts for its target on unseen text, every round verified whole; on these rounds
an engine is simulated (`draft.serving`) with every policy, at several numbers of users, for three
shapes of the cost of a step. A small model's own step costs the same for one token and for many, so
that every policy would verify everything; the curves here are made up in the proportions of large
models, and only comparisons within one of them mean something.

Source: DSpark paper, sections 3.2, 5.2 to 5.4, figures 7 and 8.
"""

from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from engram_lab.draft.calibration import Calibrator
from engram_lab.draft.costs import CostTable, affine, roofline, staircase
from engram_lab.draft.serving import Engine, Load
from engram_lab.draft.serving_policies import standard_policies
from engram_lab.draft.serving_records import AcceptanceRecords, records_from
from engram_lab.experiments.catalog.dspark_confidence import acceptance_records
from engram_lab.experiments.catalog.dspark_drafters import drafter_run
from engram_lab.experiments.catalog.dspark_targets import DOMAINS
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.confidence import records_of, rounds_of
from engram_lab.probes.serving import serving_frame
from engram_lab.scales import pick
from engram_lab.training.draft_config import DraftRunConfig

BASE = 0.020
"""Seconds of the smallest step."""
CURVES = {
    "affine": affine(base=BASE, per_token=BASE / 700),
    "roofline": roofline(base=BASE, free_tokens=384),
    "staircase": staircase(base=BASE, rise=BASE / 6, width=96, stairs=24),
}
"""Costs of a step by shape; each doubles between some hundred and a thousand tokens."""
DRAFTING = affine(base=0.07 * BASE, per_token=BASE / 10_000)
"""Costs of drafting, by requests: 7 % of the smallest step (three blocks beside a trunk of 43)."""


@dataclass(frozen=True, kw_only=True)
class ServingRun:
    """What is simulated.

    Attributes:
        drafter: the run whose drafts are measured.
        domain: kind of text they are measured on.
        costs: seconds of verifying, by tokens in the batch.
        draft_costs: seconds of drafting, by requests.
        users: of the closed loops.
        output_tokens: mean tokens of an answer.
        rounds: request-rounds counted at every number of users.
        seed: of the drafter's run and of the simulation.
    """

    drafter: DraftRunConfig
    domain: str
    costs: CostTable
    draft_costs: CostTable
    users: tuple[int, ...]
    output_tokens: int
    rounds: int
    seed: int


class Prepared(NamedTuple):
    """What is measured: a run and the rounds it is served with.

    Attributes:
        run: what was asked for.
        records: the second half of the drafter's rounds, with confidences calibrated on the first.
    """

    run: ServingRun
    records: AcceptanceRecords


def prepare(run: ServingRun) -> Prepared:
    """Calibrate the confidences of a run on one half of its rounds, and keep the other."""
    (rounds,) = rounds_of(acceptance_records(run.domain, run.seed))
    fitted, served = rounds.halves()
    calibrator = Calibrator("sequential").fit(fitted.logits, fitted.accepted)
    frame = records_of(served.logits, served.accepted, domain=run.domain)
    return Prepared(run, records_from(frame, calibrate=calibrator.apply))


def serve(prepared: Prepared) -> pd.DataFrame:
    """`probes.serving.serving_frame` of a run, with the number of records behind it."""
    run, records = prepared
    policies = standard_policies(
        run.costs, block_size=records.block_size, draft_costs=run.draft_costs
    )
    engine = Engine(
        verify_seconds=run.costs, draft_seconds=run.draft_costs, max_running=max(run.users)
    )
    loads = [
        Load(
            users=users,
            output_tokens=run.output_tokens,
            rounds=max(run.rounds, 20 * users),
            warmup=max(run.rounds // 10, 2 * users),
        )
        for users in run.users
    ]
    frame = serving_frame(records, policies, engine, loads, seed=run.seed)
    return frame.assign(records=len(records.accepted))


def serving_run(costs: str, domain: str, seed: int) -> ServingRun:
    """Config of one point.

    Args:
        costs: a key of `CURVES`.
        domain: a key of `dspark_targets.DOMAINS`.
        seed: of the drafter's run and of the simulation.

    Raises:
        ValueError: if the curve or the domain is not known.
    """
    if costs not in CURVES or domain not in DOMAINS:
        raise ValueError(
            f"costs must be one of {', '.join(CURVES)} and domain one of {', '.join(DOMAINS)}; "
            f"got {costs!r} and {domain!r}"
        )
    every = (1, 4, 16, 32, 64, 128, 256)
    return ServingRun(
        drafter=drafter_run("dspark", seed),
        domain=domain,
        costs=CURVES[costs],
        draft_costs=DRAFTING,
        users=pick(tiny=(2, 64), workshop=every, full=every),
        output_tokens=pick(tiny=64, workshop=256, full=256),
        rounds=pick(tiny=200, workshop=6_000, full=50_000),
        seed=seed,
    )


def _grid() -> list[Point]:
    domains = pick(tiny=("structured",), workshop=tuple(DOMAINS), full=tuple(DOMAINS))
    return product(domain=domains, seed=seeds(), costs=tuple(CURVES))


DSPARK_SERVING = Sweep(
    name="dspark_serving",
    grid=_grid,
    configure=serving_run,
    measure=serve,
    execute=prepare,
)
