"""Policies that a serving engine can be run with: a length rule, and what the rule is shown."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from engram_lab.draft.costs import CostTable
from engram_lab.draft.oracle import GlobalSearch
from engram_lab.draft.schedule import FixedLength, LengthRule, PrefixScheduler, Threshold, TopK


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How an engine chooses what it verifies.

    Attributes:
        name: in frames and figures.
        rule: how many drafts of each request are verified.
        sees: what the rule is called with: "confidences", or "outcomes", 1 for every draft that
            will be accepted and 0 for the rest, which no real engine knows.
        drafts: whether drafting takes place, and time, at all.
    """

    name: str
    rule: LengthRule
    sees: Literal["confidences", "outcomes"] = "confidences"
    drafts: bool = True

    @property
    def causal(self) -> bool:
        """Whether the output keeps the target's distribution; a policy that does not is a bound."""
        return self.rule.causal and self.sees == "confidences"

    def begin(self) -> None:
        """Forget what the rule remembers of another run."""
        forget = getattr(self.rule, "reset", None)
        if forget is not None:
            forget()

    def lengths(
        self,
        confidences: Float[np.ndarray, "request block"],
        accepted: Int[np.ndarray, " request"],
        requests: Int[np.ndarray, " request"],
    ) -> Int[np.ndarray, " request"]:
        """Drafts to verify of every running request.

        Args:
            confidences: conditional acceptance estimates of this round's drafts.
            accepted: drafts that will be accepted if the whole block is verified.
            requests: who the rows are.

        Raises:
            ValueError: if the rule gives something else than a length in 0..block for each.
        """
        count, block = confidences.shape
        shown = confidences
        if self.sees == "outcomes":
            shown = (np.arange(block) < accepted[:, None]).astype(float)
        lengths = np.asarray(self.rule(shown, requests=requests.tolist()))
        if lengths.shape != (count,) or lengths.min() < 0 or lengths.max() > block:
            raise ValueError(
                f"policy {self.name!r} must give each of {count} requests a length in 0..{block}; "
                f"got {lengths}"
            )
        return lengths


def standard_policies(
    costs: CostTable,
    *,
    block_size: int,
    draft_costs: CostTable | None = None,
    threshold: float = 0.5,
) -> list[Policy]:
    """The policies to compare: plain decoding, fixed and confident lengths, schedulers, bounds.

    The last two are not causal: "unrestricted" searches all lengths with the current confidences,
    "oracle" with what will be accepted.

    Args:
        costs: seconds of verifying, by tokens in the batch.
        block_size: drafts of a round.
        draft_costs: seconds of drafting, by requests.
        threshold: conditional confidence at which the static rule stops.
    """
    priced = {"costs": costs, "draft_costs": draft_costs}
    return [
        Policy(name="plain decoding", rule=FixedLength(length=0), drafts=False),
        Policy(name="MTP-1", rule=FixedLength(length=1)),
        Policy(name="whole block", rule=FixedLength(length=block_size)),
        Policy(name="threshold", rule=Threshold(threshold=threshold)),
        Policy(name="early stop", rule=PrefixScheduler(**priced)),
        Policy(name="stale capacity", rule=TopK(**priced)),
        Policy(name="unrestricted", rule=GlobalSearch(**priced)),
        Policy(name="oracle", rule=GlobalSearch(**priced), sees="outcomes"),
    ]
