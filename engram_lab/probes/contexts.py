"""N-grams of a text and the tokens that follow them, counted exactly: nothing is hashed."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from engram_lab.tokens.documents import Documents


@dataclass(frozen=True, kw_only=True, eq=False)
class Followers:
    """What follows every distinct n-gram of a text.

    Attributes:
        numbers: of the n-grams, rising; as `context_ids` numbers them.
        ends: where each of them ends for the first time, a position of the text.
        counts: occurrences with a token behind them, at least 1.
        following: the tokens behind all occurrences, n-gram by n-gram.
    """

    numbers: Int64[np.ndarray, "ngram"]
    ends: Int64[np.ndarray, "ngram"]
    counts: Int64[np.ndarray, "ngram"]
    following: Int64[np.ndarray, "occurrence"]

    def behind(self, places: Int64[np.ndarray, "chosen"]) -> list[Int64[np.ndarray, "_"]]:
        """The tokens that follow some n-grams, told by their place in `numbers`."""
        last = np.cumsum(self.counts)
        return [self.following[last[place] - self.counts[place] : last[place]] for place in places]


def read_followers(
    ids: Int64[np.ndarray, "token"], documents: Documents, order: int = 1
) -> Followers:
    """The n-grams of a text and what follows them in the same document.

    Args:
        ids: what n-grams are made of, such as canonical ids of the documents' tokens.
        documents: give the bounds, and the tokens that follow.
        order: tokens of an n-gram.

    Raises:
        ValueError: if the order is below 1.
    """
    numbers, ends = context_ids(ids, documents.offsets, order)
    heard = followed(documents)[ends]
    numbers, ends = numbers[heard], ends[heard]
    distinct, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    following = documents.ids[ends[np.argsort(numbers, kind="stable")] + 1]
    return Followers(
        numbers=distinct, ends=ends[first], counts=counts, following=following.astype(np.int64)
    )


def followed(documents: Documents) -> Bool[np.ndarray, "token"]:
    """Whether a token has another behind it in its document."""
    inside = np.ones(documents.token_count, dtype=bool)
    inside[documents.offsets[1:] - 1] = False
    return inside


def context_ids(
    ids: Int64[np.ndarray, "token"], offsets: Int64[np.ndarray, "bound"], order: int
) -> tuple[Int64[np.ndarray, "end"], Int64[np.ndarray, "end"]]:
    """A number for the n-gram that ends at each position, equal only for equal n-grams.

    Args:
        ids: tokens of documents end to end.
        offsets: bounds of the documents.
        order: tokens of an n-gram; single tokens are their own numbers.

    Returns:
        The numbers, and the positions they end at: those with `order` tokens in their document.

    Raises:
        ValueError: if the order is below 1.
    """
    if order < 1:
        raise ValueError(f"an n-gram has at least 1 token; got order {order}")
    position = np.arange(len(ids)) - np.repeat(offsets[:-1], np.diff(offsets))
    ends = np.flatnonzero(position >= order - 1)
    size = int(ids.max(initial=0)) + 1
    numbers = ids[ends]
    for lag in range(1, order):
        # ranks stay below the number of positions, so products with the vocabulary cannot overflow
        _, ranks = np.unique(numbers, return_inverse=True)
        numbers = ranks * size + ids[ends - lag]
    return numbers, ends
