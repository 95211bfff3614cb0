"""Small frames of confidence and schedules, with values that can be checked by hand."""

import itertools

import pandas as pd

METHODS = ("raw", "sequential")


def bin_rows(*, positions=(1, 2, 3, 4, 5), methods=METHODS, count=20, **columns) -> pd.DataFrame:
    """Two bins a position; the raw confidence says 0.2 too much."""
    rows = [
        {
            "method": method,
            "position": position,
            "bin": bin_,
            "predicted": rate + (0.2 if method == "raw" else 0.0),
            "observed": rate,
            "count": count + bin_,
        }
        for method, position, (bin_, rate) in itertools.product(
            methods, positions, ((4, 0.2), (12, 0.6))
        )
    ]
    return pd.DataFrame(rows).assign(**columns)


def summary_rows(*, positions=(1, 2, 3), methods=METHODS, **columns) -> pd.DataFrame:
    """Errors of 10% and 2%, the same ranking."""
    rows = [
        {
            "method": method,
            "position": position,
            "ece": 0.1 if method == "raw" else 0.02,
            "auc": 0.7 + 0.05 * position,
            "brier": 0.2,
            "rounds": 40,
        }
        for method, position in itertools.product(methods, positions)
    ]
    return pd.DataFrame(rows).assign(**columns)


def threshold_rows(*, thresholds=(0.0, 0.5, 0.9), **columns) -> pd.DataFrame:
    """From 8 verified and 4 accepted tokens down to 2.6 and 2.2."""
    rows = [
        {
            "threshold": threshold,
            "verified_tokens": 8 - 6 * threshold,
            "accepted_tokens": 4 - 2 * threshold,
            "rejected_tokens": 4 - 4 * threshold,
            "verify_rate": (4 - 2 * threshold) / (8 - 6 * threshold),
            "rounds": 40,
        }
        for threshold in thresholds
    ]
    return pd.DataFrame(rows).assign(**columns)


SPEEDS = {"plain decoding": 1.0, "fixed 5": 1.5, "early stop": 2.0, "unrestricted": 2.2}


def schedule_rows(*, concurrency=(1, 8), speeds=SPEEDS) -> pd.DataFrame:
    """Throughput of four policies, in proportion to the load."""
    rows = [
        {
            "policy": policy,
            "causal": policy != "unrestricted",
            "concurrency": requests,
            "verified_tokens": 1.0 if policy == "plain decoding" else 6.0 / requests,
            "accepted_length": 1.0,
            "tokens_per_s": 100 * speed * requests,
            "tokens_per_s_user": 100 * speed,
            "regret": 1 - speed / 2.2,
            "steps": 32,
        }
        for requests, (policy, speed) in itertools.product(concurrency, speeds.items())
    ]
    return pd.DataFrame(rows)


def batch_rows() -> pd.DataFrame:
    """Three requests under two policies."""
    rows = [
        {
            "policy": policy,
            "request": request,
            "length": length,
            "kept": min(length, 2),
            "accepted": 2,
            "expected": 1.5,
        }
        for policy in ("fixed 5", "early stop")
        for request, length in enumerate((3, 1, 0))
    ]
    return pd.DataFrame(rows)


def walk_rows() -> pd.DataFrame:
    """Rises once, falls once, and is highest at the end."""
    return pd.DataFrame(
        {
            "drafts": [0, 1, 2, 3],
            "request": [-1, 0, 1, 0],
            "position": [0, 1, 1, 2],
            "survival": [float("nan"), 0.9, 0.8, 0.7],
            "tokens": [2, 3, 4, 5],
            "expected_tokens": [2.0, 2.9, 3.7, 4.4],
            "tokens_per_s": [100.0, 130.0, 120.0, 160.0],
            "examined": [True, True, True, False],
            "admitted": [True, True, False, False],
            "best": [False, False, False, True],
        }
    )
