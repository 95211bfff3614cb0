"""N-gram keys as exact numbers, and how often each of them occurs in a text.

A key is what the memory should tell apart: the canonical ids of a token and of those before it. Two
keys that hash to one row collide; here they stay different. A key is packed into whole numbers, as
many ids to a number as fit below 2^63 (three of V4.1's 99,092 ids, so its 4-grams take two).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.history import MemoryContext, live_positions, look_back
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents

Array = TypeVar("Array", np.ndarray, Tensor)
READ = 500_000
"""Tokens that `count_keys` reads at a time."""


@dataclass(frozen=True, kw_only=True)
class KeyCodec:
    """How the keys of one order are packed into numbers below 2^63, and back.

    Attributes:
        order: tokens in a key.
        vocab_size: canonical ids.
    """

    order: int
    vocab_size: int

    def __post_init__(self) -> None:
        """Check both sizes."""
        if self.order < 1 or self.vocab_size < 1:
            raise ValueError(
                f"KeyCodec needs an order and a vocabulary of at least 1; got {self.order} and "
                f"{self.vocab_size}"
            )

    @cached_property
    def per_word(self) -> int:
        """Ids in one number."""
        count = 1
        while count < self.order and self.vocab_size ** (count + 1) < 2**63:
            count += 1
        return count

    @property
    def word_count(self) -> int:
        """Numbers in one key."""
        return -(-self.order // self.per_word)

    def pack(self, window: Sequence[Array]) -> list[Array]:
        """Keys as numbers, `word_count` arrays of the shape of the ids; equal only for equal keys.

        Args:
            window: ids by look-back, the newest first; entries beyond the order are not read. They
                must lie in the vocabulary.
        """
        words = []
        for first in range(0, self.order, self.per_word):
            lags = range(first, min(first + self.per_word, self.order))
            word = window[first]
            for digit, lag in enumerate(lags):
                if digit:
                    word = word + window[lag] * self.vocab_size**digit
            words.append(word)
        return words

    def column(self, words: Sequence[Array], lag: int) -> Array:
        """Ids at one look-back of packed keys."""
        word, digit = divmod(lag, self.per_word)
        return words[word] // self.vocab_size**digit % self.vocab_size

    def tokens(self, words: Sequence[Array]) -> list[Array]:
        """All ids of packed keys, by look-back; the inverse of `pack`."""
        return [self.column(words, lag) for lag in range(self.order)]


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyCounts:
    """The distinct keys of one order, sorted, and how often each occurs.

    Attributes:
        codec: how they are packed.
        words: the packed keys, `codec.word_count` arrays.
        counts: occurrences of each key, all positive.
    """

    codec: KeyCodec
    words: tuple[Int64[np.ndarray, "key"], ...]
    counts: Int64[np.ndarray, "key"]

    def __len__(self) -> int:
        """Distinct keys."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """Occurrences of all keys together: look-ups per hash head."""
        return int(self.counts.sum())

    def key(self, place: int) -> tuple[int, ...]:
        """Ids of the key at one place, the oldest first."""
        columns = self.codec.tokens([word[place : place + 1] for word in self.words])
        return tuple(int(column[0]) for column in reversed(columns))

    def most_frequent(self, keys: int) -> Int64[np.ndarray, "chosen"]:
        """Places of the most frequent keys, the first the most frequent; ties in key order.

        Raises:
            ValueError: if there are not that many.
        """
        if not 0 <= keys <= len(self):
            raise ValueError(
                f"keys must lie in 0..{len(self)}, the distinct {self.codec.order}-grams counted; "
                f"got {keys}"
            )
        return np.argsort(-self.counts, kind="stable")[:keys]

    def select(self, places: np.ndarray) -> "KeyCounts":
        """The keys at some places, sorted."""
        places = np.sort(places)
        words = tuple(word[places] for word in self.words)
        return KeyCounts(codec=self.codec, words=words, counts=self.counts[places])


class KeyCounter:
    """Counts the keys of every order over any number of chunks, each read once.

    What it keeps grows with the distinct keys, not with the text.
    """

    def __init__(self, ngram_hash: NgramHash):
        """Count what `ngram_hash` would look up; the layer does not matter, its window rules do."""
        self.hash = ngram_hash
        orders = range(2, ngram_hash.config.max_ngram_size + 1)
        vocab_size = ngram_hash.canonical_vocab_size
        self.codecs = {order: KeyCodec(order=order, vocab_size=vocab_size) for order in orders}
        self._merged = {order: _nothing(codec) for order, codec in self.codecs.items()}
        self._fresh: dict[int, list[KeyCounts]] = {order: [] for order in self.codecs}

    def add(
        self, canonical_ids: Int64[Tensor, "batch seq"], *, context: MemoryContext | None = None
    ) -> None:
        """Count the key of every live position.

        Args:
            context: documents and mask of these positions; rows are separate texts.

        Raises:
            ValueError: if an id is negative or not below the vocabulary, or shapes differ.
        """
        config, back = self.hash.config, self.hash.config.max_ngram_size - 1
        history = self.hash.history(canonical_ids, back, context=context)
        window = look_back(history, config, self.hash.prepared.special_ids)
        columns = [tokens.reshape(-1).cpu().numpy() for tokens in window]
        live = None if context is None else live_positions(canonical_ids, context)
        if live is not None and config.padding == "dead":
            alive = live.reshape(-1).cpu().numpy()
            columns = [column[alive] for column in columns]
        _check_ids(columns[0], self.hash.canonical_vocab_size)
        for order, codec in self.codecs.items():
            words = codec.pack(columns)
            self._fresh[order].append(_distinct(codec, words, np.ones(len(words[0]), np.int64)))
            if sum(map(len, self._fresh[order])) > len(self._merged[order]) // 2:
                self._merge(order)

    def counts(self) -> dict[int, KeyCounts]:
        """The distinct keys of every order so far."""
        for order in self.codecs:
            self._merge(order)
        return dict(self._merged)

    def _merge(self, order: int) -> None:
        """Merge what the last chunks held; done when that grows large beside the rest."""
        if not self._fresh[order]:
            return
        codec, parts = self.codecs[order], [self._merged[order], *self._fresh[order]]
        words = [np.concatenate(word) for word in zip(*(part.words for part in parts), strict=True)]
        counts = np.concatenate([part.counts for part in parts])
        parts.clear()  # each is large; the joined arrays hold all there is
        self._fresh[order], self._merged[order] = [], _nothing(codec)
        self._merged[order] = _distinct(codec, words, counts)


def count_keys(
    ngram_hash: NgramHash, documents: Documents, compression: VocabCompression | None = None
) -> dict[int, KeyCounts]:
    """Distinct keys of every order in documents, with their counts, read in parts.

    Windows begin anew at every document where the config says so (`reset="segments"`), otherwise
    at every part of about half a million tokens.

    Args:
        compression: from token ids to the ids that are hashed; None where they are hashed raw.

    Raises:
        ValueError: if there is no token, or an id is outside the vocabulary of the hash.
    """
    if not documents.token_count:
        raise ValueError("count_keys needs documents of at least one token; got none")
    counter = KeyCounter(ngram_hash)
    for ids, owners in _parts(documents):
        canonical_ids = ids if compression is None else compression(ids)
        counter.add(canonical_ids, context=MemoryContext(document_ids=owners))
    return counter.counts()


def _parts(documents: Documents) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids of some documents in a row, and the number of each position's document, both `[1, n]`."""
    bounds, first = documents.offsets, 0
    while first < len(documents):
        last = int(np.searchsorted(bounds, bounds[first] + READ, side="right")) - 1
        last = max(last, first + 1)
        ids = documents.ids[bounds[first] : bounds[last]].astype(np.int64)
        owners = np.repeat(np.arange(first, last), np.diff(bounds[first : last + 1]))
        yield torch.from_numpy(ids)[None], torch.from_numpy(owners)[None]
        first = last


def _distinct(codec: KeyCodec, words: list[np.ndarray], counts: np.ndarray) -> KeyCounts:
    """Sort keys and add up the counts of equal ones; empties the list, to free arrays early."""
    several = len(words) > 1
    place = np.lexsort(words[::-1]) if several else np.argsort(words[0], kind="stable")
    new = np.zeros(len(place), dtype=bool)
    new[:1] = True
    found = []
    while words:
        found.append(words.pop(0)[place])
        new[1:] |= found[-1][1:] != found[-1][:-1]
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(counts[place], starts) if len(starts) else counts[:0]
    return KeyCounts(codec=codec, words=tuple(word[starts] for word in found), counts=sums)


def _nothing(codec: KeyCodec) -> KeyCounts:
    empty = np.zeros(0, np.int64)
    return KeyCounts(codec=codec, words=(empty,) * codec.word_count, counts=empty)


def _check_ids(ids: np.ndarray, vocab_size: int) -> None:
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError(
            f"canonical ids must lie in 0..{vocab_size - 1} (canonical_vocab_size={vocab_size}); "
            f"got {ids.min()}..{ids.max()}"
        )
