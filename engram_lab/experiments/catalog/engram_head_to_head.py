"""E3, head to head at equal budget: dense, experts, hybrid, hybrid with a larger table.

Active parameters, data and steps are held equal; total parameters too, but for the dense arm, which
has no sparse ones, and for the hybrid with three times the rows. `ENGRAM_HEAD_TO_HEAD` is the loss
on the fact book (D3), `_TASKS` what the same models answer about it, `_LATE` their training
loss over the last fifth, `_TEXT` the loss on real text.

Source: Engram paper, section 4.2 and table 1.
"""

from engram_lab.experiments.catalog.engram_allocation import allocation_run
from engram_lab.experiments.catalog.memory_arms import (
    ARMS,
    RATIO,
    arm_run,
    generated,
    seeds,
)
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.allocation import final_loss
from engram_lab.probes.task_sets import task_items
from engram_lab.probes.training_noise import late_losses
from engram_lab.scales import pick
from engram_lab.training.config import DataConfig, RunConfig


def facts(entities: int | None = None) -> DataConfig:
    """The fact book at the scale in force.

    Args:
        entities: how many the book has; None takes so many that no model learns all their facts.
    """
    entities = entities or pick(tiny=20, workshop=1_000, full=20_000)
    return generated("d3", workshop_tokens=1_500_000, entities=entities)


def _grid() -> list[Point]:
    return product(arm=ARMS, seed=seeds())


def _facts(arm: str, seed: int) -> RunConfig:
    return arm_run(facts(), arm, seed)


def _text(arm: str, seed: int) -> RunConfig:
    return arm_run(allocation_run("text", RATIO, seed).data, arm, seed)


ENGRAM_HEAD_TO_HEAD = Sweep(
    name="engram_head_to_head", grid=_grid, configure=_facts, measure=final_loss
)
ENGRAM_HEAD_TO_HEAD_TASKS = Sweep(
    name="engram_head_to_head_tasks", grid=_grid, configure=_facts, measure=task_items
)
ENGRAM_HEAD_TO_HEAD_LATE = Sweep(
    name="engram_head_to_head_late", grid=_grid, configure=_facts, measure=late_losses
)
ENGRAM_HEAD_TO_HEAD_TEXT = Sweep(
    name="engram_head_to_head_text", grid=_grid, configure=_text, measure=final_loss
)
