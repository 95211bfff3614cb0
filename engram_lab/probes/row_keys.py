"""Who shares a row: from a row of a memory to the n-grams of its training text that read it.

The index keeps every distinct n-gram with its count and the number it hashes to, not the rows. One
division of all numbers by a table's length then finds the n-grams of any row of that table, which
takes milliseconds for a corpus of a million tokens and some tenths of a second for ten million.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.hot import HotHash, KeyIndex
from engram_lab.memory.keys import KeyCounts, count_keys
from engram_lab.probes.hash_rules import HashRule
from engram_lab.probes.rows import KeyUse, RowUse
from engram_lab.tokens.documents import Documents
from engram_lab.training.data import load_data
from engram_lab.training.fit import TrainedRun

SHOWN = 5
"""N-grams of a row that are named, the most frequent first."""


@runtime_checkable
class Reader(Protocol):
    """What an index needs of a tokenizer."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Readable text of every id."""


class RowIndex:
    """The n-grams behind every row of a model's memories.

    Attributes:
        counts: distinct n-grams of the training text, by order.
        passes: how often the text was read in training.
    """

    def __init__(
        self,
        hashes: Mapping[int, NgramHash],
        counts: Mapping[int, KeyCounts],
        spellings: Int64[np.ndarray, "canonical"],
        *,
        tokenizer: Reader | None = None,
        passes: float = 1.0,
    ):
        """Use `row_index` or `row_index_of_run`.

        Args:
            hashes: by layer.
            counts: distinct keys by order, counted with these hashes.
            spellings: the token id that stands for each canonical id.
            tokenizer: gives the texts; None where ids stand for themselves.
            passes: how often the text was read.
        """
        self.counts, self.passes = dict(counts), passes
        self._hashes, self._spellings, self._tokenizer = dict(hashes), spellings, tokenizer
        self._numbers: dict[tuple[int, int], np.ndarray] = {}

    @property
    def layers(self) -> list[int]:
        """Blocks with a memory."""
        return list(self._hashes)

    def use(self, layer: int, order: int, head: int, row: int, *, top: int = SHOWN) -> RowUse:
        """How training used one row.

        Args:
            layer: block, counted from 0.
            order: length of the n-grams.
            head: hash head, counted from 0.
            row: address in that table.
            top: n-grams to name.

        Raises:
            ValueError: if there is no such table, or no such row in it.
        """
        rows = self.rows(layer, order, head)
        if not 0 <= row < rows:
            raise ValueError(
                f"row must lie in 0..{rows - 1}, the rows of layer {layer}, order {order}, head "
                f"{head}; got {row}"
            )
        keys = self.counts[order]
        places = np.flatnonzero(self._reading(layer, order, head) == row)
        frequent = places[np.argsort(-keys.counts[places], kind="stable")][:top]
        return RowUse(
            times_trained=round(self.passes * int(keys.counts[places].sum())),
            key_count=len(places),
            keys=[self._key_use(keys, place) for place in frequent.tolist()],
        )

    def heads(self, layer: int, order: int) -> int:
        """Tables of one order.

        Raises:
            ValueError: if the layer has no memory, or the order no tables.
        """
        if layer not in self._hashes:
            raise ValueError(f"layer must be one of {self.layers}, blocks with memory; got {layer}")
        if order not in self.counts:
            raise ValueError(f"order must be one of {sorted(self.counts)}; got {order}")
        return self._hashes[layer].config.n_head_per_ngram

    def rows(self, layer: int, order: int, head: int) -> int:
        """Rows of one table, those of hot keys included.

        Raises:
            ValueError: if there is no such table.
        """
        heads = self.heads(layer, order)
        if not 0 <= head < heads:
            raise ValueError(f"head must lie in 0..{heads - 1}; got {head}")
        hot = self._hot(layer, order)
        return self._length(layer, order, head) + (0 if hot is None else hot.size)

    def row_of(self, layer: int, head: int, key: Sequence[int]) -> int:
        """Address that an n-gram reads in one table.

        Args:
            layer: block, counted from 0.
            head: hash head, counted from 0.
            key: canonical ids, the oldest first; their number is the order.

        Raises:
            ValueError: if there is no such table, or an id is outside the vocabulary.
        """
        order = len(key)
        heads = self.heads(layer, order)
        addresses = self._hashes[layer].addresses(torch.tensor([list(key)]))
        return int(addresses[0, -1, (order - 2) * heads + head])

    def spelling(self, key: Sequence[int]) -> tuple[int, ...]:
        """The token ids that stand for canonical ids: the most frequent ones of each."""
        return tuple(self._spellings[list(key)].tolist())

    def text(self, key: Sequence[int]) -> str:
        """An n-gram of canonical ids, the oldest first, as readable text."""
        ids = self.spelling(key)
        if self._tokenizer is None:
            return " ".join(map(str, ids))
        return "".join(self._tokenizer.tokens(ids))

    def _reading(self, layer: int, order: int, head: int) -> np.ndarray:
        """Row that each counted key reads in one table."""
        keys, length = self.counts[order], self._length(layer, order, head)
        if (layer, order) not in self._numbers:
            self._numbers[layer, order] = HashRule.of(self._hashes[layer]).numbers(keys)
        cold, hot = self._numbers[layer, order] % length, self._hot(layer, order)
        if hot is None:
            return cold
        number = hot.find([torch.from_numpy(word) for word in keys.words]).numpy()
        return np.where(number >= 0, length + number, cold)

    def _length(self, layer: int, order: int, head: int) -> int:
        return int(self._hashes[layer].primes[order - 2, head])

    def _hot(self, layer: int, order: int) -> KeyIndex | None:
        memory_hash = self._hashes[layer]
        if not isinstance(memory_hash, HotHash) or str(order) not in memory_hash.indices:
            return None
        return memory_hash.indices[str(order)]

    def _key_use(self, keys: KeyCounts, place: int) -> KeyUse:
        key, count = keys.key(place), int(keys.counts[place])
        return KeyUse(token_ids=self.spelling(key), text=self.text(key), count=count)


