"""How long to verify under load: length rules replayed on measured rounds, at the price of a curve.

Every request walks through consecutive measured rounds from a place of its own. What a rule does
not verify is not accepted, what it does is accepted as it was when the whole block was verified, so
the replay is exact as long as the rounds are. Arrivals and queues are left to the simulation of
serving.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from engram_lab.draft.admission import admission_walk, expected_throughput, step_seconds
from engram_lab.draft.calibration import METHODS, Calibrator
from engram_lab.draft.costs import CostTable
from engram_lab.draft.oracle import GlobalSearch
from engram_lab.draft.schedule import FixedLength, LengthRule, PrefixScheduler, Threshold, TopK
from engram_lab.probes.confidence import rounds_of

QUALITIES = (*METHODS, "mean")
"""How confidences come about: a calibration, or the mean rate at a position for every request."""
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PLAIN = "plain decoding"


@dataclass(frozen=True, kw_only=True, eq=False)
class Traces:
    """Measured rounds with the confidences that a rule sees.

    Attributes:
        confidences: conditional, as probabilities; NaN for slots that a round lacks.
        accepted: accepted drafts when the whole block was verified.
    """

    confidences: Float[np.ndarray, "round position"]
    accepted: Int[np.ndarray, "round"]

    def batch(self, starts: Int[np.ndarray, "request"], step: int) -> "Traces":
        """The rounds in which requests that started there are after so many steps."""
        rows = (starts + step) % len(self.accepted)
        return Traces(confidences=self.confidences[rows], accepted=self.accepted[rows])


def traces_of(records: pd.DataFrame, *, quality: str = "sequential") -> Traces:
    """Rounds to replay: the second half of the records, calibrated on the first.

    Args:
        records: as for `probes.confidence.rounds_of`; domains are one traffic, calibrated together.
        quality: one of `QUALITIES`.

    Raises:
        ValueError: as `rounds_of`, or if the quality is unknown.
    """
    if quality not in QUALITIES:
        raise ValueError(f"quality must be one of {', '.join(QUALITIES)}; got {quality!r}")
    halves = [rounds.halves() for rounds in rounds_of(records)]
    width = max(first.logits.shape[1] for first, _ in halves)
    fitted, replayed = (
        (
            np.vstack([_wide(half.logits, width) for half in side]),
            np.concatenate([half.accepted for half in side]),
        )
        for side in zip(*halves, strict=True)
    )
    logits, accepted = replayed
    if quality == "mean":
        confidences = np.where(np.isnan(logits), np.nan, _rates(*fitted))
    else:
        confidences = Calibrator(quality).fit(*fitted).apply(logits)
    return Traces(confidences=confidences, accepted=accepted)


def default_rules(
    positions: int, costs: CostTable, *, draft_costs: CostTable | None = None
) -> tuple[LengthRule, ...]:
    """One draft, a whole block, a threshold of one half, Algorithm 1, its variant, and the bound.

    Args:
        positions: drafts of a block.
        costs: seconds of verifying, by tokens in the batch.
        draft_costs: seconds of drafting, by requests.
    """
    priced = {"costs": costs, "draft_costs": draft_costs}
    return (
        *(FixedLength(length=length) for length in sorted({1, positions})),
        Threshold(threshold=0.5),
        PrefixScheduler(**priced),
        TopK(**priced),
        GlobalSearch(**priced),
    )


def schedule_frame(
    traces: Traces,
    costs: CostTable,
    *,
    draft_costs: CostTable | None = None,
    rules: Sequence[LengthRule] | None = None,
    concurrency: Sequence[int] = CONCURRENCY,
    steps: int = 64,
    seed: int = 0,
) -> pd.DataFrame:
    """What every rule verifies and brings when so many requests run together.

    Args:
        traces: rounds to replay.
        costs: seconds of verifying, by tokens in the batch.
        draft_costs: seconds of drafting, by requests; plain decoding does not spend them.
        rules: compared; `default_rules` by default.
        concurrency: numbers of requests.
        steps: replayed of each; the same rounds for every rule.
        seed: of the places at which requests start.

    Returns:
        One row per policy (plain decoding among them) and concurrency, with columns policy, causal,
        concurrency, verified_tokens (per request and step, anchor included), accepted_length
        (tokens that come out, per request and step), tokens_per_s (all requests), tokens_per_s_user
        (of one), expected_tokens_per_s (by the confidences), regret (share of throughput, expected
        by the same confidences, that it lacks to the best lengths; negative where not drafting at
        all is better still) and steps.

    Raises:
        ValueError: if there is no step, no rule or no request.
    """
    if steps < 1 or not concurrency or min(concurrency) < 1:
        raise ValueError(
            "schedule_frame needs at least 1 step and numbers of requests of at least 1; got "
            f"{steps} and {list(concurrency)}"
        )
    if rules is None:
        rules = default_rules(traces.confidences.shape[1], costs, draft_costs=draft_costs)
    bound = GlobalSearch(costs=costs, draft_costs=draft_costs)
    rows = []
    for requests in concurrency:
        batches = _batches(traces, requests, steps, seed)
        best = _replayed(bound, batches, costs, draft_costs)
        rows.append(_plain(requests, costs, best, steps))
        for rule in rules:
            found = _replayed(rule, batches, costs, draft_costs)
            rows.append(_row(rule, requests, found, best, steps))
    return pd.DataFrame(rows)


def batch_frame(
    traces: Traces, rules: Sequence[LengthRule], *, concurrency: int, steps: int = 64, seed: int = 0
) -> pd.DataFrame:
    """Lengths that every rule chose for every request in the last step of a replay.

    Args:
        traces: rounds to replay.
        rules: compared.
        concurrency: number of requests.
        steps: replayed; only the last is told.
        seed: as for `schedule_frame`, whose last step this is.

    Returns:
        Columns policy, request (from 0), length (drafts verified), kept (of these accepted),
        accepted (with the whole block verified) and expected (drafts of the whole block that the
        confidences expect to be accepted).

    Raises:
        ValueError: if there is no step or no request.
    """
    if steps < 1 or concurrency < 1:
        raise ValueError(f"batch_frame needs steps and requests; got {steps} and {concurrency}")
    batches = _batches(traces, concurrency, steps, seed)
    last = batches[-1]
    expected = np.nan_to_num(np.cumprod(last.confidences, axis=1)).sum(1)
    parts = []
    for rule in rules:
        lengths = _lengths(rule, batches)[-1]
        parts.append(
            pd.DataFrame(
                {
                    "policy": rule.name,
                    "request": np.arange(concurrency),
                    "length": lengths,
                    "kept": np.minimum(lengths, last.accepted),
                    "accepted": last.accepted,
                    "expected": expected,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def walk_frame(
    traces: Traces,
    costs: CostTable,
    *,
    concurrency: int,
    draft_costs: CostTable | None = None,
    steps: int = 64,
    seed: int = 0,
) -> pd.DataFrame:
    """The admission walk of the last step of a replay; see `draft.admission.AdmissionWalk.frame`.

    Args:
        traces: rounds to replay.
        costs: seconds of verifying, by tokens in the batch.
        concurrency: number of requests.
        draft_costs: seconds of drafting, by requests.
        steps: as for `batch_frame`.
        seed: as for `batch_frame`.
    """
    last = _batches(traces, concurrency, steps, seed)[-1]
    return admission_walk(last.confidences, costs, draft_costs=draft_costs).frame()


def _batches(traces: Traces, requests: int, steps: int, seed: int) -> list[Traces]:
    starts = np.random.default_rng(seed).integers(len(traces.accepted), size=requests)
    return [traces.batch(starts, step) for step in range(steps)]


def _lengths(rule: LengthRule, batches: Sequence[Traces]) -> list[np.ndarray]:
    """Lengths of every step; a rule that remembers starts without memory."""
    if isinstance(rule, TopK):
        rule.reset()
    return [rule(batch.confidences) for batch in batches]


def _replayed(
    rule: LengthRule,
    batches: Sequence[Traces],
    costs: CostTable,
    draft_costs: CostTable | None,
) -> dict[str, float]:
    """Sums over the steps: verified and emitted tokens, seconds, expected throughput."""
    sums = {"verified": 0.0, "emitted": 0.0, "seconds": 0.0, "expected": 0.0}
    for batch, lengths in zip(batches, _lengths(rule, batches), strict=True):
        requests, tokens = len(lengths), len(lengths) + lengths.sum()
        sums["verified"] += tokens
        sums["emitted"] += requests + np.minimum(lengths, batch.accepted).sum()
        sums["seconds"] += step_seconds(np.array([tokens]), requests, costs, draft_costs)[0]
        sums["expected"] += expected_throughput(
            batch.confidences, lengths, costs, draft_costs=draft_costs
        )
    return sums


def _row(
    rule: LengthRule, requests: int, found: dict[str, float], best: dict[str, float], steps: int
) -> dict[str, object]:
    speed = found["emitted"] / found["seconds"]
    return {
        "policy": rule.name,
        "causal": rule.causal,
        "concurrency": requests,
        "verified_tokens": found["verified"] / (requests * steps),
        "accepted_length": found["emitted"] / (requests * steps),
        "tokens_per_s": speed,
        "tokens_per_s_user": speed / requests,
        "expected_tokens_per_s": found["expected"] / steps,
        "regret": 1 - found["expected"] / best["expected"],
        "steps": steps,
    }


def _plain(
    requests: int, costs: CostTable, best: dict[str, float], steps: int
) -> dict[str, object]:
    """A step without a drafter: one token of every request."""
    seconds, tokens = steps * costs(requests), float(steps * requests)
    found = {"verified": tokens, "emitted": tokens, "seconds": seconds}
    found["expected"] = steps * tokens / seconds
    return _row(FixedLength(length=0), requests, found, best, steps) | {"policy": PLAIN}


def _wide(logits: np.ndarray, width: int) -> np.ndarray:
    return np.pad(logits, ((0, 0), (0, width - logits.shape[1])), constant_values=np.nan)


def _rates(logits: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """Share of the rounds that reached a position in which its draft was accepted; else 0."""
    positions = np.arange(logits.shape[1])
    trials = ((accepted[:, None] >= positions) & ~np.isnan(logits)).sum(0)
    hits = (accepted[:, None] > positions).sum(0)
    return hits / np.maximum(trials, 1)
