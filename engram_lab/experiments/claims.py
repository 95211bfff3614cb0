"""The claims of the allocation experiment, each as a verdict."""

import pandas as pd

from engram_lab.experiments.paired import Bootstrap
from engram_lab.experiments.verdict import Verdict, paired_difference

PUBLISHED_RATIO = 0.75
ENDS = {1.0: "experts alone", 0.0: "memory alone"}
STRICT = Bootstrap(seeds=True)
"""Documents and seeds drawn anew: at small scale seeds differ more than documents do."""
CONTROLS = {
    "experts": "experts alone",
    "neighbour": "a neighbour's addresses",
    "wide_ffn": "a wider shared expert",
}


def allocation_claims(
    frame: pd.DataFrame, corpus: str, *, bootstrap: Bootstrap = STRICT
) -> list[Verdict]:
    """Verdicts on "the published split beats either end" for one corpus.

    The split tested is the measured one nearest to the published 75 %, fixed before looking, so
    that no minimum is picked after the fact.

    Args:
        frame: rows of `probes.allocation.final_loss` with columns allocation_ratio and seed.
        corpus: name that opens each claim.
        bootstrap: how intervals are made.

    Raises:
        ValueError: if no ratio lies between 0 and 1, or an end is missing.

    Source: Engram paper, section 3.1.
    """
    tested = _tested_ratio(frame)
    return [
        paired_difference(
            frame,
            tested,
            end,
            by="allocation_ratio",
            claim=f"{corpus}: {tested:.0%} experts beat {name}",
            bootstrap=bootstrap,
        )
        for end, name in ENDS.items()
    ]


def class_claims(
    frame: pd.DataFrame, corpus: str, *, bootstrap: Bootstrap = STRICT
) -> list[Verdict]:
    """Verdicts on why a split should pay: rows for fixed phrases, experts for what is computed.

    Args:
        frame: rows of `probes.allocation.final_loss` with columns allocation_ratio and seed, and
            the token classes static and computed.
        corpus: name that opens each claim.
        bootstrap: how intervals are made.

    Raises:
        ValueError: as for `allocation_claims`.
    """
    tested = _tested_ratio(frame)
    pairs = {
        ("static", 0.0, tested): f"memory alone beats {tested:.0%} experts",
        ("static", tested, 1.0): f"{tested:.0%} experts beat experts alone",
        ("computed", tested, 0.0): f"{tested:.0%} experts beat memory alone",
        ("computed", 1.0, tested): f"experts alone beat {tested:.0%} experts",
    }
    return [
        paired_difference(
            frame,
            better,
            worse,
            by="allocation_ratio",
            token_class=token_class,
            claim=f"{corpus}, {token_class} tokens: {words}",
            bootstrap=bootstrap,
        )
        for (token_class, better, worse), words in pairs.items()
    ]


def _tested_ratio(frame: pd.DataFrame) -> float:
    """The measured ratio between the ends that is nearest to the published one."""
    ratios = sorted(frame["allocation_ratio"].unique())
    inner = [ratio for ratio in ratios if 0 < ratio < 1]
    if not inner or not set(ENDS) <= set(ratios):
        raise ValueError(f"claims need the ratios 0, 1 and one between them; got {ratios}")
    return min(inner, key=lambda ratio: abs(ratio - PUBLISHED_RATIO))


def control_claims(frame: pd.DataFrame, *, bootstrap: Bootstrap = STRICT) -> list[Verdict]:
    """Verdicts on "the hybrid beats its controls".

    Args:
        frame: rows of `probes.allocation.final_loss` with columns arm and seed.
        bootstrap: how intervals are made.
    """
    return [
        paired_difference(
            frame, "engram", arm, claim=f"the hybrid beats {name}", bootstrap=bootstrap
        )
        for arm, name in CONTROLS.items()
    ]
