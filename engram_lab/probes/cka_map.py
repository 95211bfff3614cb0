"""CKA of every pair of layers: estimates, replicates over halves of the samples, reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float64

LEVEL = 0.95  # of every interval
GROUPS = 16  # of samples, halves of which are drawn
FEWEST_GROUPS = 8
REPLICATES = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class CKAMap:
    """Similarity of the layers of two models; by convention a is the plain one, b the other.

    Attributes:
        values: the estimates; NaN where a reason says why.
        replicates: the same from halves of the samples, around `values`; none where `note` says
            why.
        reasons: why a value is missing, "" where it is not.
        layers_a: depth of each row: 0 is the stream before the first block, l after l blocks.
        layers_b: depth of each column.
        estimator: how it was estimated.
        samples: positions compared.
        note: why there are no replicates, or "".
    """

    values: Float64[np.ndarray, "layer_a layer_b"]
    replicates: Float64[np.ndarray, "replicate layer_a layer_b"]
    reasons: tuple[tuple[str, ...], ...]
    layers_a: tuple[int, ...]
    layers_b: tuple[int, ...]
    estimator: str
    samples: int
    note: str = ""

    def frame(self) -> pd.DataFrame:
        """One row per pair of layers.

        Returns:
            Columns layer_a, layer_b, estimator, cka, low, high (95 % of the replicates), reason
            (why a number is missing, else "") and samples.
        """
        low, high = interval(self.replicates)
        rows = [
            {
                "layer_a": layer_a,
                "layer_b": layer_b,
                "estimator": self.estimator,
                "cka": self.values[i, j],
                "low": low[i, j],
                "high": high[i, j],
                "reason": self.reasons[i][j] or self.note,
                "samples": self.samples,
            }
            for i, layer_a in enumerate(self.layers_a)
            for j, layer_b in enumerate(self.layers_b)
        ]
        return pd.DataFrame(rows)


def half_draws(groups: int, seed: int = 0) -> Float64[np.ndarray, "draw group"]:
    """First all groups, then a thousand times half of them; only all where there are fewer than 8.

    Halves are drawn without replacement, since a sample counted twice would be like itself. A
    statistic of half the samples scatters around that of all of them as that one does around the
    truth.

    Source: Shao, Wu 1989 (doi:10.1214/aos/1176347263), the delete-d jackknife.
    """
    if groups < FEWEST_GROUPS:
        return np.ones((1, groups))
    ranks = np.random.default_rng(seed).random((REPLICATES, groups)).argsort(axis=1)
    halves = ranks < groups // 2
    return np.concatenate([np.ones((1, groups)), halves.astype(float)])


def map_of_draws(
    hsic: tuple[
        Float64[np.ndarray, "draw layer_a layer_b"],
        Float64[np.ndarray, "draw layer_a"],
        Float64[np.ndarray, "draw layer_b"],
    ],
    *,
    faults: tuple[Sequence[str], Sequence[str]],
    groups: int,
    **names: object,
) -> CKAMap:
    """The map from HSIC of a with b, of a with itself and of b with itself.

    Args:
        hsic: for all samples, then for every half.
        faults: what keeps each layer of a, and of b, from a CKA, or "".
        groups: of the draws.
        names: layers_a, layers_b, estimator and samples of the map.
    """
    between, within_a, within_b = hsic
    reasons = tuple(
        tuple("; ".join(filter(None, (one, other))) for other in faults[1]) for one in faults[0]
    )
    known = np.array([[not reason for reason in row] for row in reasons])
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sqrt(within_a)[:, :, None] * np.sqrt(within_b)[:, None, :]
        drawn = np.where(known & (scale > 0), between / scale, np.nan)
    values, halves = drawn[0], drawn[1:]
    if len(halves):
        taken = groups // 2
        spread = (halves - halves.mean(axis=0)) * np.sqrt(taken / (groups - taken))
        halves = np.clip(values + spread, -1, 1)  # as every CKA is
    note = f"no interval: {groups} groups of samples, fewer than {FEWEST_GROUPS}"
    return CKAMap(
        values=values,
        replicates=halves,
        reasons=reasons,
        note="" if len(halves) else note,
        **names,
    )


def interval(
    replicates: Float64[np.ndarray, "replicate *rest"],
) -> tuple[Float64[np.ndarray, "*rest"], Float64[np.ndarray, "*rest"]]:
    """Bounds of the middle 95 % of replicates; NaN where more than one in twenty is missing."""
    shape = replicates.shape[1:]
    low, high = np.full(shape, np.nan), np.full(shape, np.nan)
    if not len(replicates):
        return low, high
    known = np.isnan(replicates).mean(axis=0) <= 1 - LEVEL
    if known.any():
        tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        low[known], high[known] = np.nanquantile(replicates[:, known], tails, axis=0)
    return low, high
