"""Verification: the longest draft prefix that leaves the target's distribution unchanged."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from engram_lab.draft.sampling import Noise, draw

SMALLEST = 1e-8
"""Floor of the ratio's denominator, and the residual mass below which the target is drawn from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """What a drafter proposes for every sequence of a batch.

    Attributes:
        tokens: drafts, left to right.
        probs: the distributions they were drawn from; None where each was certain (greedy drafts
            and look-ups).
        confidence: logits of surviving, given that all before survived, also of drafts that were
            cut off; None without such a head.
        lengths: how many drafts of each sequence are to be verified; None for all.
    """

    tokens: Int64[Tensor, "batch block"]
    probs: Float[Tensor, "batch block vocab"] | None = None
    confidence: Float[Tensor, "batch drafted"] | None = None
    lengths: Int64[Tensor, "batch"] | None = None

    def cut(self, lengths: Int64[Tensor, "batch"]) -> "Proposal":
        """The proposal with only the first `lengths` drafts of every sequence, or fewer if it has.

        Drafts behind the longest are dropped, so that they cost no verification.
        """
        if self.lengths is not None:
            lengths = torch.minimum(lengths, self.lengths.to(lengths))
        longest = int(lengths.max()) if len(lengths) else 0
        return Proposal(
            tokens=self.tokens[:, :longest],
            probs=None if self.probs is None else self.probs[:, :longest],
            confidence=self.confidence,
            lengths=lengths,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Acceptance:
    """What verification made of a proposal.

    Attributes:
        accepted: drafts kept of every sequence.
        next_token: the token behind them: a correction, or a bonus if all were kept.
        expected: chance that each draft would be kept, given those before it:
            `sum(min(target, draft))`; 0 behind a sequence's length.
    """

    accepted: Int64[Tensor, "batch"]
    next_token: Int64[Tensor, "batch"]
    expected: Float[Tensor, "batch block"]


def verify(
    target_probs: Float[Tensor, "batch rows vocab"], proposal: Proposal, *, noise: Noise
) -> Acceptance:
    """Accept the longest draft prefix that leaves the target's distribution unchanged.

    A draft is kept with probability `min(1, target/draft)`; the first that is not is replaced by a
    draw from the positive part of target minus draft; if all are kept, one more token is drawn.

    Args:
        target_probs: one row per draft and one more behind them; the distributions after
            temperature and truncation, the same that were applied to the drafts.
        proposal: at least 0 drafts.
        noise: uniform numbers of this generation.

    Raises:
        ValueError: if rows, vocabularies or lengths do not fit together, naming both numbers.

    Source: DSpark paper, section 2.1; DeepSpec deepspec/utils/sampling.py.
    """
    _check(target_probs, proposal)
    batch, block = proposal.tokens.shape
    device = target_probs.device
    lengths = _lengths(proposal, device)
    ratio, expected = _chances(target_probs[:, :block], proposal)
    inside = torch.arange(block, device=device) < lengths[:, None]
    uniform = noise.uniform("accept", block, used=lengths).to(device)
    kept = (uniform < ratio) & inside
    accepted = kept.int().cumprod(-1).sum(-1)
    source = target_probs[torch.arange(batch, device=device), accepted]
    rejected = accepted < lengths
    if bool(rejected.any()):
        residual = _residual(source, proposal, accepted.clamp(max=block - 1))
        source = torch.where(rejected[:, None], residual, source)
    uniform = noise.uniform("correct", 1)[:, 0].to(device)
    return Acceptance(
        accepted=accepted, next_token=draw(source, uniform), expected=expected * inside
    )


def verify_greedy(logits: Float[Tensor, "batch rows vocab"], proposal: Proposal) -> Acceptance:
    """What `verify` gives for one-hot rows and certain drafts, without rows or draws.

    Args:
        logits: the target's, one row per draft and one more behind them.
        proposal: drafts that were each certain.

    Raises:
        ValueError: as `verify`, or if the drafts were drawn.

    Source: as `verify`, at temperature 0.
    """
    _check(logits, proposal)
    if proposal.probs is not None:
        raise ValueError("verify_greedy takes certain drafts; Proposal.probs is given, use verify")
    block = proposal.tokens.shape[1]
    best = logits.argmax(-1)
    inside = torch.arange(block, device=best.device) < _lengths(proposal, best.device)[:, None]
    kept = (proposal.tokens == best[:, :block]) & inside
    accepted = kept.int().cumprod(-1).sum(-1)
    return Acceptance(
        accepted=accepted,
        next_token=best.gather(1, accepted[:, None])[:, 0],
        expected=kept.float(),
    )


def _lengths(proposal: Proposal, device: torch.device) -> Tensor:
    """How many drafts of every sequence are to be verified."""
    batch, block = proposal.tokens.shape
    lengths = torch.full((batch,), block) if proposal.lengths is None else proposal.lengths
    return lengths.to(device)


def _chances(ahead: Tensor, proposal: Proposal) -> tuple[Tensor, Tensor]:
    """Ratio of target to draft at the drafted tokens; chance that a draw would be kept."""
    chosen = ahead.gather(-1, proposal.tokens[..., None])[..., 0]
    if proposal.probs is None:
        return chosen, chosen
    own = proposal.probs.gather(-1, proposal.tokens[..., None])[..., 0]
    expected = torch.minimum(ahead, proposal.probs.to(ahead)).sum(-1)
    return chosen / own.clamp_min(SMALLEST), expected


def _residual(row: Tensor, proposal: Proposal, at: Tensor) -> Tensor:
    """Positive part of target minus draft at the first rejected slot; the target where it is 0."""
    rows = torch.arange(len(row), device=row.device)
    if proposal.probs is None:
        residual = row.scatter(-1, proposal.tokens[rows, at][:, None], 0.0)
    else:
        residual = (row - proposal.probs[rows, at].to(row)).clamp_min(0)
    empty = residual.sum(-1, keepdim=True) < SMALLEST
    return torch.where(empty, row, residual)


def _check(target_probs: Tensor, proposal: Proposal) -> None:
    batch, block = proposal.tokens.shape
    if target_probs.shape[:2] != (batch, block + 1):
        raise ValueError(
            f"verify needs one target row per draft and one more, ({batch}, {block + 1}) for "
            f"drafts of shape ({batch}, {block}); got {tuple(target_probs.shape[:2])}"
        )
    if proposal.probs is not None and proposal.probs.shape[-1] != target_probs.shape[-1]:
        raise ValueError(
            "drafter and target must share a vocabulary; the drafter's distributions have "
            f"{proposal.probs.shape[-1]} entries, the target's {target_probs.shape[-1]}"
        )
    lengths = proposal.lengths
    if lengths is None:
        return
    outside = (lengths < 0) | (lengths > block)
    if lengths.shape != (batch,) or bool(outside.any()):
        raise ValueError(
            f"Proposal.lengths must be {batch} numbers in 0..{block}, the drafts there are; got "
            f"{lengths.tolist()}"
        )
