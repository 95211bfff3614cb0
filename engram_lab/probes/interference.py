"""Whom a collision hurts: the foreign traffic in a key's rows, by how frequent the key is.

A frequent key shares its row as often as a rare one, but it outweighs its company. Frequencies are
put into classes of powers of two.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from engram_lab.memory.keys import KeyCounts
from engram_lab.probes.collisions import landings
from engram_lab.probes.hash_rules import HashRule


def interference_frame(
    rule: HashRule,
    counts: Mapping[int, KeyCounts],
    *,
    layer: int,
    heads: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Share of foreign look-ups in the rows of a key, by class of frequency and number of heads.

    In one head the interference of a key is 1 - (its look-ups) / (look-ups of all keys in its row).
    Over several heads it is their mean, or that of the cleanest row.

    Args:
        rule: the hash.
        counts: distinct keys by order.
        layer: written into the frame.
        heads: numbers of heads to report, each the first so many; all of them by default.

    Returns:
        One row per order, number of heads and class of frequency that has a key, with columns
        layer, order, heads, frequency (lower end of the class: 1, 2, 4, ...), keys, traffic_share
        (of all look-ups), mean_interference, cleanest_interference and clean_share (of keys that
        have some row for themselves), averaged over the keys of the class.

    Raises:
        ValueError: if an order has no key, or a number of heads is not to be had.
    """
    parts = []
    for order in rule.orders_of(counts):
        wanted, keys = _heads_of(rule, order, heads), counts[order]
        for number, mean, least in _by_heads(rule, order, keys):
            if number in wanted:
                classes = _by_class(keys, mean, least)
                parts.append(classes.assign(layer=layer, order=order, heads=number))
    frame = pd.concat(parts, ignore_index=True)
    index = ["layer", "order", "heads"]
    return frame[index + [name for name in frame if name not in index]]


def look_up_interference(
    rule: HashRule,
    counts: Mapping[int, KeyCounts],
    *,
    layer: int,
    heads: Sequence[int] | None = None,
) -> pd.DataFrame:
    """`interference_frame` averaged over look-ups instead of the keys of a class.

    Args:
        rule: the hash.
        counts: distinct keys by order.
        layer: written into the frame.
        heads: numbers of heads to report; all of them by default.

    Returns:
        One row per order and number of heads, with columns layer, order, heads, rows (of the first
        head), mean_interference, cleanest_interference and clean_share.

    Raises:
        ValueError: as `interference_frame`.
    """
    rows = []
    for order in rule.orders_of(counts):
        wanted, keys = _heads_of(rule, order, heads), counts[order]
        weights = keys.counts / keys.total
        for number, mean, least in _by_heads(rule, order, keys):
            if number in wanted:
                row = {"layer": layer, "order": order, "heads": number}
                row |= {"rows": rule.lengths[order - 2][0]}
                row |= {"mean_interference": float(weights @ mean)}
                row |= {"cleanest_interference": float(weights @ least)}
                rows.append(row | {"clean_share": float(weights[least == 0].sum())})
    return pd.DataFrame(rows)


def foreign_share(addresses: np.ndarray, rows: int, keys: KeyCounts) -> np.ndarray:
    """Interference of every key in one table: the share of its row's look-ups that is not its own.

    Args:
        addresses: row of each key.
        rows: rows of the table.
        keys: the keys with their counts.
    """
    traffic = np.bincount(addresses, weights=keys.counts, minlength=rows)
    return 1 - keys.counts / traffic[addresses]


def _heads_of(rule: HashRule, order: int, heads: Sequence[int] | None) -> set[int]:
    have = len(rule.lengths[order - 2])
    wanted = set(range(1, have + 1)) if heads is None else set(heads)
    if not wanted <= set(range(1, have + 1)):
        raise ValueError(f"heads must lie in 1..{have}, those of order {order}; got {heads}")
    return wanted


def _by_heads(
    rule: HashRule, order: int, keys: KeyCounts
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For the first 1, 2, ... heads: each key's mean interference and that of its cleanest row."""
    total, least = np.zeros(len(keys)), np.ones(len(keys))
    for _, head, rows, addresses in landings(rule, {order: keys}):
        foreign = foreign_share(addresses, rows, keys)
        total += foreign
        np.minimum(least, foreign, out=least)
        yield head + 1, total / (head + 1), least


def _by_class(keys: KeyCounts, mean: np.ndarray, least: np.ndarray) -> pd.DataFrame:
    """Averages over the keys of each class of frequency."""
    octave = np.frexp(keys.counts.astype(float))[1] - 1  # exact for counts below 2^53
    number = np.bincount(octave)
    full = np.flatnonzero(number)
    average = {
        "mean_interference": mean,
        "cleanest_interference": least,
        "clean_share": least == 0,
    }
    sums = np.bincount(octave, weights=keys.counts)
    return pd.DataFrame(
        {
            "frequency": 2**full,
            "keys": number[full],
            "traffic_share": sums[full] / keys.total,
        }
        | {
            name: (np.bincount(octave, weights=values) / np.maximum(number, 1))[full]
            for name, values in average.items()
        }
    )
