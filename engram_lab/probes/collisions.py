"""Where n-grams land: how many share a row, predicted and counted, by key and by look-up.

A hash that spreads n keys evenly over M rows leaves a key alone with probability (1 - 1/M)^(n-1),
whatever its frequency. What is counted must agree within its sampling error; a failure is a fault
of the hash.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int64
from torch import Tensor

from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.history import MemoryContext
from engram_lab.memory.keys import KeyCounter, KeyCounts
from engram_lab.probes.hash_rules import HashRule


def predicted_share(keys: int, rows: int) -> float:
    """Expected share of keys that share their row with another key.

    Args:
        keys: distinct keys.
        rows: rows of the table.

    Raises:
        ValueError: if either is below 1.
    """
    if keys < 1 or rows < 1:
        raise ValueError(f"a prediction needs at least 1 key and 1 row; got {keys} and {rows}")
    return 0.0 if keys == 1 else -math.expm1((keys - 1) * _log_miss(rows, 1))


def share_error(keys: int, rows: int) -> float:
    """Standard deviation of the counted share under even spreading.

    Args:
        keys: distinct keys.
        rows: rows of the table.

    Raises:
        ValueError: if either is below 1.
    """
    alone = 1 - predicted_share(keys, rows)
    if keys < 3:
        return math.sqrt(alone * (1 - alone))  # two keys are in company together or not at all
    # a pair of keys that are both alone: the other rows for each other, two rows shut to the rest
    pair = math.exp(_log_miss(rows, 1) + (keys - 2) * _log_miss(rows, 2))
    variance = alone * (1 - alone) / keys + (1 - 1 / keys) * (pair - alone**2)
    return math.sqrt(max(variance, 0.0))


def collision_frame(
    ngram_hash: NgramHash,
    canonical_ids: Int64[Tensor, "batch seq"],
    *,
    context: MemoryContext | None = None,
) -> pd.DataFrame:
    """Collisions of the n-grams of some texts in every table of one layer.

    Args:
        ngram_hash: the hash of that layer.
        canonical_ids: ids as they are hashed; rows are separate texts.
        context: documents and mask of these positions.

    Returns:
        See `collisions_of_counts`.

    Raises:
        ValueError: if there is no position, or an id is outside the vocabulary.
    """
    if canonical_ids.numel() == 0:
        raise ValueError("collision_frame needs at least one position; got none")
    counter = KeyCounter(ngram_hash)
    counter.add(canonical_ids, context=context)
    rule = HashRule.of(ngram_hash)
    return collisions_of_counts(rule, counter.counts(), layer=ngram_hash.layer_id)


def collisions_of_counts(
    rule: HashRule, counts: Mapping[int, KeyCounts], *, layer: int
) -> pd.DataFrame:
    """`collision_frame` for keys that were counted before, and for any hash.

    Args:
        counts: distinct keys by order, as `memory.keys` counts them.
        layer: written into the frame.

    Returns:
        One row per order and head, with columns layer, order, head, keys (distinct n-grams), rows,
        load (keys per row), predicted_share and collided_share (of keys that share their row with
        another key), share_error (one standard deviation of the latter), traffic_share (look-ups
        of such keys, out of all), traffic_error (one standard deviation) and interference (share of
        the traffic of a key's row that is other keys', averaged over look-ups).

    Raises:
        ValueError: if an order has no key.
    """
    return pd.DataFrame(
        [
            {"layer": layer, "order": order, "head": head}
            | _collisions(addresses, rows, counts[order])
            for order, head, rows, addresses in landings(rule, counts)
        ]
    )


def joint_frame(rule: HashRule, counts: Mapping[int, KeyCounts], *, layer: int) -> pd.DataFrame:
    """What several heads repair: keys in company in all of the first heads, and keys no head parts.

    Args:
        counts: distinct keys by order.
        layer: written into the frame.

    Returns:
        One row per order and number of heads, with columns layer, order, heads (the first so many),
        keys, predicted_share and collided_share (of keys with company in every one of these heads,
        each time with whatever key), predicted_twins and twin_share (of keys that share all these
        rows with one and the same other key, so that no head tells the two apart).

    Raises:
        ValueError: if an order has no key.
    """
    records = []
    for order in rule.orders_of(counts):
        keys = counts[order]
        company = np.ones(len(keys), dtype=bool)
        group = np.zeros(len(keys), np.int64)
        for _, head, rows, addresses in landings(rule, {order: keys}):
            company &= in_company(addresses, rows)
            group = _regrouped(group, addresses, rows)
            lengths = rule.lengths[order - 2][: head + 1]
            single = [predicted_share(len(keys), length) for length in set(lengths)]
            records.append(
                {
                    "layer": layer,
                    "order": order,
                    "heads": head + 1,
                    "keys": len(keys),
                    "predicted_share": math.prod(single),
                    "collided_share": company.mean(),
                    # heads agree on two keys when every length divides their difference
                    "predicted_twins": predicted_share(len(keys), math.lcm(*lengths)),
                    "twin_share": (group >= 0).mean(),
                }
            )
    return pd.DataFrame(records)


def landings(
    rule: HashRule, counts: Mapping[int, KeyCounts]
) -> Iterator[tuple[int, int, int, np.ndarray]]:
    """Order, head, rows and the addresses of all keys, for every table of the orders counted.

    Raises:
        ValueError: if an order has no key.
    """
    for order in rule.orders_of(counts):
        if not len(counts[order]):
            raise ValueError(f"collisions need at least one key of every order; none of {order}")
        numbers = rule.numbers(counts[order])
        for head, rows in enumerate(rule.lengths[order - 2]):
            yield order, head, rows, numbers % rows


def in_company(addresses: Int64[np.ndarray, "key"], rows: int) -> Bool[np.ndarray, "key"]:
    """Whether each key shares its row with another."""
    return np.bincount(addresses, minlength=rows)[addresses] > 1


def _collisions(addresses: np.ndarray, rows: int, keys: KeyCounts) -> dict[str, int | float]:
    """Measured columns of one table."""
    company = in_company(addresses, rows)
    expected, total = predicted_share(len(keys), rows), keys.total
    weights = keys.counts / total
    traffic = np.bincount(addresses, weights=weights, minlength=rows)[addresses]
    return {
        "keys": len(keys),
        "rows": rows,
        "load": len(keys) / rows,
        "predicted_share": expected,
        "collided_share": float(company.mean()),
        "share_error": share_error(len(keys), rows),
        "traffic_share": float(weights[company].sum()),
        "traffic_error": math.sqrt(expected * (1 - expected) * float(weights @ weights)),
        "interference": float(weights @ np.where(company, 1 - weights / traffic, 0.0)),
    }


def _regrouped(group: np.ndarray, addresses: np.ndarray, rows: int) -> np.ndarray:
    """Groups of keys that agree in one head more; -1 for a key that stands alone by now."""
    together = np.flatnonzero(group >= 0)
    # groups are numbered below the keys, so this fits: keys times rows stays below 2^63
    places, sizes = np.unique(
        group[together] * rows + addresses[together], return_inverse=True, return_counts=True
    )[1:]
    split = np.full(len(group), -1, np.int64)
    split[together] = np.where(sizes[places] > 1, places, -1)
    return split


def _log_miss(rows: int, taken: int) -> float:
    """Logarithm of the chance that a key misses `taken` given rows."""
    return -math.inf if taken >= rows else math.log1p(-taken / rows)
