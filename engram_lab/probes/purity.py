"""Do n-grams that share a row want the same of it? How alike their next tokens are.

Rows are shared by chance, so companions should be no more alike than any two n-grams: a row then
serves several masters. Likeness is the cosine between the counts of their next tokens.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int64

from engram_lab.probes.contexts import Followers, read_followers
from engram_lab.probes.hash_rules import HashRule
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents


def purity_frame(
    rule: HashRule,
    documents: Documents,
    compression: VocabCompression,
    *,
    layer: int,
    least: int = 20,
    pairs: int = 500,
) -> pd.DataFrame:
    """Likeness of the next tokens of n-grams in one row, beside that of random pairs.

    Args:
        rule: the hash.
        documents: token ids of a text; n-grams that a document's beginning cuts are left out.
        compression: from token ids to the ids that are hashed.
        layer: written into the frame.
        least: occurrences, with a token behind them, that an n-gram needs to be heard.
        pairs: most pairs a table is judged by.

    Returns:
        One row per order and head that have such pairs, with columns layer, order, head, pairs,
        cosine (mean over pairs of n-grams that share a row), chance_cosine (the same n-grams paired
        at random) and error (standard error of the difference).

    Raises:
        ValueError: if no row of any table is shared by two n-grams that occur often enough, or
            `least` or `pairs` is below 1.
    """
    if least < 1 or pairs < 1:
        raise ValueError(
            f"purity_frame needs least and pairs of at least 1; got {least} and {pairs}"
        )
    canonical = compression.table.cpu().numpy()[documents.ids]
    generator, rows = np.random.default_rng(0), []
    for order, lengths in enumerate(rule.lengths, start=2):
        followers = read_followers(canonical, documents, order)
        frequent = np.flatnonzero(followers.counts >= least)
        numbers = _mixed(canonical, followers.ends[frequent], rule.multipliers[:order])
        for head, length in enumerate(lengths):
            chosen = frequent[_companions(numbers % length, pairs, generator)]
            if len(chosen):
                place = {"layer": layer, "order": order, "head": head, "pairs": len(chosen)}
                rows.append(place | _likeness(followers, chosen, generator))
    if not rows:
        raise ValueError(
            f"no row is shared by two n-grams that occur {least} times each in "
            f"{documents.token_count} tokens; take more text, fewer rows or a smaller least="
        )
    return pd.DataFrame(rows)


def cosine(first: Int64[np.ndarray, "_"], second: Int64[np.ndarray, "_"]) -> float:
    """Cosine between the counts of the values of two samples."""
    values, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a = np.bincount(places[: len(first)], minlength=len(values))
    b = np.bincount(places[len(first) :], minlength=len(values))
    return float(a @ b / np.sqrt(float(a @ a) * float(b @ b)))


def _mixed(canonical: np.ndarray, ends: np.ndarray, multipliers: Sequence[int]) -> np.ndarray:
    """The mixed number of the n-grams that end at some positions; heads divide it."""
    return np.bitwise_xor.reduce(
        [canonical[ends - lag] * factor for lag, factor in enumerate(multipliers)]
    )


def _companions(addresses: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """Neighbours in one row, as pairs of places, at most so many."""
    order = np.argsort(addresses, kind="stable")
    same = np.flatnonzero(addresses[order][1:] == addresses[order][:-1])
    kept = np.sort(generator.permutation(len(same))[:most])
    return np.stack([order[same[kept]], order[same[kept] + 1]], axis=1)


def _likeness(
    followers: Followers, chosen: np.ndarray, generator: np.random.Generator
) -> dict[str, float]:
    """Mean cosine of the pairs, of the same n-grams paired at random, and the error between."""
    left, right = map(followers.behind, chosen.T)
    alike = _cosines(left, right)
    chance = _cosines(left, [right[place] for place in generator.permutation(len(right))])
    return {
        "cosine": float(alike.mean()),
        "chance_cosine": float(chance.mean()),
        "error": float(np.std(alike - chance) / np.sqrt(len(chosen))),
    }


def _cosines(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([cosine(a, b) for a, b in zip(left, right, strict=True)])
