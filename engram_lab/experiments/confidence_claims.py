"""The claims on the confidence head: it ranks prefixes, and temperatures make it mean what it says.

Source: DSpark paper, section 3.2.1, figures 5 and 6.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict

POSITIONS = (1, 3, 5, 7)
"""Those that are published; positions that a block lacks are left out."""
LEAST_AREA = 0.75


def ranking_claims(
    summary: pd.DataFrame, *, method: str = "raw", positions: Sequence[int] = POSITIONS
) -> list[Verdict]:
    """Verdicts on "the area under the ROC exceeds 0.75", by kind of text and position.

    Args:
        summary: rows of `probes.confidence.confidence_summary` of one drafter, with columns domain
            and seed.
        method: calibration whose ranking is judged.
        positions: judged; one at which all prefixes of a seed agree ranks nothing and is left out.

    Raises:
        ValueError: if columns, the method or every position are missing.
    """
    rows = _chosen(summary, "auc", (method,), positions)
    return [
        seed_claim(
            (LEAST_AREA - part.set_index("seed")["auc"]).to_dict(),
            claim=f"{domain}, position {position}: prefixes are ranked, area above {LEAST_AREA}",
            unit=f"of area, {LEAST_AREA} minus measured",
            n_items=int(part["rounds"].min()),
        )
        for (domain, position), part in rows.groupby(["domain", "position"], sort=False)
        if np.isfinite(part["auc"]).all()
    ]


def calibration_claims(
    summary: pd.DataFrame,
    *,
    after: str = "sequential",
    measure: str = "ece",
    positions: Sequence[int] = POSITIONS,
) -> list[Verdict]:
    """Verdicts on "a calibration takes away half of the error or more", by kind of text.

    Args:
        summary: rows of `probes.confidence.confidence_summary`, or of
            `probes.confidence_floor.floor_frame`, of one drafter, with columns domain and seed.
        after: the calibration; before it the head speaks as it is.
        measure: column of the error: "ece", or "excess" for what chance does not explain.
        positions: averaged over.

    Raises:
        ValueError: if columns, a method or every position are missing.
    """
    words = "error beyond chance" if measure == "excess" else "error"
    return _compared(
        _chosen(summary, measure, ("raw", after), positions),
        measure,
        (after, "raw", 0.5),
        claim=f"{after} calibration halves the {words}",
        unit=f"of {words}, after minus half of before",
    )


def method_claims(
    summary: pd.DataFrame,
    first: str = "online",
    second: str = "sequential",
    *,
    positions: Sequence[int] = POSITIONS,
) -> list[Verdict]:
    """Verdicts on "one calibration has a lower error than another", by kind of text.

    Args:
        summary: rows of `probes.confidence.confidence_summary` of one drafter, with columns domain
            and seed.
        first: the calibration that the claim favours.
        second: the other.
        positions: averaged over.

    Raises:
        ValueError: if columns, a method or every position are missing.
    """
    return _compared(
        _chosen(summary, "ece", (first, second), positions),
        "ece",
        (first, second, 1.0),
        claim=f"{first} calibration has a lower error than {second}",
        unit="of error, difference",
    )


def threshold_claims(
    frame: pd.DataFrame, bins: pd.DataFrame, *, threshold: float = 0.5
) -> list[Verdict]:
    """Verdicts on "drafts that pass a threshold are kept more often", by kind of text.

    Any cut keeps early drafts, which survive more often; so the drafts are compared with all of
    whole blocks, and with the first of every round, which takes no head to find. Anchors are left
    out, which would come out at any threshold.

    Args:
        frame: rows of `probes.confidence.threshold_frame` of one drafter, with columns domain and
            seed and the threshold 0.
        bins: rows of `probes.confidence.confidence_frame` of the same runs.
        threshold: of the claim; a kind of text of which no draft passes in some seed is left out.

    Raises:
        ValueError: if columns, a threshold or the first position are missing.
    """
    columns = ("domain", "seed", "threshold", "verified_tokens", "accepted_tokens", "rounds")
    rows = _rows(frame, columns)
    absent = {0.0, threshold} - set(rows["threshold"])
    if absent:
        raise ValueError(
            f"threshold_claims needs thresholds 0 and {threshold}; missing: {sorted(absent)}"
        )
    kept = (rows["accepted_tokens"] - 1) / (rows["verified_tokens"] - 1)
    verdicts = []
    for domain, part in rows.assign(kept=kept).groupby("domain", sort=False):
        rate = part.pivot(index="seed", columns="threshold", values="kept")
        if not np.isfinite(rate[threshold]).all():
            continue
        blind = {"of whole blocks": rate[0.0], "first of a round": _first(bins, domain)}
        for words, other in blind.items():
            verdicts.append(
                seed_claim(
                    (other - rate[threshold]).to_dict(),
                    claim=f"{domain}: drafts above {threshold} are kept more often than {words}",
                    unit="of drafts kept, others minus those above",
                    n_items=int(part["rounds"].min()),
                )
            )
    return verdicts


def _first(bins: pd.DataFrame, domain: object) -> pd.Series:
    """Share of first drafts that were accepted, by seed."""
    rows = _chosen(bins[bins["domain"] == domain], "observed", ("raw",), (1,), items="count")
    sums = rows.assign(kept=rows["observed"] * rows["count"]).groupby("seed")[["kept", "count"]]
    totals = sums.sum()
    return totals["kept"] / totals["count"]


def _compared(
    rows: pd.DataFrame, measure: str, pair: tuple[str, str, float], *, claim: str, unit: str
) -> list[Verdict]:
    """Mean over positions of the first method's measure minus a share of the second's."""
    first, second, share = pair
    verdicts = []
    for domain, part in rows.groupby("domain", sort=False):
        means = part.pivot_table(index="seed", columns="method", values=measure)
        verdicts.append(
            seed_claim(
                (means[first] - share * means[second]).to_dict(),
                claim=f"{domain}: {claim}",
                unit=unit,
                n_items=int(part["rounds"].min()),
            )
        )
    return verdicts


def _chosen(
    frame: pd.DataFrame,
    measure: str,
    methods: Sequence[str],
    positions: Sequence[int],
    *,
    items: str = "rounds",
) -> pd.DataFrame:
    """Rows of these methods and positions."""
    rows = _rows(frame, ("domain", "seed", "method", "position", measure, items))
    rows = rows[rows["method"].isin(methods) & rows["position"].isin(positions)]
    absent = [name for name in methods if name not in set(rows["method"])]
    if absent:
        raise ValueError(
            f"claims on confidence need methods {', '.join(methods)} at one of the positions "
            f"{list(positions)}; missing: {', '.join(absent)}"
        )
    return rows


def _rows(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    missing = [name for name in columns if name not in frame]
    if missing or ("drafter" in frame and frame["drafter"].nunique() > 1):
        raise ValueError(
            f"claims on confidence need columns {', '.join(columns)} of one drafter; missing: "
            f"{', '.join(missing) or 'none, but there are several drafters'}"
        )
    return frame
