"""What the memory remembers around a chunk of positions: context of a pass, history of a decoding, look-back.

The look-back is written here once; full passes, cached decoding and storage use it. A decoding keeps the canonical ids
of every sequence by absolute position, never a ring of the last few, so that writing at a position is the rewind.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.tail import ConvTail


@dataclass(frozen=True, kw_only=True)
class MemoryContext:
    """What a pass knows about its positions beside their ids.

    Attributes:
        document_ids: document of each position; None for one document per sequence (in a decoding: the document goes on).
        attention_mask: 0 or False at padding; None for none.
        rows: rows already fetched, by layer id; that layer then reads these instead of its table.
    """

    document_ids: Int64[Tensor, "batch seq"] | None = None
    attention_mask: Tensor | None = None
    rows: Mapping[int, Float[Tensor, "batch seq table row"]] | None = None


@dataclass(frozen=True, kw_only=True)
class History:
    """A chunk of positions behind `back` earlier ones; all arrays are `[batch, back + seq]`.

    Attributes:
        ids: canonical ids; anything where `exists` or `live` is False.
        exists: whether the position lies inside the sequence.
        live: whether the mask lets the position count.
        documents: document of each position, or None for one document per sequence.
        back: positions before the chunk.
        masked: whether any mask was given.
    """

    ids: Int64[Tensor, "batch window"]
    exists: Bool[Tensor, "#batch window"]
    live: Bool[Tensor, "batch window"]
    documents: Int64[Tensor, "batch window"] | None
    back: int
    masked: bool

    def chunk(self, values: Tensor, lag: int = 0) -> Tensor:
        """The chunk's part of a window array, read `lag` positions earlier."""
        return values[:, self.back - lag : values.shape[1] - lag]


def read_history(
    canonical_ids: Int64[Tensor, "batch seq"],
    back: int,
    *,
    context: MemoryContext | None = None,
    state: "MemoryState | None" = None,
) -> History:
    """History of a chunk: out of the state where there is one, else the chunk is the whole sequence.

    Raises:
        ValueError: if a mask or document array has another shape than the ids, or the state was not extended by them.
    """
    if state is not None:
        return state.history(canonical_ids.shape[1], back)
    context = context or MemoryContext()
    live = _live(canonical_ids, context)
    documents = _documents(canonical_ids, context)
    return History(
        ids=F.pad(canonical_ids, (back, 0)),
        exists=torch.arange(-back, canonical_ids.shape[1], device=canonical_ids.device)[None] >= 0,
        live=F.pad(live, (back, 0), value=True),
        documents=None if documents is None else F.pad(documents, (back, 0)),
        back=back,
        masked=context.attention_mask is not None,
    )


def look_back(
    history: History, config: EngramConfig, special_ids: Int64[Tensor, "2"]
) -> list[Int64[Tensor, "batch seq"]]:
    """Token at each look-back 0..N-1 of every position of the chunk; the fill id where the window is blocked.

    A window is blocked from the first position on that lies before the sequence or its segment, or is dead; so an
    n-gram never spans a gap. A dead position is blocked at once and reads all fill.
    """
    ids, closed = _readable(history, config, special_ids)
    starts = _starts(history, config, ids, special_ids[1])
    blocked = history.chunk(closed)
    window = [torch.where(blocked, special_ids[0], history.chunk(ids))]
    for lag in range(1, config.max_ngram_size):
        blocked = blocked | history.chunk(closed, lag)
        if starts is not None:
            blocked = blocked | history.chunk(starts, lag - 1)
        window.append(torch.where(blocked, special_ids[0], history.chunk(ids, lag)))
    return window


def segment_numbers(
    history: History, config: EngramConfig, special_ids: Int64[Tensor, "2"]
) -> Int64[Tensor, "batch window"] | None:
    """Running number of the segment of each window position; None where nothing starts a segment."""
    ids, _ = _readable(history, config, special_ids)
    starts = _starts(history, config, ids, special_ids[1])
    return None if starts is None else starts.cumsum(1)


