"""What merging does to running text: tokens concerned, keys saved, and knowledge of the next token.

Merging spellings makes keys fewer and more frequent, and it forgets which spelling stood there. How
much that tells about the next token is a conditional entropy; a small sample makes any split of the
contexts look informative, so the same is measured with spellings dealt out anew at random.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from engram_lab.probes.collisions import predicted_share
from engram_lab.probes.contexts import context_ids, followed
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
    generator = np.random.default_rng(seed)
    whole = {"tokens": len(raw)} | _shares(raw, table)
    rows = [
        {"tokenizer": tokenizer, "order": order}
        | whole
        | _of_order(raw, table[raw], documents, order, generator)
        for order in orders
    ]
    return pd.DataFrame(rows)


def predicted_loads(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """What the keys of a text would do to tables of so many rows, hashed raw and canonical.

    Args:
        frame: rows of `text_frame`.
        rows: of one table.

    Returns:
        Columns tokenizer, order, rows, raw_load and canonical_load (distinct keys per row),
        raw_share and canonical_share (of the keys: expected to share their row).

    Raises:
        ValueError: if `rows` is below 1.
    """
    loads = frame[["tokenizer", "order"]].assign(rows=rows)
    for kind in ("raw", "canonical"):
        keys = frame[f"{kind}_keys"]
        loads[f"{kind}_share"] = [predicted_share(count, rows) for count in keys]
        loads[f"{kind}_load"] = keys / rows
    return loads


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


def _of_order(
    raw: np.ndarray,
    canonical: np.ndarray,
    documents: Documents,
    order: int,
    generator: np.random.Generator,
) -> dict[str, int | float]:
    """Keys of one order, and the entropies of what follows them."""
    spelled, ends = context_ids(raw, documents.offsets, order)
    merged, _ = context_ids(canonical, documents.offsets, order)
    heard = followed(documents)[ends]
    if not heard.any():
        raise ValueError(
            f"text_frame needs an n-gram of order {order} with a token behind it; the longest of "
            f"the documents has {documents.lengths.max(initial=0)} tokens"
        )
    raw_keys, canonical_keys = len(np.unique(spelled)), len(np.unique(merged))
    keys = {"raw_keys": raw_keys, "canonical_keys": canonical_keys}
    keys |= {"key_reduction": 1 - canonical_keys / raw_keys}
    return keys | _entropies(spelled[heard], merged[heard], raw[ends[heard] + 1], generator)


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
