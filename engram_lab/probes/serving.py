"""Policies under load: throughput, speed of a user, and tokens verified, at every concurrency."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from engram_lab.draft.serving import Engine, Load, simulate
from engram_lab.draft.serving_policies import Policy
from engram_lab.draft.serving_records import AcceptanceRecords

FRONTIER = ("policy", "concurrency", "tokens_per_s", "tokens_per_s_user")


def serving_frame(
    records: AcceptanceRecords,
    policies: Sequence[Policy],
    engine: Engine,
    loads: Sequence[Load],
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Every policy under every load, on the same measured rounds.

    Args:
        records: what is drafted and accepted.
        policies: to compare, with different names.
        engine: costs and places.
        loads: closed loops of several numbers of users, or open ones.
        seed: of arrivals, answers and draws of rounds.

    Returns:
        One row per policy and load, with columns policy, concurrency (users; of an open loop the
        mean number of requests that run), rate_per_s (NaN for a closed loop), causal, the columns
        of `draft.serving_metrics.Served.row`, and regret: the share of throughput that is lost
        against the policy that knows what will be accepted (negative where not drafting beats
        that one, since it drafts), or without one the best policy; NaN for an open loop, where
        throughput is what arrives.

    Raises:
        ValueError: if there is no policy or load, or two policies share a name.
    """
    names = [policy.name for policy in policies]
    if not names or not loads or len(set(names)) < len(names):
        raise ValueError(
            f"serving_frame needs policies with different names and a load; got {names} and "
            f"{len(loads)} loads"
        )
    rows = []
    for load in loads:
        served = {p.name: simulate(records, p, engine, load, seed=seed).row() for p in policies}
        bounds = [policy.name for policy in policies if policy.sees == "outcomes"] or names
        best = max(served[name]["tokens_per_s"] for name in bounds)
        rows += [_row(policy, load, served[policy.name], best) for policy in policies]
    return pd.DataFrame(rows)


def matched_gains(
    frame: pd.DataFrame, *, baseline: str = "MTP-1", by: Sequence[str] = ()
) -> pd.DataFrame:
    """What a policy gains at the throughput, and at the user's speed, of each point of another.

    Between measured points of a policy its frontier is a straight line; beyond its ends nothing is
    said.

    Args:
        frame: rows of `serving_frame` for closed loops.
        baseline: the policy to compare with.
        by: columns that keep curves apart, for instance domain, costs and seed.

    Returns:
        Columns `by`, policy, concurrency (of the baseline), tokens_per_s and tokens_per_s_user (of
        the baseline), speed_gain (relative gain of a user's speed at equal throughput) and
        throughput_gain (at equal speed); NaN where the policy's frontier does not reach.

    Raises:
        ValueError: if columns are missing, or a curve lacks the baseline.
    """
    missing = [name for name in (*by, *FRONTIER) if name not in frame]
    if missing:
        raise ValueError(
            f"matched_gains needs columns {', '.join((*by, *FRONTIER))}; missing: "
            f"{', '.join(missing)}. serving_frame() makes such a frame."
        )
    curves = list(frame.groupby(list(by), sort=False)) if by else [((), frame)]
    parts = []
    for values, curve in curves:
        context = dict(zip(by, values, strict=True))
        if baseline not in set(curve["policy"]):
            raise ValueError(f"matched_gains compares with {baseline!r}, which {context} lacks")
        base = curve[curve["policy"] == baseline]
        for policy, rows in curve[curve["policy"] != baseline].groupby("policy", sort=False):
            parts.append(_gains(base, rows).assign(**context, policy=policy))
    columns = [*by, *FRONTIER, "speed_gain", "throughput_gain"]
    return pd.concat(parts, ignore_index=True)[columns]


def _row(policy: Policy, load: Load, measured: dict[str, float], best: float) -> dict[str, object]:
    """A policy under a load, with its regret against the best throughput."""
    closed = load.users is not None
    index = {
        "policy": policy.name,
        "concurrency": float(load.users if closed else measured["mean_running"]),
        "rate_per_s": np.nan if closed else load.rate_per_s,
        "causal": policy.causal,
    }
    regret = 1 - measured["tokens_per_s"] / best if closed else np.nan
    return {**index, **measured, "regret": regret}


def _gains(base: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Both gains at the points of the baseline."""
    throughput, speed = _frontier(rows)
    at_throughput = np.interp(base["tokens_per_s"], throughput, speed, left=np.nan, right=np.nan)
    at_speed = np.interp(
        base["tokens_per_s_user"], speed[::-1], throughput[::-1], left=np.nan, right=np.nan
    )
    return base[list(FRONTIER)].assign(
        speed_gain=at_throughput / base["tokens_per_s_user"] - 1,
        throughput_gain=at_speed / base["tokens_per_s"] - 1,
    )


def _frontier(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Throughput, rising, and speed, falling, of the points that no other point beats in both."""
    ordered = rows.sort_values(["tokens_per_s_user", "tokens_per_s"], ascending=False)
    best = ordered["tokens_per_s"].cummax()
    kept = ordered[best > best.shift(fill_value=0.0)]
    return kept["tokens_per_s"].to_numpy(), kept["tokens_per_s_user"].to_numpy()