def row_index(
    model: nn.Module,
    documents: Documents,
    tokenizer: Reader | None = None,
    *,
    passes: float = 1.0,
) -> RowIndex:
    """Index of what a model's memories read in some documents.

    Args:
        model: a language model of this library with memory; left as it was.
        documents: what it was trained on.
        tokenizer: gives the texts; None for generated corpora, whose ids stand for themselves.
        passes: how often training read the documents.

    Raises:
        ValueError: if the model has no memory, reads a neighbour's rows, or the documents are empty
            or of another vocabulary.
    """
    memories = getattr(model, "memories", {})
    if not memories:
        raise ValueError(
            f"row_index needs a model with memory; this {type(model).__name__} has none. Give its "
            "config an EngramConfig and train it again."
        )
    hashes = {layer: memory.hash for layer, memory in memories.items()}
    first = next(iter(hashes.values()))
    if first.config.addresses == "neighbour":
        raise ValueError(
            "row_index needs a model that reads its own rows; with "
            "EngramConfig.addresses='neighbour' they belong to other sequences of a batch"
        )
    compression = model.compression
    if documents.vocab_size != compression.vocab_size:
        raise ValueError(
            f"the documents must be of the model's vocabulary ({compression.vocab_size} ids); got "
            f"{documents.vocab_size}"
        )
    counts = count_keys(first, documents, compression)
    spellings = _spellings(documents, compression.table)
    return RowIndex(hashes, counts, spellings, tokenizer=tokenizer, passes=passes)


def row_index_of_run(run: TrainedRun) -> RowIndex:
    """Index of what a trained model was trained on; the corpus is loaded again.

    Raises:
        ValueError: as `row_index`.
    """
    documents = load_data(run.config).train
    passes = run.train_tokens / documents.token_count
    return row_index(run.model, documents, run.tokenizer, passes=passes)


def sharing_frame(
    index: RowIndex, key: Sequence[int], *, layer: int | None = None, top: int = SHOWN
) -> pd.DataFrame:
    """Which n-grams share the rows of a given one, in every table of its order.

    Args:
        index: the n-grams behind the rows.
        key: canonical ids of the n-gram, the oldest first.
        layer: block, counted from 0; None takes the first with a memory.
        top: n-grams to name a row.

    Returns:
        One row per table and n-gram, with columns layer, order, head, row, key (the given one, as
        text), key_count (distinct n-grams in the row), times_trained (reads of the row), companion
        (an n-gram of the row, as text), own (whether it is the given one), count (its occurrences)
        and share (of the reads of the row). A row nobody read has one line without companion.

    Raises:
        ValueError: if the layer has no memory, the order no tables, or an id is outside the
            vocabulary.
    """
    layer = index.layers[0] if layer is None else layer
    rows = [index.row_of(layer, head, key) for head in range(index.heads(layer, len(key)))]
    own, records = index.spelling(key), []
    for head, row in enumerate(rows):
        use = index.use(layer, len(key), head, row, top=top)
        place = {"layer": layer, "order": len(key), "head": head, "row": row}
        place |= {"key": index.text(key), "key_count": use.key_count}
        place["times_trained"] = use.times_trained
        for one in use.keys or [KeyUse(token_ids=(), text="", count=0)]:
            share = one.count * index.passes / max(use.times_trained, 1)
            found = {"companion": one.text, "own": one.token_ids == own, "count": one.count}
            records.append(place | found | {"share": share})
    return pd.DataFrame(records)


def _spellings(documents: Documents, table: Tensor) -> np.ndarray:
    """The most frequent token id of every canonical id; the first one where none occurs."""
    canonical = table.cpu().numpy()
    seen = np.bincount(documents.ids, minlength=len(canonical))
    order = np.lexsort((np.arange(len(canonical)), -seen))  # the most frequent first
    spellings = np.empty(canonical.max() + 1, np.int64)
    spellings[canonical[order[::-1]]] = order[::-1]  # the last one written stays
    return spellings
