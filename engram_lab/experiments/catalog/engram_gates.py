"""E8, gate maps: does the gate open at the end of stereotyped phrases, and under the right topic?

`ENGRAM_GATES` scores the gates of hybrids trained on the phrasebook (D1; runs of the allocation
experiment) as detectors of phrase ends, beside those of the control whose rows never fitted its
text. `_TOPICS` compares the same phrase under two topics (D5).

Source: Engram paper, section 6.5 and figure 7.
"""

from engram_lab.experiments.catalog.engram_allocation import allocation_run
from engram_lab.experiments.catalog.memory_arms import EVEN_RATIO, arm_run, generated, seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.gate_scores import trained_gate_scores, trained_topic_gates
from engram_lab.training.config import RunConfig


def _grid() -> list[Point]:
    return product(model=("engram", "neighbour"), seed=seeds())


def _phrases(model: str, seed: int) -> RunConfig:
    return allocation_run("d1", EVEN_RATIO, seed, arm=model)


def _topics(model: str, seed: int) -> RunConfig:
    data = generated("d5", workshop_tokens=500_000, topics=2)
    return arm_run(data, model, seed, ratio=EVEN_RATIO)


ENGRAM_GATES = Sweep(
    name="engram_gates", grid=_grid, configure=_phrases, measure=trained_gate_scores
)
ENGRAM_GATES_TOPICS = Sweep(
    name="engram_gates_topics", grid=_grid, configure=_topics, measure=trained_topic_gates
)
