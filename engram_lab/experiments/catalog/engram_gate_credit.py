"""E14, gate credit: does the gate open where memory helps, and how do frequent n-grams fare?

Hybrids and pure experts on the phrasebook (D1), each trained on an eighth, a quarter, a half and
all of the tokens: runs of their own, since the learning rate falls to its end in each. The longest
are those of the allocation experiment. Frequent and rare n-grams differ in difficulty anyway, so
the hybrid is always read beside the model without memory.

Source: Engram-Nine (arXiv:2601.16531), route-stratified loss and gate calibration.
"""

from dataclasses import replace

from engram_lab.experiments.catalog import engram_allocation
from engram_lab.experiments.catalog.engram_allocation import allocation_run
from engram_lab.experiments.catalog.memory_arms import EVEN_RATIO, seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.gate_scores import trained_credit
from engram_lab.scales import pick
from engram_lab.training.config import RunConfig


def _grid() -> list[Point]:
    halvings = pick(tiny=(1, 0), workshop=(3, 2, 1, 0), full=(3, 2, 1, 0))
    budgets = [engram_allocation.train_tokens("d1") // 2**halving for halving in halvings]
    return product(model=("engram", "experts"), train_tokens=budgets, seed=seeds())


def _run(model: str, train_tokens: int, seed: int) -> RunConfig:
    run = allocation_run("d1", EVEN_RATIO, seed, arm=model)
    return replace(run, data=replace(run.data, train_tokens=train_tokens))


ENGRAM_GATE_CREDIT = Sweep(
    name="engram_gate_credit", grid=_grid, configure=_run, measure=trained_credit
)
