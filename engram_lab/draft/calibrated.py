"""`CalibratedRule`: a length rule that is told calibrated confidences, at one temperature only."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logit
from torch import Tensor

from engram_lab.draft.calibration import Calibrator
from engram_lab.draft.reliability import as_array
from engram_lab.draft.schedule import LengthRule

SURE = 1e-6  # confidences are kept this far from 0 and 1, where a logit is infinite


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibratedRule:
    """A rule behind a calibrator, for `speculative_generate`.

    A calibrator reads one confidence at a time, so a causal rule stays causal.

    Attributes:
        rule: decides about lengths.
        calibrator: fitted on rounds of the same drafter and target.
        temperature: at which those rounds were drawn; another one shifts acceptance, so generation
            refuses it.

    Raises:
        ValueError: if the calibrator is not fitted, or the temperature is negative.
    """

    rule: LengthRule
    calibrator: Calibrator
    temperature: float

    def __post_init__(self) -> None:
        """Check both parts."""
        if not self.calibrator.positions:
            raise ValueError("CalibratedRule needs a fitted calibrator; call Calibrator.fit first")
        if not self.temperature >= 0:
            raise ValueError(
                f"CalibratedRule.temperature must be at least 0; got {self.temperature}"
            )

    @property
    def causal(self) -> bool:
        """Whether the rule inside is."""
        return self.rule.causal

    @property
    def name(self) -> str:
        """The rule's name, with the calibration."""
        return f"{self.rule.name}, {self.calibrator.method}"

    def __call__(
        self,
        confidences: Float[np.ndarray, "request position"] | Float[Tensor, "request position"],
        *,
        requests: Sequence[int] | None = None,
    ) -> Int[np.ndarray, "request"]:
        """Drafts to verify of every request.

        Args:
            confidences: as the head gives them, conditional, as probabilities.
            requests: who the rows are; rows by default.
        """
        raw = logit(np.clip(as_array(confidences), SURE, 1 - SURE))
        return self.rule(self.calibrator.apply(raw), requests=requests)
