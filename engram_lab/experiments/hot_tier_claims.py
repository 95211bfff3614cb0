"""The claims of the hot-tier experiment, and when a difference counts as none."""

import pandas as pd

from engram_lab.experiments.claims import STRICT
from engram_lab.experiments.paired import Bootstrap
from engram_lab.experiments.verdict import Verdict, paired_difference

NULL_WIDTH = 0.01
"""Nats: an interval that holds 0 and is narrower than this supports "no difference"."""


def hot_tier_claims(frame: pd.DataFrame, *, bootstrap: Bootstrap = STRICT) -> list[Verdict]:
    """Verdicts on "rows of their own for frequent n-grams lower the loss", size by size.

    Args:
        frame: rows of `probes.hot_tier.hot_tier_loss` with columns rows, arm and seed; the arms
            hash, hot_cold and random_keys.
        bootstrap: how intervals are made.

    Raises:
        ValueError: if an arm is missing, or arms do not share documents and seeds.
    """
    others = {"hash": "hashing alone", "random_keys": "the same rows for random n-grams"}
    return [
        paired_difference(
            part,
            "hot_cold",
            other,
            claim=f"{rows:,} rows: own rows for frequent n-grams beat {name}",
            bootstrap=bootstrap,
        )
        for rows, part in frame.groupby("rows")
        for other, name in others.items()
    ]


def null_sentence(verdict: Verdict, *, width: float = NULL_WIDTH) -> str:
    """What an interval says of "there is no difference".

    Args:
        verdict: of a difference.
        width: nats; the interval must be narrower to support the absence of a difference.

    Raises:
        ValueError: if the width is not positive.
    """
    if not width > 0:
        raise ValueError(f"null_sentence needs a positive width; got {width}")
    found = f"interval {verdict.low:+.4f} to {verdict.high:+.4f} nats"
    if verdict.n_seeds < 2:
        return f"{verdict.claim}: not decided ({found} of one seed says nothing of seeds)."
    if not verdict.low <= 0 <= verdict.high:
        return f"{verdict.claim}: there is a difference ({found})."
    if verdict.high - verdict.low < width:
        return f"{verdict.claim}: no difference to speak of ({found}, narrower than {width})."
    return f"{verdict.claim}: not decided ({found} holds 0 but is wider than {width})."
