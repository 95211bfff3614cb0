"""Claims about drafters beside a moving target: which policy keeps more tokens a round."""

import numpy as np
import pandas as pd

from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict


def drift_claims(
    frame: pd.DataFrame, first: str, second: str, *, length: str = "accepted_length"
) -> list[Verdict]:
    """Verdicts on "policy A keeps more tokens a round than B along the drift", by kind of text.

    The number of a policy is the mean of its accepted length over the target's steps, by the
    trapezoidal rule: a refreshed drafter is taken before and after each refreshing. Targets and
    texts of a seed are the same for both. Items of a verdict are the steps it was measured at.

    Args:
        frame: rows of `catalog.DSPARK_TRAINING`.
        first: policy that the claim favours.
        second: the other.
        length: column that is averaged.

    Raises:
        ValueError: if a policy is missing, has other seeds, or was measured over other steps.
    """
    verdicts = []
    for text, part in frame.groupby("text", sort=False):
        ours, theirs = (_courses(part[part["policy"] == name], length) for name in (first, second))
        if not ours or set(ours) != set(theirs):
            raise ValueError(
                f"drift_claims needs policies {first!r} and {second!r} with the same seeds on "
                f"{text} texts; got seeds {sorted(ours)} and {sorted(theirs)}"
            )
        for seed, (_, steps) in ours.items():
            if steps != theirs[seed][1]:
                raise ValueError(
                    f"drift_claims compares policies over the same steps; on {text} texts seed "
                    f"{seed} has {steps} of {first!r} and {theirs[seed][1]} of {second!r}"
                )
        verdicts.append(
            seed_claim(
                {seed: theirs[seed][0] - mean for seed, (mean, _) in ours.items()},
                claim=f"{text} texts: {first} keeps more along the drift than {second}",
                unit="tokens a round",
                n_items=len(next(iter(ours.values()))[1]),
            )
        )
    return verdicts


def _courses(rows: pd.DataFrame, length: str) -> dict[int, tuple[float, tuple[int, ...]]]:
    """By seed: mean over the target's steps, and the steps it was measured at."""
    found = {}
    for seed, own in rows.groupby("seed"):
        own = own.sort_values(["target_step", "draft_updates"])
        steps = own["target_step"].to_numpy(float)
        if steps[-1] == steps[0]:
            raise ValueError(
                f"drift_claims needs at least two target steps; seed {seed} was measured at "
                f"{int(steps[0])} alone"
            )
        area = np.trapezoid(own[length].to_numpy(float), steps)
        measured = tuple(sorted({int(step) for step in steps}))
        found[int(seed)] = (float(area / (steps[-1] - steps[0])), measured)
    return found
