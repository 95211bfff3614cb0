"""`ContextCache`: a drafter's keys and values of the target's states, by absolute position.

Only context lives here. The slots of a block are never stored, so there is nothing to crop.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

KeysValues = tuple[Tensor, Tensor]


class ContextCache:
    """Keys and values of every draft block for a batch of unequal lengths.

    Attributes:
        lengths: context rows of every sequence, on the CPU: those of positions before its anchor.
    """

    def __init__(self, layers: int, batch: int):
        """Empty.

        Args:
            layers: blocks of the drafter.
            batch: sequences.
        """
        self.lengths: Int64[Tensor, batch] = torch.zeros(batch, dtype=torch.int64)
        self._layers: list[KeysValues | None] = [None] * layers

    @property
    def even(self) -> bool:
        """Whether all sequences have one length."""
        return bool((self.lengths == self.lengths[0]).all()) if len(self.lengths) else True

    @property
    def total(self) -> int:
        """Rows of the longest sequence."""
        return int(self.lengths.max()) if len(self.lengths) else 0

    def positions(self, count: int) -> Int64[Tensor, "rows count"]:
        """Positions that the next `count` rows will have; one row where all are alike."""
        starts = self.lengths[:1] if self.even else self.lengths
        return starts[:, None] + torch.arange(count)

    def write(
        self,
        layer: int,
        key: Float[Tensor, "batch head seq size"],
        value: Float[Tensor, "batch head seq size"],
    ) -> None:
        """Put rows behind those of every sequence; `extend` then says how many of them count."""
        seq = key.shape[2]
        self._reserve(layer, self.total + seq, key)
        keys, values = self._layers[layer]
        if self.even:
            start = self.total
            keys[:, :, start : start + seq] = key
            values[:, :, start : start + seq] = value
            return
        index = (self.lengths[:, None] + torch.arange(seq)).to(key.device)[:, None, :, None]
        index = index.expand(-1, key.shape[1], -1, key.shape[3])
        keys.scatter_(2, index, key)
        values.scatter_(2, index, value)

    def extend(self, counts: Int64[Tensor, "batch"]) -> None:
        """Count the first `counts` of the rows just written."""
        self.lengths = self.lengths + counts.cpu()

    def read(self, layer: int, first: int = 0) -> KeysValues:
        """Keys and values of positions from `first` to the longest sequence's last."""
        keys, values = self._layers[layer]
        return keys[:, :, first : self.total], values[:, :, first : self.total]

    def select(self, rows: list[int]) -> None:
        """Keep only these sequences."""
        index = torch.tensor(rows, dtype=torch.int64)
        self.lengths = self.lengths[index]
        for layer, pair in enumerate(self._layers):
            if pair is not None:
                on = index.to(pair[0].device)
                self._layers[layer] = (pair[0].index_select(0, on), pair[1].index_select(0, on))

    def _reserve(self, layer: int, length: int, like: Tensor) -> None:
        pair = self._layers[layer]
        have = pair[0].shape[2] if pair else 0
        if have >= length:
            return
        room = max(length, 2 * have, 64)
        fresh = tuple(
            like.new_zeros(like.shape[0], like.shape[1], room, like.shape[3]) for _ in range(2)
        )
        if pair:
            for new, old in zip(fresh, pair, strict=True):
                new[:, :, :have] = old
        self._layers[layer] = fresh
