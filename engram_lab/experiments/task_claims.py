"""Claims about tasks: hybrid against its rivals (E3), and what the memory holds (E7)."""

import pandas as pd

from engram_lab.experiments.claims import STRICT
from engram_lab.experiments.paired import Bootstrap
from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict, paired_difference

RIVALS = {
    "experts": "experts alone",
    "dense": "a dense model of the same active parameters",
    "neighbour": "a neighbour's addresses",
    "wide_ffn": "a wider shared expert",
}
ABILITIES = {
    "closed_book": "recall",
    "passage": "reading",
    "static": "fixed phrases",
    "computed": "chains",
}
PUBLISHED_READING, PUBLISHED_RECALL = 0.81, 0.44
"""Least share that reading retains in the paper, and the largest that facts do."""


def rival_claims(
    frame: pd.DataFrame, corpus: str, *, bootstrap: Bootstrap = STRICT
) -> list[Verdict]:
    """Verdicts on "the hybrid has a lower loss than each rival", and on three times the rows.

    Args:
        frame: rows of `probes.allocation.final_loss` with columns arm and seed.
        corpus: name that opens each claim.
        bootstrap: how intervals are made.
    """
    arms = set(frame["arm"])
    pairs = {("engram", arm): f"the hybrid beats {name}" for arm, name in RIVALS.items()}
    pairs["engram_3x", "engram"] = "three times the rows beat one"
    return [
        paired_difference(frame, *pair, claim=f"{corpus}: {words}", bootstrap=bootstrap)
        for pair, words in pairs.items()
        if set(pair) <= arms
    ]


def family_claims(items: pd.DataFrame, *, rival: str = "experts") -> list[Verdict]:
    """Verdicts on "the hybrid answers more than its rival", family by family.

    Args:
        items: rows of `probes.task_sets.task_items` with columns arm and seed; both arms and all
            seeds were asked the same.
        rival: the other arm.

    Raises:
        ValueError: if an arm is missing or the arms were not asked the same.
    """
    keys = ["family", "task", "seed", "item"]
    sides = [items[items["arm"] == arm][[*keys, "score"]] for arm in (rival, "engram")]
    both = sides[0].merge(sides[1], on=keys, suffixes=("_rival", "_own"))
    if not len(both) or any(len(side) != len(both) for side in sides):
        raise ValueError(
            f"family_claims needs the arms 'engram' and {rival!r} on the same items; got "
            f"{items.groupby('arm').size().to_dict()} rows"
        )
    both["difference"] = both["score_rival"] - both["score_own"]
    verdicts = []
    for family, part in both.groupby("family", sort=False):
        by_task = part.groupby(["seed", "task"])["difference"].agg(["mean", "sem", "count"])
        by_seed = by_task["mean"].groupby("seed").mean()
        errors = by_task["sem"].pow(2).groupby("seed").sum().pow(0.5) / part["task"].nunique()
        verdicts.append(
            seed_claim(
                by_seed.to_dict(),
                claim=f"{family}: the hybrid answers more than {RIVALS.get(rival, rival)}",
                unit="of accuracy",
                errors=errors.fillna(0).to_dict(),
                n_items=int(by_task["count"].groupby("seed").sum().max()),
            )
        )
    return verdicts


def ablation_claims(
    frame: pd.DataFrame, *, recall: str = "closed_book", reading: str = "passage"
) -> list[Verdict]:
    """Verdicts on "facts live in the table, reading does not".

    Claims about reading are left out where the intact model cannot read in some seed: there is
    nothing to keep.

    Args:
        frame: rows of `probes.ablation.ablation_frame` of one kind of model, several seeds.
        recall: task that asks for what is fixed, such as facts of the book.
        reading: task that can be answered from the text.

    Raises:
        ValueError: if a task or cut is missing, or the intact model does not know the facts.
    """
    fixed, read = ABILITIES.get(recall, recall), ABILITIES.get(reading, reading)
    raw = {cut: _share(frame, recall, cut, "retained") for cut in ("rows_zero", "rows_permuted")}
    above = _share(frame, recall, "rows_zero", "retained_corrected")
    if above.isna().any():
        raise ValueError(
            f"the claims need models that know the answers of task {recall!r}; shares above chance "
            f"are {above.tolist()}, empty where the intact model is at chance: train it longer"
        )
    differences: dict[str, pd.Series] = {
        f"without memory {PUBLISHED_RECALL:.0%} or less is kept of {fixed}": raw["rows_zero"]
        - PUBLISHED_RECALL,
        f"rows of other n-grams hurt {fixed} more than no rows": raw["rows_permuted"]
        - raw["rows_zero"],
    }
    kept = _share(frame, reading, "rows_zero", "retained_corrected")
    if kept.notna().all():
        words = f"without memory less is kept of {fixed} than of {read} (above chance)"
        differences[words] = above - kept
        words = f"without memory {PUBLISHED_READING:.0%} or more is kept of {read}"
        differences[words] = PUBLISHED_READING - _share(frame, reading, "rows_zero", "retained")
    count = int(frame.loc[frame["task"] == recall, "items"].max())
    return [
        seed_claim(by_seed.to_dict(), claim=claim, unit="of the intact score", n_items=count)
        for claim, by_seed in differences.items()
    ]


def _share(frame: pd.DataFrame, task: str, cut: str, column: str) -> pd.Series:
    """What is retained of a task under a cut of all memories, by seed."""
    rows = frame[(frame["task"] == task) & (frame["arm"] == cut) & (frame["layer"] == "all")]
    if rows.empty:
        raise ValueError(
            f"the claims need task {task!r} under {cut!r}; the frame has the tasks "
            f"{sorted(frame['task'].unique())} under {sorted(frame['arm'].unique())}"
        )
    return rows.set_index("seed")[column]
