"""Whether probabilities mean what they say: calibration error, ranking, squared error.

Everything here compares the survival of a prefix, the product of its conditional confidences, with
whether the prefix was accepted. Slots that a round never had are NaN and count nowhere.
"""

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from torch import Tensor

BINS = 20
"""Equal-width bins of a calibration error."""
RANK_BINS = 1000
"""Bins in which the ranking is counted; pairs within one bin count one half."""
CLIP = 1e-8


def as_array(values: Tensor | np.ndarray) -> Float[np.ndarray, "..."]:
    """Numbers as float64 in numpy, from a tensor of any device and dtype or from an array."""
    if isinstance(values, Tensor):
        return values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def survived(
    accepted: Int[np.ndarray, "round"], positions: int
) -> Bool[np.ndarray, "round position"]:
    """Whether the first k drafts of every round were accepted, for k = 1..positions.

    Args:
        accepted: accepted drafts of every round, the bonus token not counted.
        positions: drafts of a block.
    """
    return accepted[:, None] > np.arange(positions)


def calibration_error(
    predicted: Float[np.ndarray, "*shape"], observed: np.ndarray, *, bins: int = BINS
) -> float:
    """Mean distance of bins' predicted from their observed rate, weighted by their records.

    Args:
        predicted: probabilities; NaN for records that do not count.
        observed: whether it happened, in the same shape.
        bins: equal-width bins; a probability p is in bin floor(p times bins).

    Returns:
        In [0, 1]; NaN if no record counts.

    Source: DSpark paper, section 3.2.1; DeepSpec deepspec/eval/dspark/confidence_head.py.
    """
    probabilities, outcomes = _counted(predicted, observed)
    if not len(probabilities):
        return float("nan")
    places = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(places, weights=probabilities - outcomes, minlength=bins)
    return float(np.abs(gaps).sum() / len(probabilities))


def ranking_quality(predicted: Float[np.ndarray, "*shape"], observed: np.ndarray) -> float:
    """Chance that a record that happened is rated above one that did not (area under the ROC).

    Args:
        predicted: probabilities; NaN for records that do not count.
        observed: whether it happened.

    Returns:
        In [0, 1], one half for a rating that says nothing; NaN if all records agree.

    Source: DeepSpec deepspec/eval/dspark/confidence_head.py, which counts in 1000 bins.
    """
    probabilities, outcomes = _counted(predicted, observed)
    places = np.minimum((probabilities * RANK_BINS).astype(np.int64), RANK_BINS - 1)
    happened = np.bincount(places, weights=outcomes, minlength=RANK_BINS)
    failed = np.bincount(places, weights=1 - outcomes, minlength=RANK_BINS)
    pairs = happened.sum() * failed.sum()
    if pairs == 0:
        return float("nan")
    below = np.cumsum(failed) - failed
    return float((happened * (below + failed / 2)).sum() / pairs)


def squared_error(predicted: Float[np.ndarray, "*shape"], observed: np.ndarray) -> float:
    """Mean squared distance of probability and outcome (Brier score); NaN if no record counts.

    Args:
        predicted: probabilities; NaN for records that do not count.
        observed: whether it happened.
    """
    probabilities, outcomes = _counted(predicted, observed)
    return float(np.mean((probabilities - outcomes) ** 2)) if len(probabilities) else float("nan")


def reliability(
    predicted: Float[np.ndarray, "*shape"], observed: np.ndarray, *, bins: int = BINS
) -> pd.DataFrame:
    """Predicted and observed rate of every bin that holds a record.

    Args:
        predicted: probabilities; NaN for records that do not count.
        observed: whether it happened.
        bins: equal-width bins.

    Returns:
        Columns bin (from 0), predicted (mean probability), observed (share that happened), count.
    """
    probabilities, outcomes = _counted(predicted, observed)
    places = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    records = pd.DataFrame({"bin": places, "predicted": probabilities, "observed": outcomes})
    grouped = records.groupby("bin", as_index=False)
    return grouped.agg(
        predicted=("predicted", "mean"), observed=("observed", "mean"), count=("observed", "size")
    )


def reliability_by_position(
    predicted: Float[np.ndarray, "round position"],
    accepted: Int[np.ndarray, "round"],
    *,
    bins: int = BINS,
) -> pd.DataFrame:
    """`reliability` of the survival of every prefix.

    Args:
        predicted: survival of every prefix, that is, running products of conditional confidences.
        accepted: accepted drafts of every round.
        bins: equal-width bins.

    Returns:
        Columns position (1-based), bin, predicted, observed, count.
    """
    outcomes = survived(accepted, predicted.shape[1])
    parts = [
        reliability(predicted[:, k], outcomes[:, k], bins=bins).assign(position=k + 1)
        for k in range(predicted.shape[1])
    ]
    return pd.concat(parts, ignore_index=True)[
        ["position", "bin", "predicted", "observed", "count"]
    ]


def _counted(predicted: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, clipped away from 0 and 1, and outcomes of the records that count."""
    counts = ~np.isnan(predicted)
    return np.clip(predicted[counts], CLIP, 1 - CLIP), np.asarray(observed)[counts].astype(float)
