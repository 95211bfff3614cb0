"""E10, the canonical map in training: does hashing canonical ids lower the loss, and for whom?

Hybrids on real text that hash canonical ids, the same with raw ids, and pure experts, so that the
map's part of the memory's gain can be told. Sizes, data and seeds are those of the allocation
experiment, whose runs are the arms "canonical" and "experts"; only "raw" is trained anew.

Source: Engram paper, section 6.2 and figure 5 (without tokenizer compression).
"""

from dataclasses import replace

from engram_lab.experiments.catalog.engram_allocation import allocation_run
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.compression_loss import spelling_loss
from engram_lab.scales import pick
from engram_lab.training.config import RunConfig

HYBRIDS = ("canonical", "raw")


def map_run(arm: str, allocation_ratio: float, seed: int) -> RunConfig:
    """Config of one point: a model of the allocation experiment on text, with or without the map.

    Args:
        arm: "canonical" hashes canonical ids, "raw" token ids; "experts" has no memory.
        allocation_ratio: share of the sparse parameters given to experts; 1 for "experts".
        seed: of weights and order of batches.

    Raises:
        ValueError: if the arm is not known.
    """
    if arm not in (*HYBRIDS, "experts"):
        raise ValueError(f"arm must be canonical, raw or experts; got {arm!r}")
    run = allocation_run("text", allocation_ratio, seed)
    if arm != "raw":
        return run
    memory = replace(run.model.engram, compress=False)
    return replace(run, model=run.model.replace(engram=memory))


def _grid() -> list[Point]:
    ratios = pick(tiny=(0.5,), workshop=(0.75, 0.0), full=(0.75,))
    hybrids = product(arm=HYBRIDS, allocation_ratio=ratios, seed=seeds())
    return hybrids + product(arm=("experts",), allocation_ratio=(1.0,), seed=seeds())


ENGRAM_COMPRESSION_LOSS = Sweep(
    name="engram_compression_loss", grid=_grid, configure=map_run, measure=spelling_loss
)
