"""The best lengths that current confidences allow: bounds to measure rules against.

Both look at the whole block before they decide, so neither may be generated with.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engram_lab.draft.admission import Confidences, admission_walk, step_seconds, survival_of
from engram_lab.draft.schedule import Lengths, PricedRule

MOST_VECTORS = 1_000_000
"""Length vectors that a search over all of them may have to try."""


@dataclass(frozen=True, kw_only=True)
class GlobalSearch(PricedRule):
    """The best batch on the whole walk, found with the current confidences: not lossless.

    For a given number of drafts the likeliest are the best, so this is the best of all length
    vectors. What it gains over `PrefixScheduler` is the price of causality.
    """

    causal: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name of the rule."""
        return "unrestricted"

    def __call__(
        self, confidences: Confidences, *, requests: Sequence[int] | None = None
    ) -> Lengths:
        """Lengths of the best batch, the smallest of several."""
        walk = admission_walk(confidences, self.costs, draft_costs=self.draft_costs)
        return walk.lengths(walk.best)


@dataclass(frozen=True, kw_only=True)
class BruteForce(PricedRule):
    """Every vector of lengths is tried: a second opinion on small batches, and not lossless."""

    causal: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name of the rule."""
        return "brute force"

    def __call__(
        self, confidences: Confidences, *, requests: Sequence[int] | None = None
    ) -> Lengths:
        """Lengths of the best of all batches, the shortest lengths of several.

        Raises:
            ValueError: if there are more than `MOST_VECTORS` vectors.
        """
        survival = survival_of(confidences)
        choices = [range(np.count_nonzero(row) + 1) for row in survival]
        vectors = math.prod(map(len, choices))
        if vectors > MOST_VECTORS:
            raise ValueError(
                f"BruteForce tries at most {MOST_VECTORS:,} length vectors; this batch has "
                f"{vectors:,}. GlobalSearch finds the same optimum on a walk"
            )
        lengths = np.array(list(itertools.product(*choices)), dtype=np.int64)
        gains = np.cumsum(np.pad(survival, ((0, 0), (1, 0))), axis=1)
        requests_here = len(survival)
        expected = requests_here + gains[np.arange(requests_here), lengths].sum(1)
        tokens = requests_here + lengths.sum(1)
        seconds = step_seconds(tokens, requests_here, self.costs, self.draft_costs)
        return lengths[np.argmax(expected / seconds)]
