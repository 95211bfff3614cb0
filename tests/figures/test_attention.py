"""Attention figure: a panel a window, a line an arm, a point a seed."""

import pandas as pd
import pytest

from engram_lab.figures.attention import attention_curves
from tests.figures.frames import footer, traces


def mass_rows(*, arms=("engram", "experts"), seeds=(0, 1)) -> pd.DataFrame:
    rows = [
        {
            "arm": arm,
            "layer": layer,
            "seed": seed,
            "window": window,
            "mass": 0.1 * layer + window / 256 + 0.02 * seed + 0.1 * (arm == "experts"),
            "queries": 4096,
        }
        for arm in arms
        for layer in range(3)
        for seed in seeds
        for window in (8, 32)
    ]
    return pd.DataFrame(rows)


def test_lines_are_means_over_seeds_in_a_panel_for_each_window():
    figure = attention_curves(mass_rows())
    lines = traces(figure, "hybrid")
    assert len(lines) == 2
    assert list(lines[0].y) == pytest.approx([8 / 256 + 0.01 + 0.1 * layer for layer in range(3)])
    titles = [note.text for note in figure.layout.annotations if note.name != "footer"]
    assert titles == ["<b>newest 8 tokens</b>", "<b>newest 32 tokens</b>"]
    assert figure.layout.yaxis.range[0] == 0


def test_seeds_are_points_and_their_range_a_band():
    figure = attention_curves(mass_rows())
    points = traces(figure, "experts only, seeds")[0]
    assert len(points.x) == 6 and list(points.customdata) == [0, 1] * 3
    band = traces(figure, "experts only, range over seeds")[0]
    assert abs(band.y[0] - band.y[-1]) == pytest.approx(0.02)
    assert not traces(attention_curves(mass_rows(seeds=(0,))), "hybrid, range over seeds")


def test_each_arm_is_named_once():
    figure = attention_curves(mass_rows())
    shown = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert shown == ["hybrid", "experts only"]
    assert "4,096 queries per model" in footer(figure) and "2 seeds" in footer(figure)


def test_one_model_needs_no_arm():
    figure = attention_curves(mass_rows(arms=("experts",)).drop(columns="arm"))
    assert len(traces(figure, "mean over seeds")) == 2


def test_a_frame_of_something_else_is_refused():
    with pytest.raises(ValueError, match="missing: mass. probes.attention.attention_mass"):
        attention_curves(mass_rows().drop(columns="mass"))
