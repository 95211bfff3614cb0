"""What the training loop asks of a drafter: batches of texts, read by the target when needed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engram_lab.draft.target import Target
from engram_lab.training.config import TrainConfig
from engram_lab.training.draft_data import Answers
from engram_lab.training.draft_loss import DraftBatch, DraftLossFunction
from engram_lab.training.objective import Share


class DraftObjective:
    """Batches of texts for the loop, and the drafter's loss on them.

    Args:
        target: frozen.
        answers: the texts.
        loss: what the drafter is trained for.
        train: sizes of the batch and its parts.
        seed: of the order of texts and of the anchors.
    """

    def __init__(
        self,
        target: Target,
        answers: Answers,
        loss: DraftLossFunction,
        train: TrainConfig,
        *,
        seed: int,
    ):
        self.target, self.answers, self.loss_of = target, answers, loss
        self.train, self.seed = train, seed
        self._terms: dict[str, Tensor] = {}

    def share(self, step: int, process: int = 0, processes: int = 1) -> Share:
        """Texts of update `step`; every pass over them has an order of its own."""
        size, rows = self.train.batch_size, len(self.answers.token_ids)
        pieces = self.train.micro_batches * processes
        taken = np.arange(step * size, (step + 1) * size)
        chosen = [
            self._order(int(epoch), rows)[i] for epoch, i in zip(*divmod(taken, rows), strict=True)
        ]
        index = torch.tensor(np.array(chosen))
        batch = [
            (
                DraftBatch(
                    token_ids=self.answers.token_ids[part], loss_mask=self.answers.loss_mask[part]
                )
            )
            for part in index.chunk(pieces)
        ]
        first = process * self.train.micro_batches
        tokens = int(self.answers.token_ids[index].numel())
        parts = [
            _Part(batch=part, seed=(self.seed * 1_000_003 + step) * 64 + number)
            for number, part in enumerate(batch)
        ][first : first + self.train.micro_batches]
        return Share(parts=parts, predicted=tokens, tokens=tokens, rows=size)

    def loss(self, model: nn.Module, part: "_Part", share: Share) -> tuple[Tensor, Tensor]:
        """Loss of a part, as a share of the batch."""
        weight = len(part.batch.token_ids) / share.rows
        generator = torch.Generator().manual_seed(part.seed % 2**63)
        with torch.no_grad():
            read = self.target.read(part.batch.token_ids)
        found = self.loss_of(model, read, part.batch, generator)
        return found.total * weight, found.total.detach() * weight

    def _order(self, epoch: int, rows: int) -> np.ndarray:
        return np.random.default_rng([self.seed, epoch, 11]).permutation(rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """A micro-batch and the seed of its anchors."""

    batch: DraftBatch
    seed: int

    def to(self, device: Any) -> "_Part":
        """The part on a device."""
        return _Part(batch=self.batch.to(device), seed=self.seed)
