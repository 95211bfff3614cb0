"""What merging does to running text: tokens concerned, keys saved, and knowledge of the next token.

Merging spellings makes keys fewer and more frequent, and it forgets which spelling stood there. How
much that tells about the next token is a conditional entropy; a small sample makes any split of the
contexts look informative, so the same is measured with spellings dealt out anew at random.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents


def text_frame(
    compression: VocabCompression,
    documents: Documents,
    *,
    tokenizer: str = "",
    orders: Sequence[int] = (1, 2, 3),
    seed: int = 0,
) -> pd.DataFrame:
    """Share of a text that the map concerns, keys before and after, and what the next token loses.

    Args:
        compression: the map.
        documents: token ids of a text.
        tokenizer: name written into the frame.
        orders: lengths of the n-grams; those that a document's beginning cuts are left out.
        seed: of the random spellings.

    Returns:
        One row per order, with columns tokenizer, order, tokens, merged_share (of the tokens: ids
        that share their canonical id with another id), respelled_share (of the tokens: not the
        most frequent spelling of their canonical id in this text), raw_keys and canonical_keys
        (distinct n-grams), key_reduction (share of the raw keys that is saved), raw_nats and
        canonical_nats (entropy of the next token given the n-gram, in this text), lost_nats (their
        difference) and lost_by_chance_nats (the same with spellings dealt out at random).

    Raises:
        ValueError: if an id is outside the map, an order is below 1, or the text has no n-gram of
            that length with a token behind it.
    """
    raw = documents.ids.astype(np.int64)
    table = compression.table.cpu().numpy()
    if len(raw) and raw.max() >= len(table):
        raise ValueError(
            f"token ids must lie in 0..{len(table) - 1} (vocab_size of the map); got {raw.max()}"
        )
    shared, inside = _shares(raw, table), np.ones(len(raw), dtype=bool)
    inside[documents.offsets[1:] - 1] = False  # the last token of a document has nothing behind it
    generator, rows = np.random.default_rng(seed), []
    for order in orders:
        spelled, ends = context_ids(raw, documents.offsets, order)
        merged, _ = context_ids(table[raw], documents.offsets, order)
        keys = len(np.unique(spelled)), len(np.unique(merged))
        behind = inside[ends]
        if not behind.any():
            raise ValueError(
                f"text_frame needs an n-gram of order {order} with a token behind it; the longest "
                f"of the documents has {documents.lengths.max(initial=0)} tokens"
            )
        following = raw[ends[behind] + 1]
        rows.append(
            {"tokenizer": tokenizer, "order": order, "tokens": len(raw)}
            | shared
            | {"raw_keys": keys[0], "canonical_keys": keys[1]}
            | {"key_reduction": 1 - keys[1] / keys[0]}
            | _entropies(spelled[behind], merged[behind], following, generator)
        )
    return pd.DataFrame(rows)


def context_ids(ids: np.ndarray, offsets: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """A number for the n-gram that ends at each position, equal only for equal n-grams.

    Args:
        ids: tokens of documents end to end.
        offsets: bounds of the documents.
        order: tokens of an n-gram.

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


def conditional_entropy(contexts: np.ndarray, following: np.ndarray) -> float:
    """Entropy of what follows given its context, in nats, by the counts of a sample.

    Args:
        contexts: a number for each context.
        following: a number for what follows each of them.
    """
    _, ranks = np.unique(contexts, return_inverse=True)
    pairs = ranks * (int(following.max()) + 1) + following
    return _entropy(pairs) - _entropy(ranks)


def dealt_out(
    spelled: np.ndarray, merged: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Contexts with their spellings dealt out anew among the places of equal merged contexts.

    Args:
        spelled: a number for each context as it is spelled.
        merged: a number for the same context after merging.
        generator: deals.
    """
    dealt = np.empty_like(spelled)
    dealt[np.lexsort((generator.random(len(merged)), merged))] = spelled[
        np.argsort(merged, kind="stable")
    ]
    return dealt


def _entropies(
    spelled: np.ndarray, merged: np.ndarray, following: np.ndarray, generator: np.random.Generator
) -> dict[str, float]:
    raw = conditional_entropy(spelled, following)
    canonical = conditional_entropy(merged, following)
    chance = conditional_entropy(dealt_out(spelled, merged, generator), following)
    return {
        "raw_nats": raw,
        "canonical_nats": canonical,
        "lost_nats": canonical - raw,
        "lost_by_chance_nats": canonical - chance,
    }


def _shares(raw: np.ndarray, table: np.ndarray) -> dict[str, float]:
    """Shares of the tokens that the map concerns."""
    size = np.bincount(table)
    seen = np.bincount(raw, minlength=len(table))
    most = np.zeros(len(size), np.int64)
    np.maximum.at(most, table, seen)
    total = max(len(raw), 1)
    return {
        "merged_share": float((size[table[raw]] > 1).sum() / total),
        "respelled_share": float(1 - most.sum() / total),
    }


def _entropy(numbers: np.ndarray) -> float:
    _, counts = np.unique(numbers, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
