"""Temperatures that follow the traffic: decayed counts of logits and of what became of them."""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

GRID = np.geomspace(0.125, 8.0, 49)
REACH = 8
"""Logits are counted in bins of width 1 from -8 to 8; the outermost take what lies outside."""


class OnlineTemperatures:
    """One temperature per position, for the conditional confidence, updated after every step.

    Counts of trials and hits by logit bin fade by `decay` a step. A position's temperature is the
    grid's best for its counts, drawn towards the best for all positions together, and that one
    towards 1, as long as there are few trials. The objective is the conditional rate of drafts that
    were reached; that of `fit_sequential` is the survival of prefixes, so the two differ.

    Args:
        positions: drafts of a block.
        decay: share of the counts that a step leaves.
        prior_weight: trials at which a fit counts as much as what it is drawn towards.

    Raises:
        ValueError: if there is no position, the decay is outside (0, 1] or the weight negative.

    Source: vllm-project/vllm, dspark/online_sts.py.
    """

    def __init__(self, positions: int, *, decay: float = 0.999, prior_weight: float = 64.0):
        if positions < 1 or not 0 < decay <= 1 or prior_weight < 0:
            raise ValueError(
                "OnlineTemperatures needs at least 1 position, a decay in (0, 1] and a "
                f"prior_weight of at least 0; got {positions}, {decay} and {prior_weight}"
            )
        self.positions, self.decay, self.prior_weight = positions, decay, prior_weight
        self._trials = np.zeros((positions, 2 * REACH))
        self._hits = np.zeros((positions, 2 * REACH))

    def update(
        self,
        logits: Float[np.ndarray, "request position"],
        accepted: Int[np.ndarray, "request"],
        *,
        verified: Int[np.ndarray, "request"] | None = None,
    ) -> None:
        """Count one verification step.

        Args:
            logits: raw confidence logits of what was drafted; NaN for slots that a block lacks.
            accepted: accepted drafts of every request.
            verified: drafts that were verified; all that have a logit by default.

        Raises:
            ValueError: if the number of positions differs, or more was accepted than verified.
        """
        if logits.shape[1] != self.positions:
            raise ValueError(
                f"OnlineTemperatures counts {self.positions} positions; got {logits.shape[1]}"
            )
        drafted = (~np.isnan(logits)).sum(1)
        verified = drafted if verified is None else np.minimum(verified, drafted)
        if (accepted > verified).any():
            request = int(np.argmax(accepted > verified))
            raise ValueError(
                f"no more drafts can be accepted than were verified; request {request} has "
                f"{accepted[request]} of {verified[request]}"
            )
        slots = np.arange(self.positions)
        reached = slots < np.minimum(accepted + 1, verified)[:, None]
        hit = slots < accepted[:, None]
        places = np.nan_to_num(np.floor(logits + REACH)).clip(0, 2 * REACH - 1).astype(np.int64)
        self._trials *= self.decay
        self._hits *= self.decay
        for counts, chosen in ((self._trials, reached), (self._hits, hit)):
            requests, positions = np.nonzero(chosen)
            np.add.at(counts, (positions, places[requests, positions]), 1.0)

    @property
    def temperatures(self) -> Float[np.ndarray, "position"]:
        """Temperature of every position; 1 as long as nothing was counted."""
        pooled_trials, pooled_hits = self._trials.sum(0), self._hits.sum(0)
        pooled = self._weight(pooled_trials) * _best(pooled_trials, pooled_hits)
        logs = []
        for trials, hits in zip(self._trials, self._hits, strict=True):
            weight = self._weight(trials)
            logs.append(weight * _best(trials, hits) + (1 - weight) * pooled)
        return np.exp(logs)

    def _weight(self, trials: np.ndarray) -> float:
        count = trials.sum()
        return count / (count + self.prior_weight) if count else 0.0


def _best(trials: np.ndarray, hits: np.ndarray) -> float:
    """Logarithm of the first temperature whose rates are nearest to those counted."""
    middles = np.arange(-REACH, REACH) + 0.5
    rates = expit(middles / GRID[:, None])
    return float(np.log(GRID[np.argmin(np.abs(rates * trials - hits).sum(1))]))
