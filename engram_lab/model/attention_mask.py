"""Which keys a query may see: earlier, not padding, of its own document."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def check_padding_mask(
    attention_mask: Tensor | None, batch: int, total: int
) -> Bool[Tensor, "batch total"] | None:
    """The padding mask as booleans, or None where nothing is masked.

    Raises:
        ValueError: if the mask has not one entry per cached and new position.
    """
    if attention_mask is None:
        return None
    if tuple(attention_mask.shape) != (batch, total):
        raise ValueError(
            f"attention_mask must have shape (batch, cached + new positions) = ({batch}, {total}); "
            f"got {tuple(attention_mask.shape)}"
        )
    mask = attention_mask.bool()
    return None if bool(mask.all()) else mask


def attention_bias(
    mask: Bool[Tensor, "batch total"] | None,
    document_ids: Int64[Tensor, "batch total"] | None,
    *,
    seq: int,
    total: int,
    device: torch.device,
) -> Float[Tensor, "rows 1 seq total"] | None:
    """Bias of the scores: 0 where a key may be seen, -inf elsewhere.

    Rows are the newest `seq` of `total` positions.

    None stands for plain causal order. Every position may see itself, so that no row of a softmax
    is empty (the outputs at padding are never read).
    """
    if mask is None and document_ids is None and seq == total:
        return None
    keys = torch.arange(total, device=device)
    queries = keys[total - seq :]
    allowed = (keys <= queries[:, None])[None]  # rows seq total
    if mask is not None:
        allowed = allowed & mask[:, None, :]
    if document_ids is not None:
        allowed = allowed & (document_ids[:, None, :] == document_ids[:, total - seq :, None])
    allowed = allowed | (keys == queries[:, None])
    bias = torch.zeros(allowed.shape, device=device).masked_fill_(~allowed, -torch.inf)
    return bias[:, None]


def several_documents(
    document_ids: Int64[Tensor, "batch seq"] | None,
) -> Int64[Tensor, "batch seq"] | None:
    """The document ids; None where each row holds one document, since causal order is faster."""
    if document_ids is None or bool((document_ids == document_ids[:, :1]).all()):
        return None
    return document_ids
