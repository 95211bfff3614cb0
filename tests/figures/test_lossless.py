"""Figures of losslessness: every policy, mistake and sample in its place, bias in plain sight."""

import pandas as pd
import pytest

from engram_lab.figures.lossless import error_curve, law_bars, mistake_bars
from tests.figures.frames import footer


def laws() -> pd.DataFrame:
    rows = [
        ("plain decoding", True, "A", 0.7, 0.7, 0.0),
        ("plain decoding", True, "B", 0.3, 0.3, 0.0),
        ("unrestricted", False, "A", 0.7, 0.85, 0.15),
        ("unrestricted", False, "B", 0.3, 0.15, 0.15),
        ("early stop", True, "A", 0.7, 0.7, 1e-17),
        ("early stop", True, "B", 0.3, 0.3, 1e-17),
    ]
    columns = ["policy", "causal", "text", "target", "output", "total_variation"]
    return pd.DataFrame(rows, columns=columns)


def mistakes() -> pd.DataFrame:
    rows = [
        ("none", 0.0, "A", 0.5, 0.5),
        ("upside down", 0.32, "B", 0.1, 0.3),
        ("early", 0.1, "A", 0.5, 0.6),
    ]
    columns = ["mistake", "total_variation", "worst_text", "target", "output"]
    return pd.DataFrame(rows, columns=columns)


def errors(**columns: object) -> pd.DataFrame:
    sizes = [2_000, 4_000, 20_000]
    return pd.DataFrame(
        {
            "sequences": sizes,
            "total_variation": [0.09, 0.06, 0.03],
            "null_low": [0.08, 0.055, 0.025],
            "null_mean": [0.09, 0.06, 0.03],
            "null_high": [0.1, 0.07, 0.035],
            "p_value": [0.4, 0.6, 0.31],
        }
    ).assign(**columns)


def test_every_policy_has_its_bars_and_the_target_its_marks():
    figure = law_bars(laws())
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [bar.name for bar in bars] == [
        "plain decoding: exact",
        "early stop: exact",
        "unrestricted: off by 0.15",
    ]
    assert list(bars[2].y) == [0.85, 0.15]
    assert [bar.marker.pattern.shape for bar in bars] == ["", "", "/"]
    (marks,) = [trace for trace in figure.data if trace.type == "scatter"]
    assert list(marks.y) == [0.7, 0.7, None, 0.3, 0.3, None]
    assert list(figure.layout.xaxis.ticktext) == ["A", "B"]
    for index in range(2):  # bars of a text stand side by side under its line
        places = [bar.x[index] for bar in bars]
        assert places == sorted(places)
        assert marks.x[3 * index] < places[0] < index < places[-1] < marks.x[3 * index + 1]


def test_the_published_bias_is_a_filled_mark_of_its_own():
    published = pd.DataFrame(
        {"quantity": ["a1", "biased output p(A)"], "value": ["0.8", "0.85"], "kind": "exact"}
    )
    figure = law_bars(laws(), published=published)
    biased, mark = figure.data[2], figure.data[-1]
    assert list(mark.y) == [biased.y[0]] == [0.85]
    assert mark.x[0] == biased.x[0]
    assert mark.marker.symbol == "diamond"


def test_mistakes_are_sorted_by_their_size_and_hover_tells_the_worst_text():
    bars = mistake_bars(mistakes()).data[0]
    assert list(bars.y) == ["<b>no mistake</b>", "early", "upside down"]
    assert list(bars.text) == ["exact", "off by 0.1", "off by 0.32"]
    assert list(bars.customdata[2]) == ["B", 0.1, 0.3]


def test_every_kind_of_sampling_has_a_line_in_a_band():
    frame = pd.concat([errors(sampling="T=1"), errors(sampling="T=0.7")], ignore_index=True)
    figure = error_curve(frame)
    assert [trace.name for trace in figure.data] == [
        "T=1, band",
        "T=1 (p = 0.31)",
        "T=0.7, band",
        "T=0.7 (p = 0.31)",
    ]
    assert list(figure.data[0].y) == [0.1, 0.07, 0.035, 0.025, 0.055, 0.08]
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert "95 %" in footer(figure)


def test_one_kind_needs_no_column_for_it():
    assert error_curve(errors()).data[1].name == "samples (p = 0.31)"


@pytest.mark.parametrize(
    ("figure", "frame", "maker"),
    [
        (law_bars, laws(), "law_frame"),
        (mistake_bars, mistakes(), "mistake_frame"),
        (error_curve, errors(), "error_frame"),
    ],
)
def test_a_frame_without_its_columns_is_refused(figure, frame: pd.DataFrame, maker: str):
    with pytest.raises(ValueError, match=f"missing: total_variation.*{maker}"):
        figure(frame.drop(columns="total_variation"))
    with pytest.raises(ValueError, match="the frame is empty"):
        figure(frame.iloc[:0])
