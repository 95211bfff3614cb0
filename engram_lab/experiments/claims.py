"""The claims of the allocation experiment, each as a verdict."""

import pandas as pd

from engram_lab.experiments.paired import Bootstrap
from engram_lab.experiments.verdict import Verdict, paired_difference

PUBLISHED_RATIO = 0.75
ENDS = {1.0: "experts alone", 0.0: "memory alone"}
STRICT = Bootstrap(seeds=True)
"""Documents and seeds drawn anew: at small scale seeds differ more than documents do."""
CONTROLS = {"neighbour": "a neighbour's addresses", "wide_ffn": "a wider shared expert"}


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
    ratios = sorted(frame["allocation_ratio"].unique())
    inner = [ratio for ratio in ratios if 0 < ratio < 1]
    if not inner or not set(ENDS) <= set(ratios):
        raise ValueError(
            f"allocation_claims needs the ratios 0, 1 and one between them; got {ratios}"
        )
    tested = min(inner, key=lambda ratio: abs(ratio - PUBLISHED_RATIO))
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
