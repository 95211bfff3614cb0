"""Claims about any number of a trained model, such as an accuracy: its interval over seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student_t

from engram_lab.experiments.verdict import Verdict

T_OVER_SEEDS = "Student's t over seeds"


def seed_claim(
    by_seed: Mapping[Any, float],
    *,
    claim: str,
    unit: str,
    errors: Mapping[Any, float] | None = None,
    n_items: int = 0,
    level: float = 0.95,
) -> Verdict:
    """Verdict on the claim that a number is below 0 for models of any seed.

    Turn what is claimed into such a number: "A exceeds B" into B - A, seed by seed.

    Args:
        by_seed: the number of every seed, by seed.
        claim: the claim, in words.
        unit: of the number, in words.
        errors: standard error of each number over its items, by seed; the interval is Student's t
            over the seeds, or the normal one of these errors where that is wider.
        n_items: items behind each number.
        level: coverage of the interval.

    Raises:
        ValueError: if there is no seed, or a number is not finite.
    """
    values = np.array(list(by_seed.values()), dtype=float)
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(
            f"claim {claim!r} needs a finite number for every seed; got {dict(by_seed)}"
        )
    halves = [0.0]
    if len(values) > 1:
        quantile = student_t.ppf(0.5 + level / 2, len(values) - 1)
        halves.append(quantile * values.std(ddof=1) / len(values) ** 0.5)
    if errors is not None:
        spread = np.array([errors[seed] for seed in by_seed], dtype=float)
        halves.append(norm.ppf(0.5 + level / 2) * np.sqrt((spread**2).sum()) / len(values))
    centre, half = float(values.mean()), float(max(halves))
    return Verdict(
        claim=claim,
        difference=centre,
        low=centre - half,
        high=centre + half,
        level=level,
        n_seeds=len(values),
        n_documents=n_items,
        resampled=T_OVER_SEEDS if errors is None else f"{T_OVER_SEEDS}, over items where wider",
        by_seed=tuple(float(value) for value in values),
        unit=unit,
    )
