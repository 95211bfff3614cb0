"""Losses on held-out documents: by document, by token class, each document read alone."""

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from engram_lab.tokens.corpus import Batch, Documents, padded_batches

ALL = "all"


@torch.no_grad()
def document_losses(
    model: nn.Module, documents: Documents, *, seq_len: int = 128, batch_size: int = 16
) -> pd.DataFrame:
    """Mean cross-entropy of every document, over all its tokens and by token class.

    Each document has rows of its own, so that no other document helps or disturbs; a longer one is
    read in parts of `seq_len` ids which share one id. Every token but a document's first is
    predicted once. The mean of a set of documents is the mean of `loss_nats` weighted by
    `eval_tokens`. The model computes in its own precision without autocast, losses are fp32, and
    its training mode is left as found.

    Args:
        seq_len: longest row.
        batch_size: rows per forward pass; the losses do not depend on it, except under the
            neighbour control (`EngramConfig.addresses="neighbour"`), where a row reads the memory
            of the next.

    Returns:
        Columns document, token_class (the documents' classes, and "all"), loss_nats (mean over
        tokens) and eval_tokens. A class that a document does not have has no row. Pieces of one
        text count as one document, since they are not independent.

    Raises:
        ValueError: if no document has a token to predict, or the neighbour control meets a single
            row.
    """
    sums = np.zeros((len(documents), len(documents.class_names) or 1))
    counts = np.zeros_like(sums, dtype=np.int64)
    device = next(model.parameters()).device
    neighbour = _reads_neighbour(model)
    if neighbour and batch_size < 2:
        raise ValueError(
            "the neighbour control reads the next row of a batch, so batch_size must be at least "
            f"2; got {batch_size}"
        )
    was_training = model.training
    model.eval()
    try:
        previous = None
        for batch in padded_batches(documents, seq_len, batch_size):
            rows = len(batch.input_ids)
            if neighbour and rows == 1:
                batch = _with_company(batch, previous)
            losses = _token_losses(model, batch.to(device))[:rows].cpu().double().numpy()
            _add(batch, losses, sums, counts)
            previous = batch
    finally:
        model.train(was_training)
    return _frame(*_by_text(sums, counts, documents.sources), documents.class_names)


def mean_losses(frame: pd.DataFrame) -> pd.Series:
    """Loss of each token class over all documents of such a frame, weighted by tokens."""
    weighted = frame.assign(total=frame["loss_nats"] * frame["eval_tokens"])
    sums = weighted.groupby("token_class", sort=False)[["total", "eval_tokens"]].sum()
    return (sums["total"] / sums["eval_tokens"]).rename("loss_nats")


def _token_losses(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Loss of the token at every position but the first of a row, [batch seq-1]."""
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    flat = F.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), batch.input_ids[:, 1:].flatten(), reduction="none"
    )
    return flat.view(batch.input_ids[:, 1:].shape)


def _add(batch: Batch, losses: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> None:
    """Add one batch to the sums and counts by document and class."""
    rows = len(losses)
    document = batch.document_ids[:rows, 1:].cpu().numpy()
    classes = np.zeros_like(document)
    if batch.token_classes is not None:
        classes = batch.token_classes[:rows, 1:].cpu().numpy()
    live = document >= 0
    place = (document[live], classes[live])
    np.add.at(sums, place, losses[live])
    np.add.at(counts, place, 1)


def _by_text(
    sums: np.ndarray, counts: np.ndarray, sources: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Sums and counts of whole texts, from those of their pieces."""
    if sources is None:
        return sums, counts
    _, text = np.unique(sources, return_inverse=True)
    whole = np.zeros((text.max() + 1, sums.shape[1]))
    count = np.zeros(whole.shape, dtype=counts.dtype)
    np.add.at(whole, text, sums)
    np.add.at(count, text, counts)
    return whole, count


def _frame(sums: np.ndarray, counts: np.ndarray, class_names: tuple[str, ...]) -> pd.DataFrame:
    if not counts.any():
        raise ValueError("document_losses needs a document of at least 2 tokens; found none")
    names = [ALL]
    sums, counts = [sums.sum(1, keepdims=True), sums], [counts.sum(1, keepdims=True), counts]
    if class_names:
        names += class_names
    else:
        sums, counts = sums[:1], counts[:1]
    sums, counts = np.concatenate(sums, 1), np.concatenate(counts, 1)
    document, column = counts.nonzero()
    return pd.DataFrame(
        {
            "document": document,
            "token_class": np.array(names)[column],
            "loss_nats": sums[document, column] / counts[document, column],
            "eval_tokens": counts[document, column],
        }
    )


def _reads_neighbour(model: nn.Module) -> bool:
    memory = getattr(getattr(model, "config", None), "engram", None)
    return getattr(memory, "addresses", "own") == "neighbour"


def _with_company(batch: Batch, previous: Batch | None) -> Batch:
    """A single last row and, beside it, the first row of the batch before, cut or padded to fit."""
    if previous is None:
        raise ValueError("the neighbour control needs at least 2 rows to evaluate; got 1 document")
    width = batch.input_ids.shape[1]

    def beside(name: str, value: torch.Tensor) -> torch.Tensor:
        other = getattr(previous, name)[:1, :width]
        padding = -1 if name == "document_ids" else 0
        return torch.cat([value, F.pad(other, (0, width - other.shape[1]), value=padding)])

    fields = vars(batch).items()
    return Batch(**{n: None if value is None else beside(n, value) for n, value in fields})
