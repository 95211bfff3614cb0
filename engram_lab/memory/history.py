"""Look-back: what a chunk of positions may see before it, in a full pass and in a decoding alike.

The look-back is written here once; full passes, cached decoding and storage use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from engram_lab.memory.config import EngramConfig

if TYPE_CHECKING:
    from engram_lab.memory.state import MemoryState


@dataclass(frozen=True, kw_only=True)
class MemoryContext:
    """What a pass knows about its positions beside their ids.

    Attributes:
        document_ids: document of each position; None for one document per sequence (in a decoding:
            the document goes on).
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
        ids: canonical ids; anything where `exists` or `live` is False, fill before a full pass.
        exists: whether the position lies inside the sequence; None where the chunk opens it.
        live: whether the mask lets the position count; None where no mask was given.
        documents: document of each position; None for one document per sequence.
        back: positions before the chunk.
    """

    ids: Int64[Tensor, "batch window"]
    exists: Bool[Tensor, "batch window"] | None
    live: Bool[Tensor, "batch window"] | None
    documents: Int64[Tensor, "batch window"] | None
    back: int

    def chunk(self, values: Tensor, lag: int = 0) -> Tensor:
        """The chunk's part of a window array, read `lag` positions earlier."""
        return values[:, self.back - lag : values.shape[1] - lag]


def read_history(
    canonical_ids: Int64[Tensor, "batch seq"],
    back: int,
    *,
    context: MemoryContext | None = None,
    state: "MemoryState | None" = None,
    fill_id: int = 0,
) -> History:
    """History of a chunk: out of the state where there is one, else the chunk is all there is.

    Args:
        fill_id: what to write before the sequence.

    Raises:
        ValueError: if a mask or document array has another shape than the ids, or the state was not
            extended by them.
    """
    if state is not None:
        return state.history(canonical_ids.shape[1], back)
    live = documents = None
    if context is not None:
        live = live_positions(canonical_ids, context)
        documents = documents_of(canonical_ids, context)
    return History(
        ids=_behind(canonical_ids, back, fill_id),
        exists=None,
        live=None if live is None else F.pad(live, (back, 0), value=True),
        documents=None if documents is None else F.pad(documents, (back, 0)),
        back=back,
    )


def look_back(
    history: History, config: EngramConfig, special_ids: tuple[int, int]
) -> list[Int64[Tensor, "batch seq"]]:
    """Token at each look-back 0..N-1 of every position of the chunk; fill where it is blocked.

    A window is blocked from the first position on that lies before the sequence or its segment, or
    is dead; so an n-gram never spans a gap. A dead position is blocked at once and reads all fill.

    Args:
        special_ids: the canonical fill id and eos id.
    """
    fill_id, eos_id = special_ids
    ids, closed = _readable(history, config, fill_id)
    starts = _starts(history, config, ids, eos_id)
    lags = range(1, config.max_ngram_size)
    if closed is None and starts is None:
        return [history.chunk(ids, lag) for lag in (0, *lags)]
    blocked = _before(history) if closed is None else closed
    barrier, blocked = blocked, history.chunk(blocked)
    window = [torch.where(blocked, fill_id, history.chunk(ids))]
    for lag in lags:
        blocked = blocked | history.chunk(barrier, lag)
        if starts is not None:
            blocked = blocked | history.chunk(starts, lag - 1)
        window.append(torch.where(blocked, fill_id, history.chunk(ids, lag)))
    return window


def segment_numbers(
    history: History, config: EngramConfig, special_ids: tuple[int, int]
) -> Int64[Tensor, "batch window"] | None:
    """Number of the segment of each window position; None where nothing starts a segment."""
    fill_id, eos_id = special_ids
    ids, _ = _readable(history, config, fill_id)
    starts = _starts(history, config, ids, eos_id)
    return None if starts is None else starts.cumsum(1)


def live_positions(
    canonical_ids: Int64[Tensor, "batch seq"], context: MemoryContext
) -> Bool[Tensor, "batch seq"] | None:
    """Which positions the mask of `context` lets count; None without a mask.

    Raises:
        ValueError: if the mask has another shape than the ids.
    """
    mask = _of_shape(canonical_ids, context.attention_mask, "attention_mask")
    return None if mask is None else mask.bool()


def documents_of(
    canonical_ids: Int64[Tensor, "batch seq"], context: MemoryContext
) -> Int64[Tensor, "batch seq"] | None:
    """Document of each position; None where `context` names none.

    Raises:
        ValueError: if the documents have another shape than the ids.
    """
    return _of_shape(canonical_ids, context.document_ids, "document_ids")


def _of_shape(canonical_ids: Tensor, given: Tensor | None, name: str) -> Tensor | None:
    if given is not None and given.shape != canonical_ids.shape:
        raise ValueError(
            f"{name} must have the shape of the ids {tuple(canonical_ids.shape)}; "
            f"got {tuple(given.shape)}. Cut it to the chunk that is passed."
        )
    return given


def _behind(ids: Tensor, back: int, fill_id: int) -> Tensor:
    """Ids behind `back` fill ids."""
    if ids.device.type != "cpu":
        return F.pad(ids, (back, 0), value=fill_id)
    batch, seq = ids.shape
    padded = np.full((batch, back + seq), fill_id, dtype=np.int64)  # cheaper than a call of torch
    padded[:, back:] = ids.numpy()
    return torch.from_numpy(padded)


def _readable(history: History, config: EngramConfig, fill_id: int) -> tuple[Tensor, Tensor | None]:
    """Ids as the padding rule reads them, and the positions that no window passes.

    None stands for the positions before the chunk, where the chunk opens the sequence.
    """
    outside = None if history.exists is None else ~history.exists
    if config.padding == "hashed" or history.live is None:
        return history.ids, outside
    if config.padding == "fill":
        return torch.where(history.live, history.ids, fill_id), outside
    outside = _before(history) if outside is None else outside
    return history.ids, outside | ~history.live


def _before(history: History) -> Tensor:
    """Positions before the chunk."""
    positions = torch.arange(history.ids.shape[1], device=history.ids.device)
    return (positions < history.back).expand_as(history.ids)


def _starts(history: History, config: EngramConfig, ids: Tensor, eos_id: int) -> Tensor | None:
    """Whether a segment starts at each window position."""
    if config.reset == "segments" and history.documents is not None:
        return F.pad(history.documents[:, 1:] != history.documents[:, :-1], (1, 0))
    if config.reset == "eos":
        ended = ids == eos_id
        if config.padding == "dead" and history.live is not None:
            ended = ended & history.live
        return F.pad(ended[:, :-1], (1, 0))
    return None
