"""How long a drafter has to learn: accepted length by updates, beside the drafters of E30.

At equal updates drafters do not learn from equally many drafts: a block drafter has a few anchors
in every text, one that reads its own output starts at every position. Here both are given less or
more, so that "better at equal updates" can be told from "better".
"""

from dataclasses import replace

import pandas as pd

from engram_lab.draft.config import DraftConfig
from engram_lab.experiments.catalog.dspark_drafters import drafter_run, lengths_by_prompt
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.scales import pick
from engram_lab.training.draft_config import DraftRunConfig
from engram_lab.training.draft_fit import TrainedDrafter, load_or_fit_drafter

BLOCKS = ("parallel_same", "dspark")


def updates() -> tuple[int, ...]:
    """Numbers of updates; the middle one is that of E30."""
    return pick(tiny=(2, 3), workshop=(100, 400, 1_600), full=(5_000, 20_000, 80_000))


def budget_run(drafter: str, updates: int, seed: int) -> DraftRunConfig:
    """Config of a drafter that is trained for another number of updates.

    Args:
        drafter: one of `BLOCKS`, or "mtp".
        updates: of its weights; rows are read again where they run out.
        seed: of target, drafter, anchors and order of texts.

    Raises:
        KeyError: if the drafter is not known.
    """
    run = drafter_run(drafter, seed)
    return replace(run, train=replace(run.train, steps=updates))


def supervised_drafts(run: DraftRunConfig) -> int:
    """Most drafts that a training learns from, those behind the end of a text included.

    Args:
        run: the drafter's.
    """
    starts = run.loss.num_anchors
    if not isinstance(run.drafter, DraftConfig):
        starts = run.answers.answer_tokens
    return run.steps * run.train.batch_size * starts * run.drafter.block_size


def lengths_and_budget(trained: TrainedDrafter) -> pd.DataFrame:
    """Accepted length on unseen prompts, a row each, with the drafts that were learned from."""
    frame = lengths_by_prompt(trained)
    return frame.assign(supervised_drafts=supervised_drafts(trained.config))


def _grid() -> list[Point]:
    """All numbers of updates; MTP, whose update takes four times as long, without the largest."""
    chains = product(drafter=("mtp",), updates=updates()[:2], seed=seeds())
    return product(drafter=BLOCKS, updates=updates(), seed=seeds()) + chains


DSPARK_BUDGET = Sweep(
    name="dspark_budget",
    grid=_grid,
    configure=budget_run,
    measure=lengths_and_budget,
    execute=load_or_fit_drafter,
)
