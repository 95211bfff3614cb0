"""Claims about policies on courses whose means are known."""

import pandas as pd
import pytest

from engram_lab.experiments.drift_claims import drift_claims

COURSES = {
    "frozen": [(0, 0, 3.0), (20, 0, 2.0), (40, 0, 1.0)],
    "refreshed": [(0, 0, 3.0), (20, 0, 2.0), (20, 20, 3.0), (40, 20, 2.0), (40, 40, 3.0)],
    "beside": [(0, 0, 3.0), (20, 20, 3.0), (40, 40, 3.0)],
}


def rows() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "policy": policy,
                "seed": seed,
                "text": "new",
                "target_step": step,
                "draft_updates": updates,
                "accepted_length": length + 0.1 * seed,
            }
            for policy, course in COURSES.items()
            for seed in range(3)
            for step, updates, length in course
        ]
    )


def test_the_mean_along_the_drift_counts_both_sides_of_a_refreshing() -> None:
    (verdict,) = drift_claims(rows(), "beside", "refreshed")
    assert verdict.difference == pytest.approx(-0.5)
    (verdict,) = drift_claims(rows(), "refreshed", "frozen")
    assert verdict.difference == pytest.approx(-0.5)
    assert verdict.outcome == "supported" and verdict.n_seeds == 3


def test_a_policy_is_compared_with_itself_as_undecided() -> None:
    (verdict,) = drift_claims(rows(), "beside", "beside")
    assert verdict.difference == 0 and verdict.outcome == "undecided"


def test_other_seeds_and_other_steps_are_refused() -> None:
    frame = rows()
    fewer = frame[(frame["policy"] != "frozen") | (frame["seed"] < 2)]
    with pytest.raises(ValueError, match=r"same seeds on new.*\[0, 1, 2\] and \[0, 1\]"):
        drift_claims(fewer, "beside", "frozen")
    shorter = frame[(frame["policy"] != "frozen") | (frame["target_step"] < 40)]
    with pytest.raises(ValueError, match="over the same steps"):
        drift_claims(shorter, "beside", "frozen")
    with pytest.raises(ValueError, match="at least two target steps"):
        drift_claims(frame[frame["target_step"] == 0], "beside", "frozen")
