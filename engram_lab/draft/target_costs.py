"""Cost table of a target on this machine: one step of many sequences that stand at one length."""

from collections.abc import Sequence

import torch

from engram_lab.draft.costs import CostTable, measure_cost_table
from engram_lab.draft.target import Target


def target_cost_table(
    target: Target,
    sizes: Sequence[int],
    *,
    context: int = 64,
    block: int = 8,
    repeats: int = 5,
    name: str = "measured here",
) -> CostTable:
    """Time a target's pass over batches of so many tokens, at a fixed context.

    A batch has as many sequences of a whole block as fit, or one of fewer tokens. What a step costs
    does not depend on what the weights or tokens are, so neither need be meaningful.

    Args:
        target: the model to time.
        sizes: numbers of tokens, at most a block or multiples of one.
        context: positions that every sequence remembers already, at least 1.
        block: tokens of a sequence in a step, at least 1: its anchor and its drafts.
        repeats: timed passes of each size; the median counts.
        name: as `CostTable.name`.

    Raises:
        ValueError: if a size is no multiple of a block, context or block are below 1, the model's
            context is too short, or as `measure_cost_table`.
    """
    odd = [size for size in sizes if size > block and size % block]
    if odd or block < 1 or context < 1:
        raise ValueError(
            "target_cost_table needs context and block of at least 1 and sizes that are at most a "
            f"block or multiples of one; got context {context}, block {block} and {odd or 'sizes'}"
        )
    if target.context is not None and context + block > target.context:
        raise ValueError(
            f"the target takes texts of {target.context} tokens; context {context} and a block of "
            f"{block} are longer. Time it at a shorter context="
        )
    caches = {}

    def step(size: int) -> None:
        rows = max(size // block, 1)
        if size not in caches:
            caches[size] = target.start(rows)
            target.forward(_tokens(target, rows, context), caches[size])
            caches[size].keep(torch.full((rows,), context))
        target.forward(_tokens(target, rows, min(size, block)), caches[size])
        caches[size].keep(torch.zeros(rows, dtype=torch.int64))

    with torch.no_grad():
        return measure_cost_table(step, sizes, repeats=repeats, name=name)


def _tokens(target: Target, rows: int, count: int) -> torch.Tensor:
    """Token ids of a batch, all different as far as the vocabulary goes."""
    ids = torch.arange(rows * count, device=target.device) % target.vocab_size
    return ids.view(rows, count)
