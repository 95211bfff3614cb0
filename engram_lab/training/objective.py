"""What is learned: the next token of packed documents, in parts that add up to one batch."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from engram_lab.model.loss import IGNORED_LABEL, shifted_labels
from engram_lab.tokens.corpus import Batch, Documents, PackedDataset
from engram_lab.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part of one update that this process computes.

    Attributes:
        parts: micro-batches, in order; each goes to `Objective.loss` with this share.
        predicted: tokens predicted in this update, over all micro-batches and processes.
        tokens: token positions read in this update, over all micro-batches and processes.
        rows: rows of the update, over all micro-batches and processes.
    """

    parts: list[Any]
    predicted: int
    tokens: int
    rows: int


@runtime_checkable
class Objective(Protocol):
    """What the loop trains for; another kind of model brings another one."""

    def share(self, step: int, process: int, processes: int) -> Share:
        """What process `process` of `processes` computes in update `step`."""
        ...

    def loss(self, model: nn.Module, part: Any, share: Share) -> tuple[Tensor, Tensor]:
        """Loss to differentiate and loss to report; both add up to the batch's over all parts."""
        ...


class NextToken:
    """Next-token prediction on packed documents.

    Args:
        documents: what to train on.
        train: sizes of the batch and its parts.
        seed: of the order of batches.
    """

    def __init__(self, documents: Documents, train: TrainConfig, seed: int):
        self.dataset = PackedDataset(documents, train.seq_len, train.batch_size, seed)
        self.micro_batches = train.micro_batches

    def share(self, step: int, process: int = 0, processes: int = 1) -> Share:
        """Rows of update `step` for one process, cut into micro-batches.

        Raises:
            ValueError: if the rows cannot be dealt out evenly.
        """
        batch = self.dataset.batch(step)
        rows = len(batch.input_ids)
        pieces = self.micro_batches * processes
        if rows % pieces:
            raise ValueError(
                f"TrainConfig.batch_size must be a multiple of micro_batches x processes "
                f"({self.micro_batches} x {processes}); got {rows}"
            )
        size = rows // pieces
        first = process * self.micro_batches
        parts = [
            _rows(batch, size * piece, size) for piece in range(first, first + self.micro_batches)
        ]
        labels = shifted_labels(batch.input_ids, batch.document_ids)
        return Share(
            parts=parts,
            predicted=int((labels != IGNORED_LABEL).sum()),
            tokens=batch.input_ids.numel(),
            rows=rows,
        )

    def loss(self, model: nn.Module, part: Batch, share: Share) -> tuple[Tensor, Tensor]:
        """Cross-entropy as a share of the batch's mean; balance is differentiated, not reported."""
        output = model(
            input_ids=part.input_ids,
            labels=part.input_ids,
            document_ids=part.document_ids,
            num_items_in_batch=share.predicted,
        )
        balance = getattr(output, "balance_loss", None)
        if balance is None:
            return output.loss, output.loss
        return output.loss + balance * (len(part.input_ids) / share.rows), output.loss


def _rows(batch: Batch, first: int, count: int) -> Batch:
    return Batch(
        input_ids=batch.input_ids[first : first + count],
        document_ids=batch.document_ids[first : first + count],
    )
