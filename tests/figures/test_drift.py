"""The figure of a drift: a line a policy, seeds thin, both points of a refreshing."""

import pandas as pd
import pytest

from engram_lab.figures.drift import drift_curves
from tests.figures.frames import footer, traces


def drift_rows(*, seeds: tuple[int, ...] = (0, 1)) -> pd.DataFrame:
    """Two measurements of every policy; the refreshed drafter is measured twice at the second."""
    courses = {
        "frozen": [(0, 0, 3.0), (20, 0, 2.0)],
        "refreshed": [(0, 0, 3.0), (20, 0, 2.0), (20, 20, 2.6)],
        "beside": [(0, 0, 3.0), (20, 20, 2.8)],
    }
    return pd.DataFrame(
        [
            {
                "policy": policy,
                "seed": seed,
                "target_step": step,
                "draft_updates": updates,
                "text": text,
                "accept_rate": 0.5,
                "accepted_length": length + 0.2 * seed,
                "sampled_length": length - 0.5,
                "target_shift": 0.01 * step,
            }
            for policy, course in courses.items()
            for seed in seeds
            for text in ("old", "new")
            for step, updates, length in course
        ]
    )


def test_every_policy_has_the_mean_of_its_seeds_and_each_seed():
    figure = drift_curves(drift_rows())
    new, old = traces(figure, "trained beside the target")
    assert list(new.x) == [0, 20] and list(new.y) == pytest.approx([3.1, 2.9])
    assert list(old.y) == pytest.approx([3.1, 2.9])
    assert len(traces(figure, "trained beside the target, seeds")) == 4
    assert [trace.showlegend for trace in (new, old)] == [True, False]


def test_a_refreshing_is_seen_before_and_after():
    line = traces(drift_curves(drift_rows()), "refreshed now and then")[0]
    assert list(line.x) == [0, 20, 20]
    assert list(line.y) == pytest.approx([3.1, 2.1, 2.7])
    assert list(line.customdata) == [0, 0, 20]


def test_decoded_lengths_can_be_drawn_instead():
    figure = drift_curves(drift_rows(), length="sampled_length")
    assert list(traces(figure, "left as it was")[0].y) == [2.5, 1.5]
    assert "temperature 1" in figure.layout.title.text


def test_how_far_the_target_moved_stands_below_once():
    moved = traces(drift_curves(drift_rows()), "target moved")
    assert [list(trace.y) for trace in moved] == [[0.0, 0.2], [0.0, 0.2]]


def test_the_footer_says_that_updates_are_equal_only_if_they_are():
    rows = drift_rows()
    assert "beside and refreshed: 20 updates" in footer(drift_curves(rows))
    rows.loc[rows["policy"] == "beside", "draft_updates"] *= 2
    assert "updates of the drafter" not in footer(drift_curves(rows))


def test_missing_columns_and_unknown_lengths_are_named():
    with pytest.raises(ValueError, match="missing: target_shift.*DSPARK_TRAINING"):
        drift_curves(drift_rows().drop(columns="target_shift"))
    with pytest.raises(ValueError, match="length must be one of accepted_length"):
        drift_curves(drift_rows(), length="tau")
