"""What every drafter offers to decoding: one interface for DSpark and all its relatives."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from engram_lab.draft.sampling import Noise, Sampling, draw
from engram_lab.draft.verify import Proposal


@dataclass(frozen=True, kw_only=True, eq=False)
class Committed:
    """What the target has taken over since a drafter was last told.

    Attributes:
        token_ids: tokens now in the target's cache, right-padded.
        counts: how many of them count in every sequence, on the CPU.
        features: the target's tapped states at these tokens; None where nothing is tapped.
        final: what the target's head was given at these tokens.
        anchor: the newest token of every sequence, which is in no cache yet.
    """

    token_ids: Int64[Tensor, "batch seq"]
    counts: Int64[Tensor, "batch"]
    features: Float[Tensor, "batch seq taps"] | None
    final: Float[Tensor, "batch seq hidden"]
    anchor: Int64[Tensor, "batch"]


@runtime_checkable
class Proposer(Protocol):
    """A drafter as decoding sees it.

    Attributes:
        block_size: most tokens it drafts in one round.
        layer_ids: blocks of the target whose outputs it reads; may be empty.
    """

    block_size: int
    layer_ids: tuple[int, ...]

    def begin(self, batch: int) -> Any:
        """State of a fresh batch."""
        ...

    def absorb(self, state: Any, committed: Committed) -> None:
        """Take over what the target has accepted, before the next proposal."""
        ...

    def propose(self, state: Any, length: int, sampling: Sampling, noise: Noise) -> Proposal:
        """Draft `length` tokens behind the anchor of the last `absorb`.

        Raises:
            ValueError: if `length` is above `block_size`, naming both.
        """
        ...

    def select(self, state: Any, rows: list[int]) -> None:
        """Keep only these sequences."""
        ...


def check_length(length: int, block_size: int) -> None:
    """Refuse to draft further than a drafter was built for.

    Raises:
        ValueError: naming both numbers.
    """
    if not 1 <= length <= block_size:
        raise ValueError(
            f"this drafter proposes 1..{block_size} tokens (block_size={block_size}); asked for "
            f"{length}. Beyond its block acceptance collapses at every position; train one with "
            "a longer block."
        )


def pick(
    logits: Float[Tensor, "batch vocab"], sampling: Sampling, uniform: Float[Tensor, "batch"]
) -> tuple[Int64[Tensor, "batch"], Float[Tensor, "batch vocab"] | None]:
    """Draw a token of every sequence; its distribution is None where the draw was certain."""
    if sampling.greedy:
        return logits.argmax(-1), None
    probs = sampling.probs(logits)
    return draw(probs, uniform.to(logits.device)), probs


def joined(probs: list[Float[Tensor, "batch vocab"] | None]) -> Tensor | None:
    """Distributions of the slots as one tensor; None where every draw was certain."""
    return None if probs[0] is None else torch.stack(probs, dim=1)
