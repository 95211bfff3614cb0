"""Intervals by drawing whole documents anew: their tokens are not independent of one another."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int64

Statistic = Callable[[np.ndarray], float]
"""From a weight for every item to a number."""

LEVEL = 0.95
RESAMPLES = 1_000


def draws(
    size: int, *, resamples: int = RESAMPLES, seed: int = 0
) -> Float[np.ndarray, "draw size"]:
    """How often each of `size` things is drawn, `size` draws with replacement, many times over."""
    generator = np.random.default_rng(seed)
    chosen = generator.integers(size, size=(resamples, size))
    flat = chosen + size * np.arange(resamples)[:, None]
    counts = np.bincount(flat.ravel(), minlength=resamples * size)
    return counts.reshape(resamples, size).astype(float)


def middle(samples: Float[np.ndarray, "draw"], level: float = LEVEL) -> tuple[float, float]:
    """Ends of the middle `level` of samples; NaN where some are not finite."""
    if not np.isfinite(samples).all():
        return float("nan"), float("nan")
    low, high = np.quantile(samples, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def over_documents(
    statistic: Statistic,
    documents: Int64[np.ndarray, "item"],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float, float]:
    """A weighted statistic of items, and its bootstrap interval over their documents.

    Args:
        statistic: from a weight for every item to a number.
        documents: document of every item.
        resamples: bootstrap samples.
        seed: of the draws.

    Returns:
        Value, lower end, upper end.
    """
    _, own = np.unique(documents, return_inverse=True)
    value = statistic(np.ones(len(own)))
    counts = draws(int(own.max()) + 1, resamples=resamples, seed=seed)
    samples = np.array([statistic(count[own]) for count in counts])
    return (float(value), *middle(samples))


def auc(scores: Float[np.ndarray, "item"], labels: Bool[np.ndarray, "item"]) -> float:
    """Probability that a labelled item has a higher score than one without, ties counting half.

    Args:
        scores: any numbers.
        labels: which items are labelled.

    Returns:
        A number in [0, 1], 0.5 for scores that say nothing; NaN if all labels are the same.
    """
    return auc_statistic(scores, labels)(np.ones(len(scores)))


def auc_statistic(scores: Float[np.ndarray, "item"], labels: Bool[np.ndarray, "item"]) -> Statistic:
    """`auc` as a function of how often each item counts; scores are sorted once."""
    levels, level = np.unique(scores, return_inverse=True)

    def statistic(weights: np.ndarray) -> float:
        hits = np.bincount(level, weights=weights * labels, minlength=len(levels))
        misses = np.bincount(level, weights=weights * ~labels, minlength=len(levels))
        pairs = hits.sum() * misses.sum()
        below = np.cumsum(misses) - misses / 2
        return float(hits @ below / pairs) if pairs else float("nan")

    return statistic


def rank_statistic(
    first: Float[np.ndarray, "item"], second: Float[np.ndarray, "item"]
) -> Statistic:
    """Spearman's correlation as a function of how often each item counts; NaN for a constant."""
    levels = [np.unique(values, return_inverse=True)[1] for values in (first, second)]

    def statistic(weights: np.ndarray) -> float:
        ranks = []
        for level in levels:
            mass = np.bincount(level, weights=weights)
            mid_rank = (np.cumsum(mass) - mass / 2)[level]
            ranks.append(mid_rank - np.average(mid_rank, weights=weights))
        one, other = ranks
        scale = (weights @ one**2) * (weights @ other**2)
        return float((weights * one) @ other / scale**0.5) if scale > 0 else float("nan")

    return statistic
