"""How evenly a hash fills its rows: keys per row as a histogram, and the chi-square test of it."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import binom

from engram_lab.memory.keys import KeyCounts
from engram_lab.probes.collisions import landings
from engram_lab.probes.hash_rules import HashRule


def load_frame(
    rule: HashRule, counts: Mapping[int, KeyCounts], *, layer: int, most: int = 8
) -> pd.DataFrame:
    """Rows by the number of keys they hold, counted and as even spreading predicts.

    Args:
        rule: the hash.
        counts: distinct keys by order.
        layer: written into the frame.
        most: longest entry; the last one stands for that many keys or more.

    Returns:
        Columns layer, order, head, held (keys in a row), row_share (of the table's rows) and
        predicted_share (binomial).

    Raises:
        ValueError: if an order has no key, or `most` is below 1.
    """
    if most < 1:
        raise ValueError(f"load_frame needs most to be at least 1 key; got {most}")
    parts = []
    for order, head, rows, addresses in landings(rule, counts):
        loads = np.minimum(np.bincount(addresses, minlength=rows), most)
        held = np.arange(most + 1)
        predicted = binom.pmf(held, len(addresses), 1 / rows)
        predicted[most] = binom.sf(most - 1, len(addresses), 1 / rows)
        parts.append(
            pd.DataFrame(
                {
                    "layer": layer,
                    "order": order,
                    "head": head,
                    "held": held,
                    "row_share": np.bincount(loads, minlength=most + 1) / rows,
                    "predicted_share": predicted,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def evenness_frame(rule: HashRule, counts: Mapping[int, KeyCounts], *, layer: int) -> pd.DataFrame:
    """Pearson's chi-square of the loads against even spreading, table by table.

    Args:
        rule: the hash.
        counts: distinct keys by order.
        layer: written into the frame.

    Returns:
        Columns layer, order, head, keys, rows, chi_square (of rows - 1 degrees of freedom) and
        deviation (its distance from what even spreading gives, in standard deviations: within 3 or
        so of 0 the hash is as good as chance, far above it is worse, far below more regular).

    Raises:
        ValueError: if an order has no key.
    """
    records = []
    for order, head, rows, addresses in landings(rule, counts):
        keys, loads = len(addresses), np.bincount(addresses, minlength=rows).astype(float)
        chi_square = float(loads @ loads) * rows / keys - keys
        # the exact variance of the statistic, also where rows outnumber keys
        spread = math.sqrt(max(2 * (rows - 1) * (keys - 1) / keys, 1e-12))
        records.append(
            {
                "layer": layer,
                "order": order,
                "head": head,
                "keys": keys,
                "rows": rows,
                "chi_square": chi_square,
                "deviation": (chi_square - (rows - 1)) / spread,
            }
        )
    return pd.DataFrame(records)
