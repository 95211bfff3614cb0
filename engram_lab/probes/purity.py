"""Do n-grams that share a row want the same of it? How alike their next tokens are.

Rows are shared by chance, so companions should be no more alike than any two n-grams: a row then
serves several masters. Likeness is the cosine between the counts of their next tokens.
"""

import numpy as np
import pandas as pd

from engram_lab.probes.compression_text import context_ids
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
        ValueError: if no row of any table is shared by two n-grams that occur often enough.
    """
    canonical = compression.table.cpu().numpy()[documents.ids]
    inside = np.ones(documents.token_count, dtype=bool)
    inside[documents.offsets[1:] - 1] = False
    generator, rows = np.random.default_rng(0), []
    for order, lengths in enumerate(rule.lengths, start=2):
        numbers, ends = context_ids(canonical, documents.offsets, order)
        numbers, ends = numbers[inside[ends]], ends[inside[ends]]
        _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
        places = np.argsort(numbers, kind="stable")
        behind = np.split(documents.ids[ends[places] + 1], np.cumsum(counts)[:-1])
        frequent = np.flatnonzero(counts >= least)
        mixed = np.zeros(len(frequent), np.int64)
        for lag in range(order):
            mixed ^= canonical[ends[first[frequent]] - lag] * rule.multipliers[lag]
        for head, length in enumerate(lengths):
            chosen = _pairs(mixed % length, pairs, generator)
            if not len(chosen):
                continue
            left, right = ([behind[frequent[i]] for i in side] for side in chosen.T)
            mingled = [right[i] for i in generator.permutation(len(right))]
            alike, chance = _cosines(left, right), _cosines(left, mingled)
            place = {"layer": layer, "order": order, "head": head, "pairs": len(chosen)}
            error = float(np.std(alike - chance) / np.sqrt(len(chosen)))
            place |= {"cosine": alike.mean(), "chance_cosine": chance.mean()}
            rows.append(place | {"error": error})
    if not rows:
        raise ValueError(
            f"no row is shared by two n-grams that occur {least} times each in "
            f"{documents.token_count} tokens; take more text, fewer rows or a smaller least="
        )
    return pd.DataFrame(rows)


def _pairs(addresses: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """Neighbours in one row, as pairs of places, at most so many."""
    order = np.argsort(addresses, kind="stable")
    same = np.flatnonzero(addresses[order][1:] == addresses[order][:-1])
    kept = np.sort(generator.permutation(len(same))[:most])
    return np.stack([order[same[kept]], order[same[kept] + 1]], axis=1)


def _cosines(left: list[np.ndarray], right: list[np.ndarray]) -> np.ndarray:
    return np.array([_cosine(a, b) for a, b in zip(left, right, strict=True)])


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Cosine between the counts of the values of two samples."""
    values, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a = np.bincount(places[: len(first)], minlength=len(values))
    b = np.bincount(places[len(first) :], minlength=len(values))
    return float(a @ b / np.sqrt(float(a @ a) * float(b @ b)))
