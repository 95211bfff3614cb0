"""Measured acceptance as the serving simulation draws it: rounds with confidences and outcome."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import expit

COLUMNS = ("domain", "round", "position", "logit", "accepted")

Calibrate = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class AcceptanceRecords:
    """Rounds in which a whole block was drafted and verified.

    Verifying only the first L drafts of such a round accepts min(accepted, L) of them, so any
    length rule can be replayed on the records of one run.

    Attributes:
        confidences: conditional acceptance estimates of every draft position, in 0..1; what a
            scheduler sees.
        accepted: drafts accepted from the left, 0..block.
        domain: of every round; a request draws all its rounds from one domain.
    """

    confidences: Float[np.ndarray, "round block"]
    accepted: Int[np.ndarray, " round"]
    domain: np.ndarray

    def __post_init__(self):
        rounds, block = self.confidences.shape
        if not rounds or not block:
            raise ValueError(f"records need a round and a draft position; got {rounds} and {block}")
        if len(self.accepted) != rounds or len(self.domain) != rounds:
            raise ValueError(
                f"records need confidences, accepted and domain of as many rounds; got {rounds}, "
                f"{len(self.accepted)} and {len(self.domain)}"
            )
        if not ((self.confidences >= 0) & (self.confidences <= 1)).all():
            raise ValueError("confidences of records must lie in 0..1, and some do not")
        if self.accepted.min() < 0 or self.accepted.max() > block:
            raise ValueError(
                f"accepted of records must lie in 0..{block}, the drafts of a round; got "
                f"{self.accepted.min()} to {self.accepted.max()}"
            )

    @property
    def block_size(self) -> int:
        """Drafts of a round."""
        return self.confidences.shape[1]

    @property
    def domains(self) -> list[str]:
        """Names of the domains, in alphabetical order."""
        return sorted(set(map(str, self.domain)))

    def of(self, *domains: str) -> "AcceptanceRecords":
        """The rounds of some domains.

        Args:
            domains: their names.

        Raises:
            ValueError: if a domain has no rounds.
        """
        absent = [name for name in domains if name not in self.domains]
        if absent or not domains:
            raise ValueError(f"records of {', '.join(self.domains)}; none of {absent or 'no name'}")
        chosen = np.isin(self.domain.astype(str), domains)
        return AcceptanceRecords(
            confidences=self.confidences[chosen],
            accepted=self.accepted[chosen],
            domain=self.domain[chosen],
        )


def records_from(frame: pd.DataFrame, *, calibrate: Calibrate | None = None) -> AcceptanceRecords:
    """Records of a frame with one row per draft position.

    Rounds that lack positions, or a logit at one, are left out: their text ended inside the block.

    Args:
        frame: columns domain, round, position, logit (of the conditional acceptance) and accepted
            (accepted prefix length of the round with the whole block verified, the same in all
            rows of a round).
        calibrate: from logits `[round block]` to conditional probabilities, for instance
            `Calibrator.apply`; None takes the sigmoid.

    Raises:
        ValueError: if columns are missing, no round is whole, a round has a position twice, or its
            rows disagree on what was accepted.
    """
    missing = [name for name in COLUMNS if name not in frame]
    if missing or frame.empty:
        raise ValueError(
            f"records_from needs rows with columns {', '.join(COLUMNS)}; missing: "
            f"{', '.join(missing) or 'every row'}"
        )
    rows = frame.dropna(subset=["logit"])
    twice = rows.duplicated(["domain", "round", "position"])
    if twice.any():
        domain, number, position = rows.loc[twice, ["domain", "round", "position"]].iloc[0]
        raise ValueError(
            f"round {number} of {domain} has position {position} more than once. Keep the rows of "
            "one drafter and one seed."
        )
    block = rows["position"].nunique()
    whole = rows.groupby(["domain", "round"])["position"].transform("size") == block
    rows = rows[whole].sort_values(["domain", "round", "position"])
    if rows.empty:
        raise ValueError(f"no round has a logit at each of the {block} positions")
    accepted = rows["accepted"].to_numpy(np.int64).reshape(-1, block)
    if (accepted != accepted[:, :1]).any():
        raise ValueError(
            "accepted is a prefix length, the same in all rows of a round; in some rounds it is not"
        )
    logits = rows["logit"].to_numpy(float).reshape(-1, block)
    return AcceptanceRecords(
        confidences=np.asarray((calibrate or expit)(logits), dtype=float),
        accepted=accepted[:, 0],
        domain=rows["domain"].to_numpy(object)[::block],
    )
