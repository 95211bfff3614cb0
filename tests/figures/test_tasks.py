"""The dumbbell of tasks: arms, chance, differences and published ones, where they belong."""

import pandas as pd
import pytest

from engram_lab.figures.tasks import rows_by_family, task_dumbbell
from engram_lab.published import load_published
from tests.figures.frames import footer, traces

TASKS = {"closed_book": "recall", "asked_before": "recall", "passage": "reading"}
LEVELS = {"experts": 0.4, "engram": 0.6, "dense": 0.3}


def items(arms=LEVELS, seeds=(0, 1)) -> pd.DataFrame:
    rows = [
        {
            "arm": arm,
            "seed": seed,
            "family": family,
            "task": task,
            "item": item,
            "score": float(item < 10 * (level + 0.1 * seed)),
            "chance": 0.1,
            "params": 3_620_000,
        }
        for arm, level in arms.items()
        for seed in seeds
        for task, family in TASKS.items()
        for item in range(10)
    ]
    return pd.DataFrame(rows)


def test_tasks_of_a_family_stand_together_under_its_name():
    rows = rows_by_family(items().sort_values("task"))
    assert rows["family"].tolist() in (
        ["recall", "recall", "reading"],
        ["reading", "recall", "recall"],
    )
    figure = task_dumbbell(items())
    assert [text.split("<br>")[0] for text in figure.layout.yaxis.ticktext] == [
        "closed book", "asked before", "passage"
    ]  # fmt: skip
    assert "recall" in figure.layout.yaxis.ticktext[0]


def test_every_arm_has_its_mean_and_two_are_joined():
    figure = task_dumbbell(items())
    assert list(traces(figure, "hybrid")[0].x) == pytest.approx([0.65] * 3)
    assert list(traces(figure, "dense")[0].x) == pytest.approx([0.35] * 3)
    joined = [trace for trace in figure.data if getattr(trace, "mode", "") == "lines"]
    assert [list(trace.x) for trace in joined] == [pytest.approx([0.45, 0.65])] * 3
    assert list(traces(figure, "chance")[0].x) == [0.1] * 3


def test_differences_are_points_of_seeds_with_their_mean():
    figure = task_dumbbell(items())
    assert list(traces(figure, "mean of seeds")[0].x) == pytest.approx([20.0] * 3)
    seeds = traces(figure, "seeds")[0]
    assert len(seeds.x) == 6 and set(seeds.customdata) == {0, 1}


def test_published_differences_stand_in_the_row_of_their_family():
    figure = task_dumbbell(items(), published=load_published("engram_table1_pretraining"))
    grey = traces(figure, "published")
    assert [len(trace.x) for trace in grey] == [3, 4]
    trivia = dict(zip([row[0] for row in grey[0].customdata], grey[0].x, strict=True))
    assert trivia["TriviaQA"] == pytest.approx(1.9)
    assert grey[0].y[0] < 1 < grey[1].y[0]
    assert "Engram-27B minus MoE-27B" in footer(figure)


def test_footer_and_verdict_say_what_stands_behind():
    figure = task_dumbbell(items(), verdict="So it is.")
    assert "3.62 M parameters" in footer(figure) and "10 items a task" in footer(figure)
    assert "So it is." in figure.layout.title.text


def test_missing_columns_and_arms_are_refused():
    with pytest.raises(ValueError, match="task_dumbbell needs columns .*missing: score"):
        task_dumbbell(items().drop(columns="score"))
    with pytest.raises(ValueError, match="the frame has only dense"):
        task_dumbbell(items({"dense": 0.3}))