def _readable(history: History, config: EngramConfig, special_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Ids as the padding rule reads them, and which positions no window passes."""
    if config.padding == "hashed" or not history.masked:
        return history.ids, ~history.exists
    if config.padding == "fill":
        return torch.where(history.live, history.ids, special_ids[0]), ~history.exists
    return history.ids, ~(history.exists & history.live)


def _starts(history: History, config: EngramConfig, ids: Tensor, eos_id: Tensor) -> Tensor | None:
    """Whether a segment starts at each window position."""
    if config.reset == "segments" and history.documents is not None:
        changed = history.documents[:, 1:] != history.documents[:, :-1]
        return F.pad(changed, (1, 0))
    if config.reset == "eos":
        ended = (ids == eos_id) & history.exists
        if config.padding == "dead":
            ended = ended & history.live
        return F.pad(ended[:, :-1], (1, 0))
    return None


def _live(canonical_ids: Tensor, context: MemoryContext) -> Tensor:
    mask = context.attention_mask
    if mask is None:
        return torch.ones_like(canonical_ids, dtype=torch.bool)
    if mask.shape != canonical_ids.shape:
        raise ValueError(
            f"attention_mask must have the shape of the ids {tuple(canonical_ids.shape)}; "
            f"got {tuple(mask.shape)}. Cut it to the chunk that is passed."
        )
    return mask.bool()


def _documents(canonical_ids: Tensor, context: MemoryContext) -> Tensor | None:
    documents = context.document_ids
    if documents is not None and documents.shape != canonical_ids.shape:
        raise ValueError(
            f"document_ids must have the shape of the ids {tuple(canonical_ids.shape)}; "
            f"got {tuple(documents.shape)}. Cut it to the chunk that is passed."
        )
    return documents


class MemoryState:
    """What one decoding remembers: ids of every sequence by absolute position, and each layer's convolution tail.

    The caller extends it once per forward pass, before the layers read it. It belongs to a decoding, never to a model.
    Sequences may stand at different lengths.
    """

    def __init__(self, config: EngramConfig, *, rewind: int = 16):
        """Empty state; the first `extend` fixes the number of sequences.

        Args:
            rewind: most positions `crop` can take back at once without recomputing (the longest draft), where the
                memory has a convolution; without one any rewind is exact.

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
        return torch.zeros(0, dtype=torch.int64) if self._length is None else self._length.clone()

    @property
    def canonical_ids(self) -> Int64[Tensor, "batch seq"]:
        """Ids by absolute position, -1 where a position is dead or beyond its sequence."""
        if self._length is None:
            return torch.zeros(0, 0, dtype=torch.int64)
        ids, live = self._cells["ids"], self._cells["live"]
        inside = torch.arange(ids.shape[1])[None] < self._length[:, None]
        return torch.where(live & inside.to(ids.device), ids, -1)[:, : int(self._length.max())]

    def extend(
        self, canonical_ids: Int64[Tensor, "batch seq"], context: MemoryContext | None = None
    ) -> None:
        """Append a chunk to every sequence, each at its own length.

        Raises:
            ValueError: if the number of sequences changes, or mask or documents have another shape than the ids.
        """
        context = context or MemoryContext()
        live, documents = _live(canonical_ids, context), _documents(canonical_ids, context)
        batch, seq = canonical_ids.shape
        if self._length is None:
            self._length = torch.zeros(batch, dtype=torch.int64)
        if len(self._length) != batch:
            raise ValueError(
                f"MemoryState holds {len(self._length)} sequences and must be extended by as many; got {batch}. "
                "Use reorder, repeat or select to change them, or a fresh state for other sequences."
            )
        self._reserve(int(self._length.max()) + seq if batch else 0, canonical_ids)
        if documents is None:
            documents = self._last_document().expand(-1, seq)
        self._has_documents |= context.document_ids is not None
        self._masked |= context.attention_mask is not None
        positions = (self._length[:, None] + torch.arange(seq)).to(canonical_ids.device)
        for name, values in (("ids", canonical_ids), ("live", live), ("documents", documents)):
            self._cells[name].scatter_(1, positions, values)
        self._length = self._length + seq
        self._chunk = seq

    def history(self, seq: int, back: int) -> History:
        """The last `seq` positions of every sequence behind `back` earlier ones.

        Raises:
            ValueError: if the last `extend` did not append `seq` positions.
        """
        if seq != self._chunk or self._length is None:
            raise ValueError(
                f"MemoryState must be extended by the chunk that is passed ({seq} positions) before a layer reads "
                f"it; the last extend appended {self._chunk}"
            )
        positions = self._length[:, None] - seq + torch.arange(-back, seq)
        positions = positions.to(self._cells["ids"].device)
        cells = {name: cell.gather(1, positions.clamp_min(0)) for name, cell in self._cells.items()}
        return History(
            ids=cells["ids"],
            exists=positions >= 0,
            live=cells["live"],
            documents=cells["documents"] if self._has_documents else None,
            back=back,
            masked=self._masked,
        )

    def tail_window(
        self, layer_id: int, values: Float[Tensor, "batch seq *channels"]
    ) -> Float[Tensor, "batch window *channels"]:
        """Convolution input of a layer's chunk behind the `conv_reach` inputs before it; remembers the chunk.

        Raises:
            ValueError: if inputs before the chunk were never seen by this layer, or are no longer remembered.
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
        wanted = torch.as_tensor(length, dtype=torch.int64).cpu()
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
            self.reorder(torch.arange(len(self._length)).repeat_interleave(times))

    def copy(self) -> "MemoryState":
        """An independent state with the same contents, to go on from one prefix in two ways."""
        twin = MemoryState(self.config, rewind=self.rewind)
        twin.__dict__.update(self.__dict__)
        twin._cells = {name: cell.clone() for name, cell in self._cells.items()}
        twin._tails = {layer: tail.copy() for layer, tail in self._tails.items()}
        return twin

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
