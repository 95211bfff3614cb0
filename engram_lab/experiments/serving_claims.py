"""The claims of the serving experiment: budgets shrink with load, schedulers beat fixed rules."""

from collections.abc import Mapping, Sequence

import pandas as pd

from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict
from engram_lab.probes.serving import matched_gains

FIXED = ("MTP-1", "whole block", "threshold")


def serving_claims(
    frame: pd.DataFrame,
    *,
    policy: str = "stale capacity",
    others: Sequence[str] = FIXED,
    baseline: str = "MTP-1",
) -> list[Verdict]:
    """Verdicts for one domain and one cost curve.

    Args:
        frame: rows of `probes.serving.serving_frame` with a column seed, for closed loops of at
            least two numbers of users.
        policy: the scheduler that is claimed for.
        others: what it is claimed to beat, in throughput, averaged over the numbers of users.
        baseline: at whose throughput the speed of a user is compared.

    Returns:
        The claim that fewer tokens are verified for a request under the largest load than under
        the smallest; for each of `others` the claim of more throughput; and the claim of a higher
        speed of the user at equal throughput, where the frontiers overlap.

    Raises:
        ValueError: if a policy is missing, or there is one number of users only.
    """
    names = {policy, baseline, *others}
    absent = sorted(names - set(frame["policy"]))
    if absent or frame["concurrency"].nunique() < 2:
        raise ValueError(
            f"serving_claims needs the policies {', '.join(sorted(names))} at two numbers of users "
            f"or more; missing: {', '.join(absent) or 'a second number of users'}"
        )
    scheduled = frame[frame["policy"] == policy]
    budget = scheduled.pivot(index="seed", columns="concurrency", values="verified_tokens")
    shrinks = seed_claim(
        (budget[budget.columns.max()] - budget[budget.columns.min()]).to_dict(),
        claim=f"{policy} verifies less under the largest load than under the smallest",
        unit="tokens per request and step",
        n_items=len(budget.columns),
    )
    wins = [_throughput_claim(frame, policy, other) for other in others]
    speed = _speed_claim(frame, policy, baseline)
    return [shrinks, *wins, *([speed] if speed else [])]


def claim_by_curve(verdicts: Mapping[str, Verdict]) -> str:
    """One claim on several cost curves in a sentence, for a figure.

    Args:
        verdicts: on the same claim, by curve.

    Raises:
        ValueError: if there is none, or they are on different claims.
    """
    claims = {verdict.claim for verdict in verdicts.values()}
    if len(claims) != 1:
        raise ValueError(f"claim_by_curve needs verdicts on one claim; got {sorted(claims)}")
    count = max(verdict.n_seeds for verdict in verdicts.values())
    found = [
        f"{curve} {verdict.outcome} ({verdict.low:+.2f} to {verdict.high:+.2f})"
        for curve, verdict in verdicts.items()
    ]
    unit = next(iter(verdicts.values())).unit
    seeds = f"{count} seed{'s' if count != 1 else ''}"
    return f"{claims.pop()}: {', '.join(found)}. In {unit}, {seeds}."


def _throughput_claim(frame: pd.DataFrame, policy: str, other: str) -> Verdict:
    speeds = frame.pivot_table(
        index=["seed", "concurrency"], columns="policy", values="tokens_per_s"
    )
    lead = (speeds[other] / speeds[policy] - 1).groupby("seed").mean()
    return seed_claim(
        lead.to_dict(),
        claim=f"{policy} has more throughput than {other}, mean over loads",
        unit="share of the scheduler's throughput",
        n_items=frame["concurrency"].nunique(),
    )


def _speed_claim(frame: pd.DataFrame, policy: str, baseline: str) -> Verdict | None:
    gains = matched_gains(frame, baseline=baseline, by=["seed"])
    found = gains[gains["policy"] == policy].dropna(subset="speed_gain")
    if found.empty:
        return None
    by_seed = found.groupby("seed")["speed_gain"].mean()
    return seed_claim(
        (-by_seed).to_dict(),
        claim=f"{policy} is faster for a user than {baseline} at equal throughput",
        unit="relative speed, sign turned",
        n_items=len(found) // len(by_seed),
    )
