"""`TargetCache`: what a target remembers of sequences that stand at different lengths.

A round of drafting appends as many positions to every sequence and keeps another number of each.
Keys and values are kept aligned at the end of the buffer, so that a mask and explicit positions
tell any model what is there; sequences of one length need neither.
"""

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from engram_lab.model.cache import EngramCache
from engram_lab.model.modeling import EngramLM

PLAIN = (DynamicLayer, DynamicSlidingWindowLayer)
"""What layers of a target may keep: keys and values, in a window or not."""


class TargetCache:
    """Keys, values and memory history of a batch.

    Attributes:
        states: the cache that the model's forward takes.
        lengths: positions remembered of every sequence, on the CPU.
    """

    def __init__(self, states: Cache, batch: int):
        self.states = states
        self.lengths: Int64[Tensor, batch] = torch.zeros(batch, dtype=torch.int64)
        self._appended = 0

    @classmethod
    def of(cls, model: nn.Module, batch: int, *, rewind: int) -> "TargetCache":
        """An empty cache for a model.

        Args:
            model: ours or one of `transformers`; every layer must keep all its positions, so
                windows are left to the model's mask.
            batch: sequences.
            rewind: most positions one pass appends and takes back.

        Raises:
            ValueError: if a layer keeps anything else, which could not be taken back.
        """
        if isinstance(model, EngramLM):
            return cls(EngramCache(model.config, rewind=rewind), batch)
        if hasattr(model, "config"):
            wanted = DynamicCache(config=model.config).layers
            odd = {type(layer).__name__ for layer in wanted} - {kind.__name__ for kind in PLAIN}
            if odd:
                raise ValueError(
                    "drafts are taken back from keys and values of every position; "
                    f"{type(model).__name__} keeps {', '.join(sorted(odd))}. Decode it without "
                    "drafts, or read whole texts with Target.read."
                )
        return cls(DynamicCache(), batch)

    @property
    def batch(self) -> int:
        """Sequences."""
        return len(self.lengths)

    @property
    def total(self) -> int:
        """Positions of the longest sequence."""
        return int(self.lengths.max()) if self.batch else 0

    @property
    def even(self) -> bool:
        """Whether all sequences have one length."""
        return bool((self.lengths == self.lengths[0]).all()) if self.batch else True

    def extended(self, count: int) -> dict[str, Tensor]:
        """Arguments of a forward pass that appends `count` positions to every sequence.

        Raises:
            RuntimeError: if the pass before was not settled by `keep`.
        """
        if self._appended:
            raise RuntimeError(
                f"the cache holds {self._appended} positions of the last pass that were not "
                "settled; call keep(counts) after every pass"
            )
        self._appended = count
        if self.even:
            return {}
        total = self.total
        valid = torch.arange(total) >= total - self.lengths[:, None]
        mask = torch.cat([valid, torch.ones(self.batch, count, dtype=torch.bool)], dim=1)
        positions = self.lengths[:, None] + torch.arange(count)
        device = self.states.layers[0].keys.device
        return {
            "attention_mask": mask.long().to(device),
            "position_ids": positions.to(device),
        }

    def keep(self, counts: Int64[Tensor, "batch"]) -> None:
        """Settle the last pass: keep the first `counts` positions of what it appended.

        Raises:
            ValueError: if a count is negative or above what was appended.
        """
        counts = counts.cpu()
        appended, self._appended = self._appended, 0
        if bool((counts < 0).any()) or bool((counts > appended).any()):
            raise ValueError(
                f"TargetCache.keep must lie in 0..{appended}, what the last pass appended; got "
                f"{counts.tolist()}"
            )
        even, before = self.even, self.total
        self.lengths = self.lengths + counts
        if even and self.even:
            if int(counts[0]) < appended:
                self.states.crop(int(counts[0]) - appended)
            return
        memory = getattr(self.states, "memory", None)
        if memory is not None:
            memory.crop(self.lengths)  # first, since it refuses what it cannot rewind
        # sequence i ends at slot before + counts[i]; its end moves to the end of the new buffer
        slots = torch.arange(self.total) - self.total + (before + counts)[:, None]
        slots = slots.clamp_min(0)
        for layer in self.states.layers:
            layer.keys, layer.values = _at(layer.keys, slots), _at(layer.values, slots)

    def rewind(self, appended: int, counts: Int64[Tensor, "batch"]) -> None:
        """Take back passes that were kept whole, as drafting token by token makes them.

        Args:
            appended: positions that the last passes together gave every sequence.
            counts: how many of them stay, from the first.

        Raises:
            ValueError: if a count is negative or above `appended`.
        """
        self.lengths = self.lengths - appended
        self._appended = appended
        self.keep(counts)

    def select(self, rows: list[int]) -> None:
        """Keep only these sequences."""
        index = torch.tensor(rows, dtype=torch.int64)
        device = self.states.layers[0].keys.device
        self.states.batch_select_indices(index.to(device))
        self.lengths = self.lengths[index]
        longest = self.total
        for layer in self.states.layers:  # drop what only longer sequences needed
            layer.keys = layer.keys[:, :, layer.keys.shape[2] - longest :]
            layer.values = layer.values[:, :, layer.values.shape[2] - longest :]


def _at(values: Tensor, slots: Int64[Tensor, "batch kept"]) -> Tensor:
    """Keys or values, batch head slot size, of other slots in every sequence."""
    index = slots.to(values.device)[:, None, :, None]
    return values.gather(2, index.expand(-1, values.shape[1], -1, values.shape[3]))
