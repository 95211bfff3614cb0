"""Does speculation pay: speed over plain decoding, the acceptance it takes, the best length."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from engram_lab.draft.costs import CostTable


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many drafts to verify at a load, and what that brings.

    Attributes:
        length: drafts; 0 means plain decoding, without a drafter.
        accepted_length: tokens expected of a request and round, bonus token included.
        break_even: accepted length at which the round is as fast as plain decoding.
        speed_up: tokens per second over those of plain decoding; at least 1.
    """

    length: int
    accepted_length: float
    break_even: float
    speed_up: float

    @property
    def speculate(self) -> bool:
        """Whether drafting pays at all."""
        return self.length > 0

    @property
    def answer(self) -> str:
        """The plan in a sentence."""
        if not self.speculate:
            return "Do not speculate: no number of drafts is faster than plain decoding."
        return (
            f"Verify {self.length} draft{'s' if self.length > 1 else ''}: "
            f"{self.accepted_length:.2f} tokens a round, {self.break_even:.2f} would be as fast "
            f"as plain decoding, {self.speed_up:.2f} times its speed."
        )


def expected_accepted_length(rates: Float[np.ndarray, "position"]) -> float:
    """Tokens that a round is expected to emit if all drafts are verified, bonus token included.

    Args:
        rates: chance of each draft to be accepted if those before it were.

    Raises:
        ValueError: if one is no probability.
    """
    return float(_accepted_lengths(rates)[-1])


def break_even_length(*, plain: float, draft: float, verify: float) -> float:
    """Accepted length at which a round is as fast as plain decoding.

    Args:
        plain: seconds of a step of plain decoding.
        draft: seconds of drafting a block.
        verify: seconds of verifying it.

    Raises:
        ValueError: if plain or verify is not positive, or draft negative.
    """
    if not (plain > 0 and verify > 0 and draft >= 0):
        raise ValueError(
            "times must be positive seconds, that of drafting at least 0; got plain "
            f"{plain}, draft {draft}, verify {verify}"
        )
    return (draft + verify) / plain


def speed_up(accepted_length: float, *, plain: float, draft: float, verify: float) -> float:
    """Tokens per second of speculation over those of plain decoding.

    Args:
        accepted_length: tokens of a round, bonus token included.
        plain: seconds of a step of plain decoding.
        draft: seconds of drafting a block.
        verify: seconds of verifying it.

    Raises:
        ValueError: as `break_even_length`.

    Source: DSpark paper, equation 1.
    """
    return accepted_length / break_even_length(plain=plain, draft=draft, verify=verify)


def length_table(
    rates: Float[np.ndarray, "position"],
    costs: CostTable,
    *,
    draft: float = 0.0,
    draft_per_token: float = 0.0,
    requests: int = 1,
) -> pd.DataFrame:
    """What every number of drafts would bring if all requests verified as many.

    Args:
        rates: chance of each draft to be accepted if those before it were.
        costs: seconds of a step of the target, by tokens in the batch.
        draft: seconds of drafting, whatever the length: one pass of a parallel drafter.
        draft_per_token: seconds that each draft adds: the passes of a sequential drafter.
        requests: decoded together.

    Returns:
        One row per length, from 0 (plain decoding, nothing drafted), with columns length,
        accepted_length (bonus token included), break_even (accepted length that would be as fast
        as plain decoding) and speed_up.

    Raises:
        ValueError: if a rate is no probability, a time is negative or there is no request.
    """
    if requests < 1 or draft < 0 or draft_per_token < 0:
        raise ValueError(
            "length_table needs at least 1 request and times of at least 0; got requests "
            f"{requests}, draft {draft}, draft_per_token {draft_per_token}"
        )
    lengths = np.arange(len(rates) + 1)
    accepted = _accepted_lengths(rates)
    drafting = np.where(lengths > 0, draft + draft_per_token * lengths, 0.0)
    needed = (drafting + costs.at(requests * (1 + lengths))) / costs(requests)
    return pd.DataFrame(
        {
            "length": lengths,
            "accepted_length": accepted,
            "break_even": needed,
            "speed_up": accepted / needed,
        }
    )


def best_plan(
    rates: Float[np.ndarray, "position"],
    costs: CostTable,
    *,
    draft: float = 0.0,
    draft_per_token: float = 0.0,
    requests: int = 1,
) -> Plan:
    """The fastest number of drafts, plain decoding among them; the shortest of several.

    Args:
        rates: chance of each draft to be accepted if those before it were.
        costs: seconds of a step of the target, by tokens in the batch.
        draft: seconds of drafting, whatever the length.
        draft_per_token: seconds that each draft adds.
        requests: decoded together.

    Raises:
        ValueError: as `length_table`.
    """
    table = length_table(
        rates, costs, draft=draft, draft_per_token=draft_per_token, requests=requests
    )
    best = table.loc[table["speed_up"].idxmax()]
    return Plan(
        length=int(best["length"]),
        accepted_length=float(best["accepted_length"]),
        break_even=float(best["break_even"]),
        speed_up=float(best["speed_up"]),
    )


def _accepted_lengths(rates: Float[np.ndarray, "position"]) -> Float[np.ndarray, "length"]:
    """Expected tokens of a round that verifies 0, 1, 2, ... drafts."""
    if not ((rates >= 0) & (rates <= 1)).all():
        raise ValueError(f"acceptance rates must lie in 0..1; got {rates.tolist()}")
    return np.cumsum(np.concatenate([[1.0], np.cumprod(rates)]))
