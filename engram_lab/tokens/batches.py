"""Batches of any documents: full rows for training, padded rows for evaluation.

`PackedDataset` lays documents end to end and cuts the stream into rows; `padded_batches` gives
every document rows of its own. Both say for each position which document it belongs to.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.tokenizer import PAD_ID


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of token ids for one forward pass.

    Attributes:
        input_ids: token ids, pad ids behind the end of a padded row.
        document_ids: index of each position's document; -1 on padding.
        token_classes: class of each token (0 on padding), where the documents have classes.
        attention_mask: 1 on tokens and 0 on padding; None when no row is padded.
    """

    input_ids: Int64[Tensor, "batch seq"]
    document_ids: Int64[Tensor, "batch seq"]
    token_classes: UInt8[Tensor, "batch seq"] | None = None
    attention_mask: Int64[Tensor, "batch seq"] | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        moved = {
            name: None if value is None else value.to(device) for name, value in vars(self).items()
        }
        return Batch(**moved)


class PackedDataset:
    """Full rows cut from documents laid end to end, in an order that depends on the seed alone.

    Every epoch shuffles the documents, lays them end to end, cuts the stream into rows, and
    shuffles the rows, so that a long document does not fill a batch by itself. The rest of the
    stream that fills no whole batch is left out of that epoch. `batch(step)` is random access: a
    resumed run asks for the step it stopped at, and two arms with one seed see the same batches.

    Attributes:
        documents: what the rows are cut from.
        seq_len: positions per row.
        batch_size: rows per batch.
        seed: seeds every shuffle, together with the epoch.
    """

    def __init__(self, documents: Documents, seq_len: int, batch_size: int, seed: int = 0) -> None:
        """Prepare the epochs; nothing is copied.

        Raises:
            ValueError: if a size is below 1, or the documents hold less than one batch.
        """
        if seq_len < 1 or batch_size < 1:
            raise ValueError(
                f"seq_len and batch_size must be at least 1, got {seq_len} and {batch_size}"
            )
        if documents.token_count < seq_len * batch_size:
            raise ValueError(
                f"documents {documents.name!r} must hold one batch of {batch_size} x {seq_len} ids,"
                f" got {documents.token_count}. Load more tokens or ask for a smaller batch"
            )
        self.documents, self.seq_len, self.batch_size, self.seed = (
            documents,
            seq_len,
            batch_size,
            seed,
        )
        self._epoch = -1

    def __len__(self) -> int:
        """Batches per epoch."""
        return self.documents.token_count // (self.seq_len * self.batch_size)

    def batch(self, step: int) -> Batch:
        """The batch of one training step; steps past the end of an epoch go on in the next.

        Raises:
            ValueError: if the step is negative.
        """
        if step < 0:
            raise ValueError(f"step must be at least 0, got {step}")
        epoch, index = divmod(step, len(self))
        self._shuffle(epoch)
        rows = self._rows[index * self.batch_size : (index + 1) * self.batch_size]
        stream = rows[:, None] * self.seq_len + np.arange(self.seq_len)  # batch seq
        place = np.searchsorted(self._starts, stream, side="right") - 1
        document = self._order[place]
        source = self.documents.offsets[document] + stream - self._starts[place]
        return _batch(self.documents, document, source)

    def _shuffle(self, epoch: int) -> None:
        """Set the order of documents and rows for an epoch, unless it is set already."""
        if epoch == self._epoch:
            return
        generator = np.random.default_rng([self.seed, epoch])
        self._order = generator.permutation(len(self.documents))
        self._starts = np.concatenate([[0], np.cumsum(self.documents.lengths[self._order])[:-1]])
        self._rows = generator.permutation(self.documents.token_count // self.seq_len)
        self._epoch = epoch


def padded_batches(
    documents: Documents, seq_len: int, batch_size: int, *, overlap: int = 1
) -> Iterator[Batch]:
    """Every document in rows of its own, padded on the right, for losses per document.

    A document longer than `seq_len` takes several rows. Each of them repeats the last `overlap` ids
    of the row before; with the default of 1, every id but a document's first is the target of
    exactly one position.

    Args:
        documents: what to lay out.
        seq_len: longest row; a batch is as wide as its longest row.
        batch_size: rows per batch; the last batch may have fewer.
        overlap: ids that a further row repeats, 0 to `seq_len` - 1.

    Raises:
        ValueError: if a size is below 1 or `overlap` out of range.
    """
    if seq_len < 1 or batch_size < 1 or not 0 <= overlap < seq_len:
        raise ValueError(
            "padded_batches needs seq_len >= 1, batch_size >= 1 and 0 <= overlap < seq_len, "
            f"got {seq_len}, {batch_size} and {overlap}"
        )
    stride, lengths = seq_len - overlap, documents.lengths
    row_counts = np.maximum(1, -(-(lengths - overlap) // stride))
    document = np.repeat(np.arange(len(documents)), row_counts)
    first_rows = np.cumsum(row_counts) - row_counts
    begin = (np.arange(len(document)) - first_rows[document]) * stride
    length = np.minimum(seq_len, lengths[document] - begin)
    for first in range(0, len(document), batch_size):
        rows = slice(first, first + batch_size)
        position = np.arange(length[rows].max())
        mask = position < length[rows, None]
        source = documents.offsets[document[rows], None] + begin[rows, None] + position
        yield _batch(documents, np.broadcast_to(document[rows, None], mask.shape), source, mask)


def _batch(
    documents: Documents,
    document: Int64[np.ndarray, "batch seq"],
    source: Int64[np.ndarray, "batch seq"],
    mask: Bool[np.ndarray, "batch seq"] | None = None,
) -> Batch:
    """A batch from each position's place in the flat ids; `mask` is False where it has none."""
    if mask is not None:
        source = np.where(mask, source, 0)
        document = np.where(mask, document, -1)
    ids = documents.ids[source].astype(np.int64)
    classes = None if documents.classes is None else documents.classes[source]
    if mask is not None:
        ids[~mask] = PAD_ID
        if classes is not None:
            classes[~mask] = 0
    return Batch(
        input_ids=torch.from_numpy(ids),
        document_ids=torch.from_numpy(document),
        token_classes=None if classes is None else torch.from_numpy(classes),
        attention_mask=None if mask is None else torch.from_numpy(mask.astype(np.int64)),
    )
