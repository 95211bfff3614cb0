"""Areas by module and branch, and gates under two topics."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.figures.gate_scores import gate_auc, topic_violins
from tests.figures.frames import footer, traces


def score_rows(models=("engram", "neighbour"), branches=1) -> pd.DataFrame:
    values = {"phrase_end": 0.8, "phrase_end_inside": 0.7, "surprise": -0.4}
    rows = [
        {"model": model, "seed": seed, "statistic": statistic, "layer": layer, "branch": branch}
        | {
            "measure": measure,
            "value": value + 0.01 * seed,
            "low": value - 0.1,
            "high": value + 0.1,
        }
        | {"items": 4_000, "train_tokens": 700_000}
        for model in models
        for seed in (0, 1)
        for statistic, value in values.items()
        for measure, layer in (("gate", 1), ("value_norm", 1), ("ngram_count", -1))
        for branch in range(branches if layer > 0 else 1)
    ]
    return pd.DataFrame(rows)


def topic_rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {"model": model, "seed": seed, "layer": 1, "branch": 0, "document": n // 5, "phrase": n}
        | {"gate_home": 0.6 + 0.02 * rng.random(), "gate_elsewhere": 0.4 + 0.02 * rng.random()}
        | {"value_norm_home": 2.0, "value_norm_elsewhere": 1.0, "train_tokens": 1_000_000}
        for model in ("engram", "neighbour")
        for seed in (0, 1)
        for n in range(20)
    ]
    return pd.DataFrame(rows)


def test_every_module_and_branch_has_a_row_and_counting_one_more():
    figure = gate_auc(score_rows(branches=2))
    assert list(figure.layout.yaxis.ticktext) == [
        "own addresses,<br>block 1",
        "own addresses,<br>block 1, branch 1",
        "neighbour's addresses,<br>block 1",
        "neighbour's addresses,<br>block 1, branch 1",
        "counting, no model",
    ]


def test_three_panels_with_seeds_and_intervals():
    figure = gate_auc(score_rows())
    gates = traces(figure, "gate")
    assert len(gates) == 3 and [len(trace.x) for trace in gates] == [4, 4, 4]
    assert list(gates[0].error_x.array[:1]) == pytest.approx([0.1])
    assert [trace.showlegend for trace in gates] == [True, False, False]
    counted = traces(figure, "n-gram count")
    assert len(counted[0].x) == 2  # equal for both models, told once
    assert "4000 tokens" in footer(figure) and "every memory layer and branch" in footer(figure)


def test_violins_hold_both_topics_and_points_the_paired_differences():
    figure = topic_violins(topic_rows())
    assert len(traces(figure, "right topic")) == len(traces(figure, "wrong topic")) == 2
    seeds = traces(figure, "seeds, own addresses,<br>block 1")[0]
    assert list(seeds.y) == pytest.approx([0.2, 0.2], abs=0.02)
    assert "20 phrases a model" in footer(figure)
    assert (
        topic_violins(topic_rows(), measure="value_norm").layout.yaxis.title.text
        == "gate × |value|"
    )


def test_missing_columns_and_measures_are_refused():
    with pytest.raises(ValueError, match="gate_auc needs columns.*missing: low"):
        gate_auc(score_rows().drop(columns="low"))
    with pytest.raises(ValueError, match="measure must be gate or value_norm"):
        topic_violins(topic_rows(), measure="alpha")
    with pytest.raises(ValueError, match="missing: gate_home"):
        topic_violins(topic_rows().drop(columns="gate_home"))
