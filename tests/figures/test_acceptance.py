"""Figures of acceptance: a bar and its seeds a drafter, a curve by position, published beside."""

import pytest

from engram_lab.figures.acceptance import length_bars, position_curves
from engram_lab.published import load_published
from tests.figures.draft_frames import length_rows, position_rows
from tests.figures.frames import footer, traces

TABLE, CURVES = "dspark_table1_accepted_length", "dspark_fig2_conditional_acceptance"


def panel_titles(figure) -> list[str]:
    return [note.text for note in figure.layout.annotations if note.name != "footer"]


def test_bars_are_means_over_seeds_of_all_tokens_over_all_rounds():
    figure = length_bars(length_rows())
    bars = traces(figure, "dspark")
    assert len(bars) == 2 and list(bars[0].x) == pytest.approx([3.05])
    points = traces(figure, "dspark, seeds")[0]
    assert list(points.x) == pytest.approx([3.0, 3.1]) and list(points.customdata) == [0, 1]
    assert panel_titles(figure) == ["<b>structured</b>", "<b>prose</b>"]
    assert "2 seeds" in footer(figure)


def test_the_drafter_listed_last_is_at_the_bottom():
    labels = [bar.y[0] for bar in length_bars(length_rows()).data if bar.type == "bar"]
    assert labels[:3] == ["DSpark, Markov", "DFlash (cross-entropy)", "n-gram look-up"]


def test_panels_share_one_axis_of_lengths():
    figure = length_bars(length_rows())
    assert {axis.matches for axis in figure.select_xaxes()} == {"x"}


def test_published_means_are_diamonds_beside_the_drafters_that_have_one():
    figure = length_bars(length_rows(), published=load_published(TABLE))
    (math, chat) = traces(figure, "published DSpark")
    assert math.x[0] == pytest.approx((6.11 + 5.70 + 4.89) / 3)
    assert chat.x[0] == pytest.approx((3.64 + 3.54 + 3.29) / 3)
    assert math.marker.symbol == "diamond" and math.y[0] == "DSpark, Markov"
    assert not traces(figure, "published Eagle3")  # no such drafter in the frame
    assert "chat (beside prose)" in footer(figure)


def test_greedy_decoding_is_called_so():
    assert "most likely token" in length_bars(length_rows(), temperature=0.0).layout.title.text


def test_a_temperature_that_was_not_drawn_at_is_refused():
    with pytest.raises(ValueError, match=r"no rows at temperature 0.5; there are \[0.0, 1.0\]"):
        length_bars(length_rows(), temperature=0.5)
    with pytest.raises(ValueError, match=r"no rows at temperature 0.5; there are \[1.0\]"):
        position_curves(position_rows(), temperature=0.5)


def test_curves_are_means_over_seeds_and_their_range_a_band():
    figure = position_curves(position_rows())
    (structured, _) = traces(figure, "DFlash (cross-entropy)")
    assert list(structured.x) == [1, 2, 3]
    assert list(structured.y) == pytest.approx([0.81, 0.71, 0.61])
    band = traces(figure, "parallel, range over seeds")[0]
    assert band.y[0] - band.y[-1] == pytest.approx(0.02)


def test_positions_that_nothing_reached_are_left_out_of_line_and_band():
    rows = position_rows(drafters=("parallel",))
    rows.loc[rows["position"] == 3, ["conditional_rate", "reached"]] = [float("nan"), 0]
    figure = position_curves(rows)
    assert list(traces(figure, "DFlash (cross-entropy)")[0].x) == [1, 2]
    assert list(traces(figure, "parallel, range over seeds")[0].x) == [1, 2, 2, 1]


def test_points_behind_which_few_rounds_stand_are_hollow():
    line = traces(position_curves(position_rows()), "DSpark, Markov")[0]
    assert list(line.customdata) == [80, 20, 8]
    assert list(line.marker.symbol) == ["diamond", "diamond-open", "diamond-open"]
    assert "hollow: fewer than 30 rounds" in footer(position_curves(position_rows()))


def test_each_drafter_is_named_once():
    figure = position_curves(position_rows(), published=load_published(CURVES))
    shown = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert shown == ["DFlash (cross-entropy)", "DSpark, Markov"]


def test_published_curves_stand_below_the_kind_of_text_they_resemble():
    figure = position_curves(position_rows(), published=load_published(CURVES))
    assert panel_titles(figure) == [
        "<b>structured, measured</b>",
        "<b>math, published (Qwen3-4B)</b>",
        "<b>prose, measured</b>",
        "<b>chat, published (Qwen3-4B)</b>",
    ]
    (math, chat) = traces(figure, "published DFlash")
    assert math.y[0] == 0.885 and chat.y[2] == pytest.approx(0.638, abs=1e-3)
    assert math.xaxis == "x3" and math.line.dash == "dot"


def test_a_frame_of_something_else_is_refused():
    with pytest.raises(ValueError, match="missing: rounds. experiments.catalog.dspark_drafters"):
        length_bars(length_rows().drop(columns="rounds"))
    with pytest.raises(ValueError, match="missing: conditional_rate"):
        position_curves(position_rows().drop(columns="conditional_rate"))
