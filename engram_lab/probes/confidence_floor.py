"""Calibration error beyond chance: what perfectly honest confidences would show with few rounds."""

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import binom

from engram_lab.probes.confidence import CONTEXT


def chance_gap(
    predicted: Float[np.ndarray, "bin"], count: Int[np.ndarray, "bin"]
) -> Float[np.ndarray, "bin"]:
    """Mean distance of a bin's observed rate from a probability that is right.

    Args:
        predicted: the probability of every round in a bin.
        count: rounds in it, at least 1, drawn independently.

    Source: mean absolute deviation of the binomial law, De Moivre.
    """
    least = np.floor(count * predicted) + 1
    return 2 * least * (1 - predicted) * binom.pmf(least, count, predicted) / count


def floor_frame(bins: pd.DataFrame) -> pd.DataFrame:
    """Calibration error at every position, its floor, and what is left above.

    An error over bins is never zero: rates of few rounds stray from any probability. The floor is
    the mean of what honest confidences would show with the same bins and counts. Rounds of one
    text are not independent, so it is, if anything, too low.

    Args:
        bins: rows of `probes.confidence.confidence_frame`.

    Returns:
        Columns drafter, domain, seed (those that the bins have), method, position, ece (over the
        bins as they are), floor, excess (of the error over its floor, at least 0) and rounds.

    Raises:
        ValueError: if columns or rows are missing.
    """
    needed = ("method", "position", "predicted", "observed", "count")
    missing = [name for name in needed if name not in bins]
    if missing or bins.empty:
        raise ValueError(
            f"floor_frame needs rows with columns {', '.join(needed)}; missing: "
            f"{', '.join(missing) or 'every row'}. probes.confidence.confidence_frame makes them"
        )
    predicted, count = bins["predicted"].to_numpy(float), bins["count"].to_numpy(np.int64)
    keys = [*(name for name in CONTEXT if name in bins), "method", "position"]
    sums = bins[keys].assign(
        ece=np.abs(predicted - bins["observed"]) * count,
        floor=chance_gap(predicted, count) * count,
        rounds=count,
    )
    frame = sums.groupby(keys, sort=False, as_index=False).sum()
    frame[["ece", "floor"]] = frame[["ece", "floor"]].div(frame["rounds"], axis=0)
    excess = (frame["ece"] - frame["floor"]).clip(lower=0)
    return frame.assign(excess=excess)[[*keys, "ece", "floor", "excess", "rounds"]]
