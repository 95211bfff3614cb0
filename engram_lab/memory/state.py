"""MemoryState: what one decoding remembers, and MemoryContext: what one pass knows beside its ids.

A decoding keeps the canonical ids of every sequence by absolute position, never a ring of the last
few, so that writing at a position is the rewind.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.history import History, MemoryContext, documents_of, live_positions
from engram_lab.memory.tail import ConvTail

__all__ = ["MemoryContext", "MemoryState"]


class MemoryState:
    """What one decoding remembers: every sequence's ids and every layer's convolution tail.

    The caller extends it once per forward pass, before the layers read it. It belongs to a
    decoding, never to a model. Sequences may stand at different lengths.
    """

    def __init__(self, config: EngramConfig, *, rewind: int = 16):
        """Empty state; the first `extend` fixes the number of sequences.

        Args:
            rewind: most positions `crop` can take back at once without recomputing (the longest
                draft), where the memory has a convolution; without one any rewind is exact.

        Raises:
            ValueError: if `rewind` is negative.
        """
        if rewind < 0:
            raise ValueError(f"MemoryState.rewind must be at least 0; got {rewind}")
        self.config, self.rewind = config, rewind
        self._length: Tensor | None = None
        self._chunk = 0
        self._masked = self._has_documents = False
        self._cells: dict[str, Tensor] = {}
        self._tails: dict[int, ConvTail] = {}

    @property
    def length(self) -> Int64[Tensor, "batch"]:
        """Positions remembered per sequence, on the CPU; empty before the first `extend`."""
        return _counts(0) if self._length is None else self._length.clone()

    @property
    def canonical_ids(self) -> Int64[Tensor, "batch seq"]:
        """Ids by absolute position, -1 where a position is dead or beyond its sequence."""
        if self._length is None:
            return torch.zeros(0, 0, dtype=torch.int64)
        ids, live = self._cells["ids"], self._cells["live"]
        inside = torch.arange(ids.shape[1], device="cpu")[None] < self._length[:, None]
        return torch.where(live & inside.to(ids.device), ids, -1)[:, : self._longest()]

    def extend(
        self, canonical_ids: Int64[Tensor, "batch seq"], context: MemoryContext | None = None
    ) -> None:
        """Append a chunk to every sequence, each at its own length.

        Raises:
            ValueError: if the number of sequences changes, or mask or documents have another shape
                than the ids.
        """
        context = context or MemoryContext()
        live = live_positions(canonical_ids, context)
        documents = documents_of(canonical_ids, context)
        batch, seq = canonical_ids.shape
        if self._length is None:
            self._length = _counts(batch)
        if len(self._length) != batch:
            raise ValueError(
                f"MemoryState must be extended by as many sequences as it holds "
                f"({len(self._length)}); got {batch}. Use reorder, repeat or select to change "
                "them, or a fresh state."
            )
        self._reserve(self._longest() + seq, canonical_ids)
        self._masked |= live is not None
        self._has_documents |= documents is not None
        if live is None:
            live = torch.ones_like(canonical_ids, dtype=torch.bool)
        if documents is None:
            documents = self._last_document().expand(-1, seq)
        positions = self._positions(0, seq).to(canonical_ids.device)
        for name, values in (("ids", canonical_ids), ("live", live), ("documents", documents)):
            self._cells[name].scatter_(1, positions, values)
        self._length, self._chunk = self._length + seq, seq

    def history(self, seq: int, back: int) -> History:
        """The last `seq` positions of every sequence behind `back` earlier ones.

        Raises:
            ValueError: if the last `extend` did not append `seq` positions.
        """
        if seq != self._chunk or self._length is None:
            raise ValueError(
                f"MemoryState must be extended by the chunk that is passed ({seq} positions) "
                f"before a layer reads it; the last extend appended {self._chunk}"
            )
        positions = self._positions(-seq - back, 0).to(self._cells["ids"].device)
        cells = {name: cell.gather(1, positions.clamp_min(0)) for name, cell in self._cells.items()}
        return History(
            ids=cells["ids"],
            exists=positions >= 0,
            live=cells["live"] if self._masked else None,
            documents=cells["documents"] if self._has_documents else None,
            back=back,
        )

    def tail_window(
        self, layer_id: int, values: Float[Tensor, "batch seq *channels"]
    ) -> Float[Tensor, "batch window *channels"]:
        """Inputs of a layer's convolution behind the `conv_reach` before the chunk; remembers them.

        Raises:
            ValueError: if inputs before the chunk were never seen by this layer, or are no longer
                remembered.
        """
        if layer_id not in self._tails:
            reach = self.config.conv_reach
            self._tails[layer_id] = ConvTail(values, reach=reach, rewind=self.rewind)
        return self._tails[layer_id].window(values, self._length - values.shape[1])

    def crop(self, length: int | Int64[Tensor, "batch"]) -> None:
        """Forget positions from `length` on; a negative int forgets the last so many.

        Raises:
            ValueError: if a convolution tail no longer holds what lies before the new end.
        """
        if self._length is None:
            return
        wanted = torch.as_tensor(length, dtype=torch.int64, device="cpu")
        if wanted.dim() == 0:
            wanted = wanted + self._length if wanted < 0 else wanted.expand(len(self._length))
        wanted = torch.minimum(wanted.clamp_min(0), self._length)
        for tail in self._tails.values():
            tail.check_rewind(wanted, self._length)
        for tail in self._tails.values():
            tail.crop(wanted)
        self._length, self._chunk = wanted, 0

    def reorder(self, index: Int64[Tensor, "kept"]) -> None:
        """Let sequence i continue sequence `index[i]`."""
        if self._length is None:
            return
        self._length = self._length[index.cpu()]
        for name, cell in self._cells.items():
            self._cells[name] = cell.index_select(0, index.to(cell.device))
        for tail in self._tails.values():
            tail.reorder(index)

    def select(self, index: Int64[Tensor, "kept"]) -> None:
        """Keep only the sequences `index`, in that order."""
        self.reorder(index)

    def repeat(self, times: int) -> None:
        """Repeat every sequence `times` times in place."""
        if self._length is not None:
            rows = torch.arange(len(self._length), device="cpu")
            self.reorder(rows.repeat_interleave(times))

    def copy(self) -> "MemoryState":
        """An independent state with the same contents, to go on from one prefix in two ways."""
        twin = MemoryState(self.config, rewind=self.rewind)
        twin.__dict__.update(self.__dict__)
        twin._cells = {name: cell.clone() for name, cell in self._cells.items()}
        twin._tails = {layer: tail.copy() for layer, tail in self._tails.items()}
        return twin

    def _longest(self) -> int:
        return max(self._length.tolist(), default=0)

    def _positions(self, first: int, end: int) -> Tensor:
        """Positions from `first` up to `end`, counted from the end of each sequence."""
        return self._length[:, None] + torch.arange(first, end, device="cpu")

    def _last_document(self) -> Tensor:
        cell = self._cells["documents"]
        last = (self._length - 1).to(cell.device)[:, None]
        return torch.where(last >= 0, cell.gather(1, last.clamp_min(0)), 0)

    def _reserve(self, length: int, like: Tensor) -> None:
        """Make room for `length` positions per sequence."""
        have = self._cells["ids"].shape[1] if self._cells else 0
        if have >= max(length, 1):
            return
        room = max(length, 2 * have, 64)
        fresh = {
            "ids": like.new_zeros(like.shape[0], room),
            "live": like.new_zeros(like.shape[0], room, dtype=torch.bool),
            "documents": like.new_zeros(like.shape[0], room),
        }
        for name, cell in self._cells.items():
            fresh[name][:, :have] = cell
        self._cells = fresh


def _counts(batch: int) -> Tensor:
    return torch.zeros(batch, dtype=torch.int64, device="cpu")
