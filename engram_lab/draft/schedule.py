"""How many drafts of each request to verify: rules that generation and a serving engine share.

A rule is called with the conditional confidences of a batch and returns lengths. It is causal if
whether a draft is verified depends only on what was known before that draft was drawn; only then
does the output keep the target's distribution. Every rule says whether it is.
"""

import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from engram_lab.draft.admission import Confidences, admission_walk, draft_capacity, top_drafts
from engram_lab.draft.costs import CostTable
from engram_lab.draft.reliability import as_array

Lengths = Int[np.ndarray, "request"]


@runtime_checkable
class LengthRule(Protocol):
    """What decides how much of every block is verified.

    Attributes:
        causal: whether generation may use it without changing what comes out.
    """

    causal: bool

    @property
    def name(self) -> str:
        """What it is called in frames and figures."""

    def __call__(
        self, confidences: Confidences, *, requests: Sequence[int] | None = None
    ) -> Lengths:
        """Drafts to verify of every request, 0 for a plain step.

        Args:
            confidences: conditional, as probabilities; NaN from where a block was cut.
            requests: who the rows are, where they change from step to step; rows by default.
        """


def require_causal(rule: LengthRule) -> None:
    """Refuse a rule that would change what the target says.

    Raises:
        ValueError: naming the rule.
    """
    if not rule.causal:
        raise ValueError(
            f"the rule {rule.name!r} looks at confidences of later drafts to decide about earlier "
            "ones, which changes the distribution of what is generated; it is a bound to compare "
            "with. Generate with a causal rule, for instance PrefixScheduler"
        )


@dataclass(frozen=True, kw_only=True)
class FixedLength:
    """The same number of drafts for every request, whatever their confidence.

    Attributes:
        length: drafts, at most the block size.
    """

    length: int
    causal: ClassVar[bool] = True

    def __post_init__(self):
        if self.length < 0:
            raise ValueError(f"FixedLength.length must be at least 0; got {self.length}")

    @property
    def name(self) -> str:
        """Name with the length."""
        return f"fixed {self.length}"

    def __call__(
        self, confidences: Confidences, *, requests: Sequence[int] | None = None
    ) -> Lengths:
        """As many of every request, or all that a cut block has.

        Raises:
            ValueError: if the length is above the block size.
        """
        values = as_array(confidences)
        if self.length > values.shape[1]:
            raise ValueError(
                f"FixedLength.length must not exceed the block size {values.shape[1]}, on which "
                f"the drafter was trained; got {self.length}"
            )
        return np.minimum(self.length, (~np.isnan(values)).sum(1))


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Drafts up to the first whose own conditional confidence is below a threshold.

    Attributes:
        threshold: in 0..1; 0 verifies the whole block.

    Source: DeepSpec deepspec/eval/dspark/draft_ops.py.
    """

    threshold: float
    causal: ClassVar[bool] = True

    def __post_init__(self):
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"Threshold.threshold must lie in 0..1; got {self.threshold}")

    @property
    def name(self) -> str:
        """Name with the threshold."""
        return f"threshold {self.threshold:g}"

    def __call__(
        self, confidences: Confidences, *, requests: Sequence[int] | None = None
    ) -> Lengths:
        """Drafts before the first that falls below."""
        return np.cumprod(as_array(confidences) >= self.threshold, axis=1).sum(1)


@dataclass(frozen=True, kw_only=True)
class PricedRule:
    """What rules share that weigh drafts against the time they cost.

    Attributes:
        costs: seconds of verifying, by tokens in the batch.
        draft_costs: seconds of drafting, by requests.

    Raises:
        ValueError: without a cost table, for then nothing says where to stop.
    """

    costs: CostTable | None = None
    draft_costs: CostTable | None = None

    def __post_init__(self):
        kind = type(self).__name__
        if self.costs is None:
            raise ValueError(
                f"{kind} trims drafts by what they cost and needs costs=, a CostTable; got none. "
                "measure_cost_table times a step on this machine; affine, roofline and staircase "
                "make curves; FixedLength and Threshold need no costs"
            )
        if self.costs.flat:
            warnings.warn(
                f"{kind}: the cost table is flat, every batch costs {self.costs.seconds[0]:.3g} s, "
                "so the optimum is to verify everything",
                stacklevel=3,
            )


@dataclass(frozen=True, kw_only=True)
class PrefixScheduler(PricedRule):
    """Algorithm 1: admit the likeliest drafts while throughput rises, and stop at the first fall.

    Source: DSpark paper, section 3.2.2.
    """

    causal: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the rule."""
        return "early stop"

    def __call__(
        self, confidences: Confidences, *, requests: Sequence[int] | None = None
    ) -> Lengths:
        """Lengths; `admission_walk(...).frame()` shows how they come about."""
        walk = admission_walk(confidences, self.costs, draft_costs=self.draft_costs)
        return walk.lengths(walk.stop)


@dataclass(frozen=True, kw_only=True, eq=False)
class TopK(PricedRule):
    """The production variant: a capacity from older confidences, filled by the current ones.

    An engine must know the size of its next batch before the current one has ended. The number of
    drafts therefore comes from an unrestricted search on the confidences of `delay` calls earlier,
    where a request that was not there counts as certain; current confidences only say which drafts
    fill it. Neither can be moved by a later draft of the same block, so the rule is causal.

    Attributes:
        delay: calls that confidences are old when the capacity is set, at least 1.

    Raises:
        ValueError: without a cost table, or without a delay.

    Source: DSpark paper, section 5.2.
    """

    delay: int = 2
    causal: ClassVar[bool] = True
    _past: deque = field(init=False, repr=False)

    def __post_init__(self):
        super().__post_init__()
        if self.delay < 1:
            raise ValueError(f"TopK.delay must be at least 1 to be causal; got {self.delay}")
        object.__setattr__(self, "_past", deque(maxlen=self.delay))

    @property
    def name(self) -> str:
        """Name of the rule."""
        return "stale capacity"

    def __call__(
        self, confidences: Confidences, *, requests: Sequence[int] | None = None
    ) -> Lengths:
        """Lengths; the confidences are kept for later calls.

        Raises:
            ValueError: if `requests` does not name every row once.
        """
        values = as_array(confidences)
        names = np.arange(len(values)) if requests is None else np.asarray(requests, dtype=np.int64)
        if len(names) != len(values) or len(np.unique(names)) != len(names):
            raise ValueError(
                f"TopK needs one name for each of {len(values)} requests, all different; got "
                f"{names.tolist()}"
            )
        earlier = np.ones(values.shape)
        if len(self._past) == self.delay:
            _fill(earlier, names, *self._past[0])
        capacity = draft_capacity(earlier, self.costs, draft_costs=self.draft_costs)
        self._past.append((names, values))
        return top_drafts(values, capacity)

    def reset(self) -> None:
        """Forget earlier calls."""
        self._past.clear()


def _fill(
    earlier: Float[np.ndarray, "request position"],
    names: Int[np.ndarray, "request"],
    past_names: Int[np.ndarray, "past"],
    past: Float[np.ndarray, "past past_position"],
) -> None:
    """Put what is remembered of the requests that are still here in place of certainty."""
    _, here, there = np.intersect1d(names, past_names, assume_unique=True, return_indices=True)
    width = min(earlier.shape[1], past.shape[1])
    earlier[here, :width] = np.nan_to_num(past[there, :width], nan=1.0)
