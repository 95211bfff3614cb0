"""Drafts of all requests, the likeliest first, and what a batch with each further one brings."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from engram_lab.draft.costs import CostTable
from engram_lab.draft.reliability import as_array

Confidences = Float[np.ndarray, "request position"] | Float[Tensor, "request position"]
"""Conditional chance of every draft, given those before it; NaN where a block was cut."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AdmissionWalk:
    """Expected throughput after every further draft, in the order in which drafts are admitted.

    Drafts come by survival, then by position, then by request; those that cannot survive are left
    out. Entry n of the last three arrays is the batch with the first n drafts.

    Attributes:
        requests: number of requests in the batch.
        request: request of every draft, from 0.
        position: its position in the block, from 1.
        survival: chance that it and all before it in its block are accepted.
        tokens: in the verification batch, an anchor for each request included.
        expected: tokens that the step is expected to emit.
        tokens_per_s: the objective: expected tokens by the seconds of the step.

    Source: DSpark paper, section 3.2.2 and algorithm 1.
    """

    requests: int
    request: Int[np.ndarray, "draft"]
    position: Int[np.ndarray, "draft"]
    survival: Float[np.ndarray, "draft"]
    tokens: Int[np.ndarray, "batch"]
    expected: Float[np.ndarray, "batch"]
    tokens_per_s: Float[np.ndarray, "batch"]

    @property
    def stop(self) -> int:
        """Drafts admitted when the walk ends at the first that brings no more (Algorithm 1)."""
        gains = self.tokens_per_s[1:] > self.tokens_per_s[:-1]
        return len(gains) if gains.all() else int(np.argmin(gains))

    @property
    def best(self) -> int:
        """Drafts admitted where the whole walk is highest, the fewest of several.

        Looking past a fall uses what tokens later in the block say about earlier ones, so this
        may only set a capacity from older confidences, or serve as a bound.
        """
        return int(np.argmax(self.tokens_per_s))

    def lengths(self, drafts: int) -> Int[np.ndarray, "request"]:
        """Drafts of every request among the first so many of the walk."""
        return np.bincount(self.request[:drafts], minlength=self.requests)

    def frame(self) -> pd.DataFrame:
        """The whole walk as a table.

        Returns:
            One row per batch, from no draft on, with columns drafts, request (from 0; -1 in the
            first row), position (1-based; 0), survival (NaN), tokens, expected_tokens,
            tokens_per_s, examined (whether Algorithm 1 comes that far), admitted (whether it keeps
            the draft) and best (where the whole walk is highest).
        """
        drafts = np.arange(len(self.tokens))
        return pd.DataFrame(
            {
                "drafts": drafts,
                "request": np.concatenate([[-1], self.request]),
                "position": np.concatenate([[0], self.position]),
                "survival": np.concatenate([[np.nan], self.survival]),
                "tokens": self.tokens,
                "expected_tokens": self.expected,
                "tokens_per_s": self.tokens_per_s,
                "examined": drafts <= self.stop + 1,
                "admitted": drafts <= self.stop,
                "best": drafts == self.best,
            }
        )


def admission_walk(
    confidences: Confidences, costs: CostTable, *, draft_costs: CostTable | None = None
) -> AdmissionWalk:
    """Walk through the drafts of a batch.

    Args:
        confidences: conditional, as probabilities; NaN from where a block was cut.
        costs: seconds of verifying, by tokens in the batch.
        draft_costs: seconds of drafting, by requests; they are spent whatever is verified.

    Raises:
        ValueError: as `survival_of`.
    """
    survival = survival_of(confidences)
    requests = len(survival)
    request, position, chances = ranked(survival)
    tokens = requests + np.arange(len(chances) + 1)
    expected = np.cumsum(np.concatenate([[float(requests)], chances]))
    seconds = step_seconds(tokens, requests, costs, draft_costs)
    return AdmissionWalk(
        requests=requests,
        request=request,
        position=position,
        survival=chances,
        tokens=tokens,
        expected=expected,
        tokens_per_s=expected / seconds,
    )


def draft_capacity(
    confidences: Confidences, costs: CostTable, *, draft_costs: CostTable | None = None
) -> int:
    """Drafts of the best batch, found without stopping; for confidences of earlier steps.

    Args:
        confidences: of earlier steps, in the place of the current ones.
        costs: seconds of verifying, by tokens in the batch.
        draft_costs: seconds of drafting, by requests.
    """
    return admission_walk(confidences, costs, draft_costs=draft_costs).best


def top_drafts(confidences: Confidences, capacity: int) -> Int[np.ndarray, "request"]:
    """Lengths that admit exactly the likeliest drafts of a batch, as many as there is room for.

    Args:
        confidences: conditional, as probabilities.
        capacity: drafts to admit; of equal ones the earlier position and request go first.
    """
    survival = survival_of(confidences)
    request, _, _ = ranked(survival)
    return np.bincount(request[: max(capacity, 0)], minlength=len(survival))


def survival_of(confidences: Confidences) -> Float[np.ndarray, "request position"]:
    """Chance that each draft and all before it are accepted; 0 from where a block was cut.

    Args:
        confidences: conditional, as probabilities.

    Raises:
        ValueError: if one is no probability.
    """
    values = as_array(confidences)
    known = np.nan_to_num(values)
    if known.size and (known.min() < 0 or known.max() > 1):
        raise ValueError(
            "confidences must be probabilities in 0..1 (Calibrator.apply makes them of logits); "
            f"got {np.nanmin(values):.4g} to {np.nanmax(values):.4g}"
        )
    return np.cumprod(known, axis=1)


def ranked(
    survival: Float[np.ndarray, "request position"],
) -> tuple[Int[np.ndarray, "draft"], Int[np.ndarray, "draft"], Float[np.ndarray, "draft"]]:
    """Request, position (1-based) and survival of all drafts that can survive, the likeliest first.

    Equal ones come by position, then by request: an order that no later token can change.
    """
    requests = max(len(survival), 1)
    flat = survival.T.ravel()  # by position, then by request: what a stable sort keeps for ties
    order = np.argsort(-flat, kind="stable")[: np.count_nonzero(flat)]
    return order % requests, order // requests + 1, flat[order]


def step_seconds(
    tokens: Int[np.ndarray, "batch"],
    requests: int,
    costs: CostTable,
    draft_costs: CostTable | None = None,
) -> Float[np.ndarray, "batch"]:
    """Seconds of steps that draft for some requests and verify so many tokens."""
    drafting = draft_costs(requests) if draft_costs else 0.0
    return costs.at(tokens) + drafting


def expected_throughput(
    confidences: Confidences,
    lengths: Int[np.ndarray, "request"],
    costs: CostTable,
    *,
    draft_costs: CostTable | None = None,
) -> float:
    """Tokens per second that lengths are expected to bring, if the confidences are right.

    Args:
        confidences: conditional, as probabilities.
        lengths: drafts verified of every request.
        costs: seconds of verifying, by tokens in the batch.
        draft_costs: seconds of drafting, by requests.

    Raises:
        ValueError: as `survival_of`.
    """
    survival = survival_of(confidences)
    verified = np.arange(survival.shape[1]) < lengths[:, None]
    tokens = np.array([len(lengths) + lengths.sum()])
    seconds = step_seconds(tokens, len(lengths), costs, draft_costs)[0]
    return float((len(lengths) + survival[verified].sum()) / seconds)
