"""Counts of the n-grams of training documents: how surprising a token is, how often a key occurs.

The plainest model of local text there is, for holding a gate against: does memory speak where text
is stereotyped, or only where it is frequent?
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from engram_lab.tokens.documents import Documents

SMOOTHING = 0.5
"""Weight of the shorter context against one occurrence of the longer one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NgramCounts:
    """How often n-grams of the orders 1 to `order` occur; none spans two documents.

    Attributes:
        keys: packed n-grams by order, sorted; as many as there are of each order.
        counts: occurrences of each of them.
        vocab_size: ids lie below it.
    """

    keys: tuple[np.ndarray, ...]
    counts: tuple[np.ndarray, ...]
    vocab_size: int

    @property
    def order(self) -> int:
        """Longest n-gram counted."""
        return len(self.keys)

    @classmethod
    def of(cls, documents: Documents, order: int = 3) -> "NgramCounts":
        """Counts over documents.

        Raises:
            ValueError: if the order is below 1 or its n-grams do not fit into 63 bits.
        """
        if order < 1 or documents.vocab_size**order >= 2**63:
            raise ValueError(
                f"order must be at least 1, and vocab_size ({documents.vocab_size}) to its power "
                f"below 2**63; got {order}"
            )
        found = []
        for length in range(1, order + 1):
            packed, whole = _packed(documents, length)
            found.append(np.unique(packed[whole], return_counts=True))
        keys, counts = zip(*found, strict=True)
        return cls(keys=keys, counts=counts, vocab_size=documents.vocab_size)

    def occurrences(self, documents: Documents, order: int) -> Int64[np.ndarray, "token"]:
        """How often the n-gram that ends at each token was counted; 0 where it is cut or new."""
        packed, whole = _packed(documents, order)
        keys, counts = self.keys[order - 1], self.counts[order - 1]
        place = np.minimum(np.searchsorted(keys, packed), len(keys) - 1)
        return np.where(whole & (keys[place] == packed), counts[place], 0)

    def surprise(self, documents: Documents) -> Float[np.ndarray, "token"]:
        """Nats that each token costs a reader who knows the counts, given the tokens before it.

        Longer contexts are mixed with shorter ones by their counts, down to equal probabilities.
        """
        probability = np.full(documents.token_count, 1 / self.vocab_size)
        for order in range(1, self.order + 1):
            joint = self.occurrences(documents, order)
            context = self._contexts(documents, order)
            mixed = (joint + SMOOTHING * probability) / (context + SMOOTHING)
            probability = np.where(_packed(documents, order)[1], mixed, probability)
        return -np.log(probability)

    def hot(self, documents: Documents, *, share: float = 0.5) -> Bool[np.ndarray, "token"]:
        """Whether the longest n-gram ending at each token is one of the most frequent ones.

        Args:
            documents: whose tokens are tagged.
            share: of all counted occurrences that the frequent n-grams make up, in (0, 1).

        Raises:
            ValueError: if the share is out of range.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must lie between 0 and 1; got {share}")
        falling = np.sort(self.counts[-1])[::-1]
        least = falling[np.searchsorted(np.cumsum(falling), share * falling.sum())]
        return self.occurrences(documents, self.order) >= max(least, 1)

    def _contexts(self, documents: Documents, order: int) -> Int64[np.ndarray, "token"]:
        """How often what stands before each token was counted with any token behind it."""
        packed, _ = _packed(documents, order)
        own, counts = self.keys[order - 1] // self.vocab_size, self.counts[order - 1]
        keys, starts = np.unique(own, return_index=True)
        totals = np.add.reduceat(counts, starts)
        context = packed // self.vocab_size
        place = np.minimum(np.searchsorted(keys, context), len(keys) - 1)
        return np.where(keys[place] == context, totals[place], 0)


def _packed(
    documents: Documents, order: int
) -> tuple[Int64[np.ndarray, "token"], Bool[np.ndarray, "token"]]:
    """The n-gram ending at each token as a number, the oldest id first, and whether it is whole."""
    ids = documents.ids.astype(np.int64)
    position = np.arange(len(ids)) - np.repeat(documents.offsets[:-1], documents.lengths)
    packed = np.zeros(len(ids), np.int64)
    for lag in range(order - 1, -1, -1):
        packed = packed * documents.vocab_size + np.roll(ids, lag)
    return packed, position >= order - 1
