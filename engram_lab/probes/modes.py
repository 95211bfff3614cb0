"""Does a block drafter keep to one mode of reply? Acceptance behind the cues of D9."""

import pandas as pd
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from engram_lab.draft.drafter import Drafter
from engram_lab.draft.target import Target
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.replies import LENGTHS, RepliesConfig, acceptance_of

KNOWLEDGE = {"none": "parallel", "vanilla": "first_order", "gated": "first_order"}
"""What an ideal drafter with each sequential head knows; "rnn" and others know the whole block."""


def mode_frame(
    drafter: Drafter, target: Target, config: RepliesConfig, documents: Documents
) -> pd.DataFrame:
    """Chance that the target keeps a drafter's token behind a cue, given all before it.

    With true tokens before each slot: the mean of `sum(min(target, draft))` over all cues.

    Args:
        drafter: a block drafter of at least 3 drafts.
        target: the model it drafts for.
        config: the D9 language.
        documents: of that language.

    Returns:
        One row per kind ("ask", "tell") and position of the reply, from 1, with columns kind,
        position, acceptance, ideal (what the best drafter of this kind of head could reach) and
        blocks.

    Raises:
        ValueError: if the block is shorter than a reply, or no cue has room behind it.
    """
    longest = max(LENGTHS.values()) - 1
    if drafter.block_size < longest:
        raise ValueError(
            f"a reply has up to {longest} tokens; the drafter's block has {drafter.block_size}"
        )
    ids = torch.tensor(documents.ids, dtype=torch.int64, device=target.device)
    ids = ids.view(len(documents), -1)
    anchors, keep = _cues(ids, config, drafter.block_size)
    if not keep.any():
        raise ValueError("mode_frame found no cue with a whole block behind it; use more documents")
    with torch.no_grad():
        read = target.read(ids)
        drafted = drafter(ids, read.features, anchors, keep)
    ahead = torch.arange(drafter.block_size, device=ids.device)
    rows = (anchors[..., None] + ahead).clamp_max(ids.shape[1] - 1)
    batch = torch.arange(len(ids), device=ids.device)[:, None, None]
    wanted = read.logits.float().softmax(-1)[batch, rows]
    kept = torch.minimum(drafted.logits.float().softmax(-1), wanted).sum(-1)
    head = "none" if drafter.markov_head is None else drafter.config.markov_head_type
    ideal = acceptance_of(config).rename(columns={KNOWLEDGE.get(head, "recurrent"): "ideal"})
    cue = ids.gather(1, anchors)
    measured = [
        _kept(kept[..., row.position - 1], keep, cue, config.token_ranges[row.kind])
        for row in ideal.itertuples()
    ]
    means, blocks = zip(*measured, strict=True)
    frame = ideal[["kind", "position", "ideal"]].assign(blocks=blocks)
    frame.insert(2, "acceptance", means)
    return frame


def _kept(kept: Tensor, keep: Tensor, cue: Tensor, cues: range) -> tuple[float, int]:
    """Mean chance at one slot behind these cues, and how many there are."""
    chosen = keep & (cue >= cues.start) & (cue < cues.stop)
    return float(kept[chosen].mean()), int(chosen.sum())


def _cues(
    ids: Int64[Tensor, "batch seq"], config: RepliesConfig, block: int
) -> tuple[Int64[Tensor, "batch anchor"], Bool[Tensor, "batch anchor"]]:
    """Positions of cues with a whole block behind them; fillers are marked False."""
    ranges = config.token_ranges
    found = (ids >= ranges["ask"].start) & (ids < ranges["tell"].stop)
    found[:, ids.shape[1] - block - 1 :] = False
    found[:, 0] = False  # nothing stands before it
    most = max(1, int(found.sum(1).max()))
    order = found.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    return order, found.gather(1, order)
