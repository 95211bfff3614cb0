"""Claims on memory and draft together: does it draft more easily, can a table draft, is it cheap.

Nothing is published on either question.
"""

import pandas as pd

from engram_lab.experiments.draft_claims import length_claims
from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict

NAMES = {
    ("plain", "dspark", False): "DSpark without memory",
    ("memory", "dspark", False): "DSpark for a target with memory",
    ("plain", "dspark", True): "DSpark with a foreign table",
    ("memory", "dspark", True): "DSpark with its target's table",
    ("plain", "bigram", False): "counts",
    ("memory", "bigram", False): "counts for a target with memory",
    ("plain", "parallel_bigram", False): "DFlash with counts",
    ("memory", "parallel_bigram", False): "DFlash with counts for a target with memory",
}
"""Cells in words, by target, drafter and rows."""
PAIRS = (
    (("memory", "dspark", False), ("plain", "dspark", False)),
    (("memory", "dspark", True), ("memory", "dspark", False)),
    (("plain", "dspark", True), ("plain", "dspark", False)),
    (("plain", "dspark", True), ("plain", "parallel_bigram", False)),
)
"""What is compared: the target's memory, its rows in the drafter, a foreign table, and counts."""


def memory_claims(frame: pd.DataFrame, *, temperature: float = 1.0) -> list[Verdict]:
    """Verdicts on "this cell gains more tokens a round than that", by kind of text.

    Prompts are the same in all cells. The two targets answer them each in their own words, so the
    first comparison is of pairs of target and drafter, not of drafters on one text.

    Args:
        frame: rows of `catalog.DSPARK_MEMORY`.
        temperature: at which it was drawn.

    Raises:
        ValueError: if a cell is missing or has other seeds or prompts, or nothing was drawn at
            this temperature.
    """
    part = _drawn_at(frame, temperature)
    cells = part[["target", "drafter", "rows"]].itertuples(index=False, name=None)
    named = part.assign(cell=[NAMES[cell] for cell in cells])
    return [
        verdict
        for first, second in PAIRS
        for verdict in length_claims(named, NAMES[first], NAMES[second], by="cell")
    ]


def read_claims(
    frame: pd.DataFrame, *, threshold: float = 0.5, temperature: float = 1.0
) -> list[Verdict]:
    """Verdicts on "a threshold reads fewer bytes for a token gained", by target and kind of text.

    Args:
        frame: rows of `catalog.DSPARK_MEMORY_READS`; cells that read nothing are left out.
        threshold: compared with 0, which verifies whole blocks.
        temperature: at which it was drawn.

    Raises:
        ValueError: if the threshold is missing, nobody reads, or nothing was drawn at this
            temperature.
    """
    part = _drawn_at(frame, temperature)
    part = part[part["bytes_per_token"] > 0]
    if part.empty or not {0.0, threshold} <= set(part["threshold"]):
        raise ValueError(
            f"read_claims needs cells that read rows at the thresholds 0 and {threshold:g}; got "
            f"thresholds {sorted(set(part['threshold']))}"
        )
    verdicts = []
    for (target, rows, domain), cell in part.groupby(["target", "rows", "domain"], sort=False):
        wide = cell.pivot(index="seed", columns="threshold", values="bytes_per_token")
        verdicts.append(
            seed_claim(
                (wide[threshold] - wide[0.0]).to_dict(),
                claim=f"{domain}, {NAMES[target, 'dspark', rows]}: a threshold of {threshold:g} "
                "reads less for a token",
                unit="bytes a token",
                n_items=int(cell["rounds"].min()),
            )
        )
    return verdicts


def _drawn_at(frame: pd.DataFrame, temperature: float) -> pd.DataFrame:
    part = frame[frame["temperature"] == temperature]
    if part.empty:
        raise ValueError(
            f"no rows at temperature {temperature:g}; there are {sorted(set(frame['temperature']))}"
        )
    return part
