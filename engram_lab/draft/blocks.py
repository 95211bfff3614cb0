"""Where blocks stand in a text: anchors, slots, labels, and what a slot may see in training."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from engram_lab.draft.config import DraftConfig

UNSEEN = -1e9  # finite, so that a row which sees nothing is no NaN; such rows are never read


def anchor_candidates(
    loss_mask: Bool[Tensor, "batch seq"], document_ids: Int64[Tensor, "batch seq"] | None = None
) -> Bool[Tensor, "batch shorter"]:
    """Positions an anchor may stand at: it and the token behind it are the target's own.

    The first token of an answer comes from prefill: it is the first anchor, never a draft.

    Args:
        loss_mask: True at tokens the target wrote.
        document_ids: packed documents; both tokens must be of one.

    Source: DeepSpec modeling/dspark/common.py.
    """
    found = loss_mask[:, :-1] & loss_mask[:, 1:]
    if document_ids is not None:
        found = found & (document_ids[:, :-1] == document_ids[:, 1:])
    return found


def sample_anchors(
    candidates: Bool[Tensor, "batch shorter"], count: int, generator: torch.Generator
) -> tuple[Int64[Tensor, "batch anchor"], Bool[Tensor, "batch anchor"]]:
    """Up to `count` candidates of every row without repeat, rising; False marks fillers at 0.

    Raises:
        ValueError: if `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"sample_anchors needs a count of at least 1; got {count}")
    scores = torch.rand(candidates.shape, generator=generator)
    scores = scores.masked_fill(~candidates.cpu(), 2.0)
    taken = min(count, candidates.shape[1])
    best, chosen = scores.topk(taken, dim=1, largest=False)
    chosen = chosen.masked_fill(best >= 2, candidates.shape[1]).sort(dim=1).values
    keep = chosen < candidates.shape[1]
    chosen = chosen.masked_fill(~keep, 0)
    pad = (0, count - taken)
    chosen, keep = torch.nn.functional.pad(chosen, pad), torch.nn.functional.pad(keep, pad)
    return chosen.to(candidates.device), keep.to(candidates.device)


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """What the drafts of blocks should be.

    Attributes:
        tokens: the token each draft should be.
        rows: position whose next-token distribution of the target belongs to each draft.
        supervised: whether a draft counts; if one does not, none behind it does.
    """

    tokens: Int64[Tensor, "batch anchor block"]
    rows: Int64[Tensor, "batch anchor block"]
    supervised: Bool[Tensor, "batch anchor block"]


def block_labels(
    token_ids: Int64[Tensor, "batch seq"],
    loss_mask: Bool[Tensor, "batch seq"],
    anchors: Int64[Tensor, "batch anchor"],
    keep: Bool[Tensor, "batch anchor"],
    block_size: int,
    document_ids: Int64[Tensor, "batch seq"] | None = None,
) -> Labels:
    """Labels of blocks: draft k (from 0) of an anchor at p is the token at p + k + 1.

    Source: DeepSpec modeling/dspark/common.py (build_eval_mask).
    """
    seq = token_ids.shape[1]
    wanted = anchors[..., None] + torch.arange(1, block_size + 1, device=anchors.device)
    inside = wanted < seq
    clamped = torch.where(keep[..., None], wanted.clamp_max(seq - 1), 0)
    supervised = inside & keep[..., None] & _at(loss_mask, clamped)
    if document_ids is not None:
        supervised &= _at(document_ids, clamped) == document_ids.gather(1, anchors)[..., None]
    return Labels(
        tokens=_at(token_ids, clamped),
        rows=(clamped - 1).clamp_min(0),
        supervised=supervised.int().cumprod(-1).bool(),
    )


def slot_tokens(
    token_ids: Int64[Tensor, "batch seq"],
    anchors: Int64[Tensor, "batch anchor"],
    config: DraftConfig,
) -> Int64[Tensor, "batch slots"]:
    """Input ids of the slots, block after block: the anchor, then masks."""
    tokens = anchors.new_full((*anchors.shape, config.slots), config.mask_token_id)
    tokens[..., 0] = token_ids.gather(1, anchors)
    return tokens.flatten(1)


def slot_positions(
    anchors: Int64[Tensor, "batch anchor"], config: DraftConfig
) -> Int64[Tensor, "batch slots"]:
    """Rotary positions of the slots: slot k of an anchor at p stands at p + k."""
    return (anchors[..., None] + torch.arange(config.slots, device=anchors.device)).flatten(1)


def training_bias(
    anchors: Int64[Tensor, "batch anchor"],
    keep: Bool[Tensor, "batch anchor"],
    config: DraftConfig,
    seq: int,
    document_ids: Int64[Tensor, "batch seq"] | None = None,
) -> Float[Tensor, "batch 1 slots keys"]:
    """Bias of the scores: a slot sees context before its anchor, and its own block.

    The anchor's own state does not exist yet when a block is drafted, so it is hidden here as well.
    """
    return (~visible(anchors, keep, config, seq, document_ids)).float()[:, None] * UNSEEN


def visible(
    anchors: Int64[Tensor, "batch anchor"],
    keep: Bool[Tensor, "batch anchor"],
    config: DraftConfig,
    seq: int,
    document_ids: Int64[Tensor, "batch seq"] | None = None,
) -> Bool[Tensor, "batch slots keys"]:
    """Which of `seq` context rows, then of all slots, a slot may see.

    Source: DeepSpec modeling/dspark/common.py (create_dspark_attention_mask).
    """
    device, slots = anchors.device, config.slots
    positions = torch.arange(seq, device=device)
    context = positions < anchors[..., None]
    if config.sliding_window is not None:
        context &= positions >= anchors[..., None] - config.sliding_window
    if document_ids is not None:
        context &= document_ids[:, None] == document_ids.gather(1, anchors)[..., None]
    inside = torch.ones(slots, slots, dtype=torch.bool, device=device)
    inside = inside.tril() if config.causal_block else inside
    count = anchors.shape[1]
    own = torch.block_diag(*[inside] * count)
    context = context.repeat_interleave(slots, dim=1)
    allowed = torch.cat([context, own.expand(len(anchors), -1, -1)], dim=-1)
    return allowed & keep.repeat_interleave(slots, dim=1)[..., None]


def _at(values: Tensor, positions: Int64[Tensor, "batch anchor block"]) -> Tensor:
    return values.gather(1, positions.flatten(1)).view(positions.shape)
