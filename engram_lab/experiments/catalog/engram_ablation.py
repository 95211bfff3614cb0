"""E7, functional ablation: which abilities live in the table?

`ENGRAM_ABLATION` takes the memory away from hybrids that were trained on the fact book (D3; the
same runs as in the head-to-head), and from the control whose rows never fitted its text. `_CHAINS`
does it on phrases and chains (D8), `_TEXT` on real text, by part of the bundle, both with runs of
the allocation experiment.

Source: Engram paper, section 6.3 and figure 6.
"""

from engram_lab.experiments.catalog.engram_allocation import allocation_run
from engram_lab.experiments.catalog.engram_head_to_head import facts
from engram_lab.experiments.catalog.memory_arms import RATIO, arm_run, seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.task_sets import trained_ablation
from engram_lab.training.config import RunConfig


def _grid() -> list[Point]:
    return product(model=("engram", "neighbour"), seed=seeds())


def _facts(model: str, seed: int) -> RunConfig:
    return arm_run(facts(), model, seed)


def _chains(model: str, seed: int) -> RunConfig:
    return allocation_run("d8", RATIO, seed, arm=model)


def _text(seed: int) -> RunConfig:
    return allocation_run("text", RATIO, seed)


ENGRAM_ABLATION = Sweep(
    name="engram_ablation", grid=_grid, configure=_facts, measure=trained_ablation
)
ENGRAM_ABLATION_CHAINS = Sweep(
    name="engram_ablation_chains", grid=_grid, configure=_chains, measure=trained_ablation
)
ENGRAM_ABLATION_TEXT = Sweep(
    name="engram_ablation_text",
    grid=lambda: product(seed=seeds()),
    configure=_text,
    measure=trained_ablation,
)
