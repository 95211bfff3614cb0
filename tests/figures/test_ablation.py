"""Retained shares: sorted, coloured by family, raw and above chance, published ones behind."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.figures.ablation import FAMILIES, cut_dots, retained_bars
from engram_lab.published import load_published
from tests.figures.frames import footer, traces

SHARES = {
    ("closed_book", "recall"): 0.1,
    ("asked_before", "recall"): 0.3,
    ("passage", "reading"): 0.9,
}
CUTS = {"intact": None, "rows_zero": 0.0, "rows_permuted": -0.05, "gate_one": 0.1}


def ablation_rows(seeds=(0, 1), layers=("all",)) -> pd.DataFrame:
    rows = []
    for (task, family), share in SHARES.items():
        for cut, shift in CUTS.items():
            for seed in seeds:
                for layer in layers:
                    value = 1.0 if shift is None else share + shift + 0.02 * seed
                    rows.append(
                        {"family": family, "task": task, "arm": cut, "layer": layer, "seed": seed}
                        | {"items": 200, "retained": value, "retained_corrected": value - 0.1}
                        | {"retained_low": value - 0.03, "retained_high": value + 0.02}
                        | {"retained_corrected_low": value - 0.2, "params": 4_000_000}
                        | {"retained_corrected_high": value + 0.1}
                    )
    return pd.DataFrame(rows)


def test_tasks_are_sorted_by_what_they_retain():
    figure = retained_bars(ablation_rows())
    names = [text.split("<br>")[0] for text in figure.layout.yaxis.ticktext]
    assert names == ["closed book", "asked before", "passage"]
    assert FAMILIES["recall"] in figure.layout.yaxis.ticktext[0]


def test_bars_are_means_of_seeds_in_both_versions():
    figure = retained_bars(ablation_rows())
    raw, corrected = (bar for bar in traces(figure, "reading") if bar.type == "bar")
    assert list(raw.x) == pytest.approx([0.91]) and list(corrected.x) == pytest.approx([0.81])
    assert raw.marker.line.color == FAMILIES["reading"]
    seeds = traces(figure, "recall, seeds")[0]
    assert len(seeds.x) == 4
    assert list(seeds.error_x.arrayminus) == pytest.approx([0.03] * 4)


def test_an_empty_share_leaves_a_gap_and_breaks_nothing():
    frame = ablation_rows()
    frame.loc[frame["task"] == "passage", ["retained_corrected", "retained_corrected_low"]] = np.nan
    figure = retained_bars(frame)
    bars = [bar for bar in traces(figure, "reading") if bar.type == "bar"]
    assert np.isnan(bars[1].x[0]) and bars[0].x[0] == pytest.approx(0.91)


def test_published_ranges_stand_behind_their_family():
    figure = retained_bars(ablation_rows(), published=load_published("engram_fig6_sensitivity"))
    factual = traces(figure, "published, range over the factual group")
    assert [list(trace.x) for trace in factual] == [[0.29, 0.44]] * 2
    assert [list(trace.x) for trace in traces(figure, "published, C3")] == [[0.93]]
    assert "2601.07372" in footer(figure)


def test_cuts_stand_beside_each_other():
    figure = cut_dots(ablation_rows())
    assert [trace.name for trace in figure.data] == [
        "rows zero", "rows of other n-grams", "gate wide open"
    ]  # fmt: skip
    assert list(figure.data[0].x) == pytest.approx([0.11, 0.31, 0.91])


def test_layers_and_cuts_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="no rows of arm 'rows_zero' and layer '1'"):
        retained_bars(ablation_rows(), layer="1")
    with pytest.raises(ValueError, match="missing: retained_corrected"):
        retained_bars(ablation_rows().drop(columns="retained_corrected"))
    with pytest.raises(ValueError, match="measure must be one of retained"):
        cut_dots(ablation_rows(), measure="score")
    assert retained_bars(ablation_rows(layers=("all", "1")), layer="1")
