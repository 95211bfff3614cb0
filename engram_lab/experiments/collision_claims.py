"""Whether counted collisions agree with the prediction: deviations of many tables at once."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import chi2, norm

LEVEL = 0.99
"""Chance that a sound hash passes."""
LEAST = 10
"""Keys that must be expected on either side (in company, alone) for a deviation to be normal."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Deviations of a count from its prediction, in standard deviations, table by table.

    Attributes:
        claim: what is predicted, in words.
        tables: tables judged.
        mean: mean deviation.
        largest: largest deviation, sign dropped.
        allowed: what the largest of so many may be by chance.
        p_value: chance that a sound hash strays as far, all tables together (chi-square).
    """

    claim: str
    tables: int
    mean: float
    largest: float
    allowed: float
    p_value: float

    @property
    def outcome(self) -> Literal["supported", "contradicted"]:
        """Supported unless the largest deviation or all of them together are too large."""
        sound = self.largest <= self.allowed and self.p_value >= 1 - LEVEL
        return "supported" if sound else "contradicted"

    @property
    def sentence(self) -> str:
        """The outcome in words, with the numbers that say so."""
        half = norm.ppf(0.975) / self.tables**0.5
        return (
            f"{self.claim}: {self.outcome}. In {self.tables} tables count minus prediction is "
            f"{self.mean:+.2f} standard deviations on average (95% interval "
            f"{self.mean - half:+.2f} to {self.mean + half:+.2f}) and {self.largest:.1f} at most; "
            f"chance allows {self.allowed:.1f} (p = {self.p_value:.2f} for all together)."
        )

    def __str__(self) -> str:
        return self.sentence


def collision_claims(frame: pd.DataFrame, *, where: str) -> list[Agreement]:
    """Agreements on "so many keys have company" and "so many look-ups", over all tables.

    Args:
        frame: rows of `probes.collisions.collisions_of_counts`. Tables where hardly any key is
            expected alone, or in company, are left out: their deviations are not normal.
        where: opens each claim.

    Raises:
        ValueError: if no table is left.
    """
    rows = frame[_expected_enough(frame)]
    if rows.empty:
        raise ValueError(
            f"collision_claims needs a table with {LEAST} keys expected alone and in company; got "
            f"{len(frame)} tables without"
        )
    names = {
        "collided_share": ("keys", "share_error"),
        "traffic_share": ("look-ups", "traffic_error"),
    }
    return [
        agreement(
            ((rows[counted] - rows["predicted_share"]) / rows[error]).to_numpy(float),
            claim=f"{where}: the share of {words} in company is the predicted one",
        )
        for counted, (words, error) in names.items()
    ]


def head_claim(frame: pd.DataFrame, *, where: str) -> Agreement:
    """Agreement on "company in every head is the product over heads".

    Args:
        frame: rows of `probes.collisions.joint_frame` of sound hashes.
        where: opens the claim.

    Raises:
        ValueError: if no row has enough keys expected in company in every head.
    """
    rows = frame[_expected_enough(frame)]
    if rows.empty:
        raise ValueError(f"head_claim needs rows with {LEAST} keys expected on either side")
    share = rows["predicted_share"]
    error = np.sqrt(share * (1 - share) / rows["keys"])
    deviations = ((rows["collided_share"] - share) / error).to_numpy(float)
    return agreement(deviations, claim=f"{where}: company in every head is the product over heads")


def agreement(deviations: Float[np.ndarray, "table"], *, claim: str) -> Agreement:
    """Judge deviations that are standard normal where the prediction holds.

    Args:
        deviations: of every table, in standard deviations.
        claim: what is predicted.

    Raises:
        ValueError: if there is none.
    """
    tables = len(deviations)
    if not tables:
        raise ValueError("an agreement needs at least one deviation; got none")
    return Agreement(
        claim=claim,
        tables=tables,
        mean=float(deviations.mean()),
        largest=float(np.abs(deviations).max()),
        allowed=float(norm.ppf(0.5 + LEVEL ** (1 / tables) / 2)),
        p_value=float(chi2.sf(float(deviations @ deviations), tables)),
    )


def _expected_enough(frame: pd.DataFrame) -> pd.Series:
    """Whether enough keys are expected alone, and in company, for normal deviations."""
    share = frame["predicted_share"]
    return frame["keys"] * np.minimum(share, 1 - share) >= LEAST
