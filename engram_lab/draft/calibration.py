"""Confidences made honest: a temperature or a monotone curve for every draft position.

Calibration changes what a confidence says, and with it how many drafts are verified; which tokens
are drafted, and which come out, it cannot change.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import isotonic_regression
from scipy.special import expit
from torch import Tensor

from engram_lab.draft.online import OnlineTemperatures
from engram_lab.draft.reliability import as_array, calibration_error, survived

TEMPERATURES = tuple(round(0.5 + 0.05 * step, 2) for step in range(51))
"""Temperatures that are tried: 0.5 to 3.0."""
METHODS = ("raw", "sequential", "isotonic", "online")


class Calibrator:
    """Turns the logits of a confidence head into conditional confidences that can be believed.

        Calibrator("sequential").fit(logits, accepted).apply(new_logits)

    Methods: "raw" changes nothing; "sequential" is the paper's temperature scaling of the survival
    of prefixes; "isotonic" is a free monotone curve for the conditional rate at every position;
    "online" counts the rounds one after the other as `OnlineTemperatures` does and keeps the
    temperatures it ends with.

    Args:
        method: one of `METHODS`.

    Attributes:
        method: as given.
        temperatures: one per position, once fitted; None for isotonic curves.

    Raises:
        ValueError: if the method is unknown.
    """

    def __init__(self, method: str = "sequential"):
        if method not in METHODS:
            raise ValueError(
                f"Calibrator.method must be one of {', '.join(METHODS)}; got {method!r}"
            )
        self.method = method
        self.temperatures: tuple[float, ...] | None = None
        self._curves: list[_Curve] | None = None

    @property
    def positions(self) -> int:
        """Draft positions it was fitted on; 0 before.

        Higher positions of a block cannot be calibrated.
        """
        return len(self.temperatures or self._curves or ())

    def fit(
        self, logits: Float[np.ndarray, "round position"], accepted: Int[np.ndarray, "round"]
    ) -> "Calibrator":
        """Fit to rounds whose whole block was verified.

        Args:
            logits: raw confidence logits; NaN for slots that a round lacks.
            accepted: accepted drafts of every round.

        Returns:
            Itself.

        Raises:
            ValueError: as `check_rounds`.
        """
        check_rounds(logits, accepted)
        positions = logits.shape[1]
        self._curves = None
        if self.method == "isotonic":
            self.temperatures = None
            self._curves = [_Curve(*_trials(logits, accepted, k)) for k in range(positions)]
        elif self.method == "sequential":
            self.temperatures = fit_sequential(logits, accepted)
        elif self.method == "online":
            online = OnlineTemperatures(positions)
            for row, count in zip(logits, accepted, strict=True):
                online.update(row[None], np.array([count]))
            self.temperatures = tuple(map(float, online.temperatures))
        else:
            self.temperatures = (1.0,) * positions
        return self

    def apply(
        self, logits: Float[np.ndarray, "*batch position"] | Float[Tensor, "*batch position"]
    ) -> Float[np.ndarray, "*batch position"]:
        """Conditional confidences of a block: chance of each draft if those before it survive.

        Args:
            logits: raw confidence logits, of as many positions as were fitted or fewer.

        Returns:
            Probabilities as float64; NaN where a logit is NaN.

        Raises:
            ValueError: before `fit`, or if there are more positions than were fitted.
        """
        values = as_array(logits)
        asked = values.shape[-1]
        if not self.positions:
            raise ValueError("Calibrator.apply needs a fitted calibrator; call fit first")
        if asked > self.positions:
            raise ValueError(
                f"this calibrator was fitted on {self.positions} positions and knows nothing of "
                f"the later ones; got {asked}. Fit it on rounds of whole blocks"
            )
        if self.temperatures is not None:
            return expit(values / np.array(self.temperatures[:asked]))
        columns = [self._curves[k](values[..., k]) for k in range(asked)]
        return np.stack(columns, axis=-1)


def check_rounds(
    logits: Float[np.ndarray, "round position"], accepted: Int[np.ndarray, "round"]
) -> None:
    """Refuse rounds that nothing can be fitted on.

    Args:
        logits: raw confidence logits, NaN for slots that a round lacks.
        accepted: accepted drafts of every round.

    Raises:
        ValueError: if there is no round or no position, a logit is infinite or stands behind a
            missing one, or a round accepted more drafts than it has.
    """
    if not logits.size:
        raise ValueError(f"calibration needs rounds with logits; got shape {logits.shape}")
    drafted = (~np.isnan(logits)).sum(1)
    if np.isinf(logits).any():
        raise ValueError("confidence logits must be finite, or NaN for a slot that a round lacks")
    if (np.isnan(logits) != (np.arange(logits.shape[1]) >= drafted[:, None])).any():
        raise ValueError(
            "a round's drafts are a prefix of its block; a logit follows a missing one"
        )
    if (accepted < 0).any() or (accepted > drafted).any():
        row = int(np.argmax((accepted < 0) | (accepted > drafted)))
        raise ValueError(
            f"accepted counts drafts without the bonus token and lies in 0..{drafted[row]} "
            f"(drafts of round {row}); got {accepted[row]}"
        )


def fit_sequential(
    logits: Float[np.ndarray, "round position"],
    accepted: Int[np.ndarray, "round"],
    *,
    grid: Sequence[float] = TEMPERATURES,
) -> tuple[float, ...]:
    """Temperature of every position, chosen from the first on, so that prefixes survive as said.

    At position k the calibration error of the product of the first k confidences against "the first
    k drafts were accepted" is least, with the temperatures before it fixed. All rounds count at
    every position.

    Args:
        logits: raw confidence logits of rounds whose whole block was verified.
        accepted: accepted drafts of every round.
        grid: temperatures to try; the first of the best is taken.

    Raises:
        ValueError: as `check_rounds`, or if the grid has a temperature that is not positive.

    Source: DSpark paper, section 3.2.1. Grid and bins are not published.
    """
    check_rounds(logits, accepted)
    if not len(grid) or min(grid) <= 0:
        raise ValueError(f"temperatures must be positive, and there must be one; got {list(grid)}")
    outcomes = survived(accepted, logits.shape[1])
    product, chosen = np.ones(len(logits)), []
    for column, outcome in zip(logits.T, outcomes.T, strict=True):
        candidates = [product * expit(column / temperature) for temperature in grid]
        errors = [calibration_error(candidate, outcome) for candidate in candidates]
        best = int(np.argmin(errors))
        product = candidates[best]
        chosen.append(float(grid[best]))
    return tuple(chosen)


def prefix_survival(
    confidences: Float[np.ndarray, "*batch position"],
) -> Float[np.ndarray, "*batch position"]:
    """Chance that the first k drafts all survive: running products; NaN from a missing slot on."""
    return np.cumprod(confidences, axis=-1)


class _Curve:
    """Monotone curve from logit to acceptance rate, straight between the logits it was fitted on.

    Without a trial it is the sigmoid of the logit.
    """

    def __init__(self, logits: np.ndarray, outcomes: np.ndarray):
        self._logits, places = np.unique(logits, return_inverse=True)
        if len(self._logits):
            weights = np.bincount(places)
            means = np.bincount(places, weights=outcomes) / weights
            self._rates = isotonic_regression(means, weights=weights).x

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        if not len(self._logits):
            return expit(logits)
        return np.interp(logits, self._logits, self._rates)


def _trials(logits: np.ndarray, accepted: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits and outcomes of the rounds that reached position k, counted from 0."""
    reached = (accepted >= k) & ~np.isnan(logits[:, k])
    return logits[reached, k], (accepted[reached] > k).astype(float)
