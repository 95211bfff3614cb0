"""Next-token cross-entropy that knows packed documents and padding, and the logits it needs."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

IGNORED_LABEL = -100


def shifted_labels(
    labels: Int64[Tensor, "batch seq"], document_ids: Int64[Tensor, "batch seq"] | None = None
) -> Int64[Tensor, "batch seq"]:
    """What each position has to predict: the next label, or -100 where there is none.

    The last position of a row and of a document has nothing to predict: the next document is not
    its continuation.
    """
    shifted = torch.full_like(labels, IGNORED_LABEL)
    shifted[:, :-1] = labels[:, 1:]
    if document_ids is not None:
        shifted[:, :-1].masked_fill_(document_ids[:, 1:] != document_ids[:, :-1], IGNORED_LABEL)
    return shifted


def last_positions(
    hidden: Float[Tensor, "batch seq hidden"], count: int
) -> Float[Tensor, "batch kept hidden"]:
    """The last `count` positions, those whose logits are wanted; 0 stands for all of them.

    Raises:
        ValueError: if `count` is negative.
    """
    if count < 0:
        raise ValueError(f"logits_to_keep must be at least 0 (0 for all positions); got {count}")
    return hidden[:, -count:] if count else hidden


def next_token_loss(
    logits: Float[Tensor, "batch kept vocab"],
    labels: Int64[Tensor, "batch seq"],
    document_ids: Int64[Tensor, "batch seq"] | None = None,
    *,
    divisor: int | Tensor | None = None,
) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats over labelled tokens; sum over `divisor` where one is given.

    Args:
        labels: unshifted, like the input ids; -100 where no loss is wanted.
        divisor: number of labelled tokens over all micro-batches of a step, so that accumulated
            gradients equal those of one large batch.

    Raises:
        ValueError: if logits were kept for the last positions only.
    """
    if logits.shape[1] != labels.shape[1]:
        raise ValueError(
            f"labels need logits at all {labels.shape[1]} positions; got {logits.shape[1]}. Leave "
            f"logits_to_keep at 0."
        )
    targets = shifted_labels(labels, document_ids).flatten()
    reduction = "mean" if divisor is None else "sum"
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), targets, ignore_index=IGNORED_LABEL, reduction=reduction
    )
    return loss if divisor is None else loss / divisor
