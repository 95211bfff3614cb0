"""Lens figures: a line per model and panel, and a map in which every cell is what was measured."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.figures.lens import lens_curve
from engram_lab.figures.lens_map import lens_map
from tests.figures.frames import LENS_VALUES, SENTENCE, footer, lens_arms, lens_rows, traces


def test_there_is_a_line_per_arm_through_the_means_of_its_seeds():
    figure = lens_curve(lens_arms())
    (line,) = traces(figure, "hybrid")
    assert list(line.x) == [0, 1, 2]
    assert list(line.y) == pytest.approx([2.5 * 1.05 * value for value in LENS_VALUES[:3]])
    assert traces(figure, "experts only")[0].line.color != line.line.color
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis.title.text == "KL(final || layer), nats"
    assert figure.layout.showlegend


def test_seeds_are_shown_as_points_and_their_range_as_a_band():
    figure = lens_curve(lens_arms())
    (points,) = traces(figure, "hybrid, seeds")
    assert len(points.y) == 6 and set(points.customdata) == {0, 1}
    (band,) = traces(figure, "hybrid, range over seeds")
    assert list(band.y[:3]) == pytest.approx([2.5 * 1.1 * value for value in LENS_VALUES[:3]])
    assert list(band.y[3:]) == pytest.approx([2.5 * value for value in LENS_VALUES[2::-1]])
    assert "2 seeds" in footer(figure) and "band: their range" in footer(figure)


def test_one_run_is_one_line_without_band_or_legend():
    figure = lens_curve(lens_rows())
    assert [trace.name for trace in figure.data] == ["model"]
    assert not figure.layout.showlegend
    assert "seeds" not in footer(figure)


def test_the_last_layer_has_a_place_on_the_axis_but_no_divergence():
    figure = lens_curve(lens_rows())
    assert max(figure.data[0].x) == 2
    assert figure.layout.xaxis.range[1] > 3
    assert "divergence of 0" in footer(figure)
    assert max(lens_curve(lens_rows(), measure="entropy_nats").data[0].x) == 3


def test_every_token_class_gets_a_panel_behind_all_tokens():
    frame = lens_arms()
    frame["token_class"] = np.where(frame["position"] < 2, "static", "computed")
    figure = lens_curve(frame)
    titles = [note.text for note in figure.layout.annotations if note.name != "footer"]
    assert titles == ["<b>all tokens</b>", "<b>static</b>", "<b>computed</b>"]
    whole, static, _ = traces(figure, "hybrid")
    assert list(static.y) == pytest.approx([1.5 * 1.05 * value for value in LENS_VALUES[:3]])
    assert list(whole.y) == pytest.approx([2.5 * 1.05 * value for value in LENS_VALUES[:3]])
    assert [trace.showlegend for trace in traces(figure, "hybrid")] == [True, False, False]


def test_means_are_weighted_by_their_positions():
    frame = pd.DataFrame(
        {"layer": [0, 0], "kl_nats": [1.0, 4.0], "positions": [2, 1], "document": [0, 1]}
    )
    assert list(lens_curve(frame).data[0].y) == pytest.approx([2.0])


def test_a_second_column_can_be_told_by_dashes():
    frame = pd.concat([lens_rows(arm="engram", lens=lens) for lens in ("logit", "tuned")])
    figure = lens_curve(frame, dash="lens")
    logit, tuned = figure.data
    assert (logit.name, tuned.name) == ("hybrid, logit", "hybrid, tuned")
    assert logit.line.color == tuned.line.color
    assert logit.line.dash != tuned.line.dash


def test_a_stream_without_what_the_memory_added_says_so():
    frame = pd.concat([lens_rows(arm="engram", memory=kept) for kept in ("kept", "removed")])
    names = [line.name for line in lens_curve(frame, dash="memory").data]
    assert names == ["hybrid", "hybrid, minus what its memory added"]


def test_arms_are_listed_in_the_order_of_the_frame():
    arms = lens_arms().iloc[::-1]
    names = [line.name for line in lens_curve(arms).data if line.showlegend is not False]
    assert names == ["experts only", "hybrid"]


def test_memory_layers_are_shaded_and_the_verdict_stands_above():
    figure = lens_curve(lens_arms(), memory_layers=(1,), verdict="So it is.")
    (shape,) = figure.layout.shapes
    assert (shape.x0, shape.x1) == (1, 2)
    assert "So it is." in figure.layout.title.text
    assert "reads its memory" in footer(figure)


def test_the_map_has_layers_up_and_positions_across():
    figure = lens_map(lens_rows())
    (cells,) = figure.data
    assert list(cells.y) == [0, 1, 2, 3] and list(cells.x) == [0, 1, 2, 3]
    assert cells.z[1].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert list(figure.layout.xaxis.ticktext) == list(SENTENCE)
    assert list(figure.layout.yaxis.ticktext) == ["0", "1", "2", "3 (out)"]
    axis = figure.layout.coloraxis
    assert (axis.cmin, axis.cmax, axis.colorscale[0][1]) == (0, 16.0, "#FFFFFF")


def test_cells_show_what_is_predicted_bold_where_it_comes():
    cells = lens_map(lens_rows()).data[0]
    assert cells.text[0].tolist() == ["other"] * 4
    assert cells.text[2].tolist() == ["<b>Princess</b>", "<b>of</b>", "<b>Wales</b>", "end"]
    assert cells.customdata[2][0].tolist() == ["Princess", "the", "Princess", 0.5]


def test_long_tokens_are_cut_and_markup_is_shown_as_it_is():
    cells = lens_map(lens_rows(tokens=["<b>x</b>", " a very long token " * 9, "c"])).data[0]
    assert cells.text[2][0].endswith("…</b>")
    assert cells.text[1][0] == "other"
    assert "&lt;b&gt;" in cells.customdata[0][0][1]


def test_a_predicted_line_end_or_space_is_seen():
    frame = lens_rows(tokens=["a", "b", "c"]).assign(top_token=" ")
    frame.loc[frame["layer"] == 0, "top_token"] = "\n"
    cells = lens_map(frame).data[0]
    assert (cells.text[0][0], cells.text[1][0]) == ("⏎", "␣")


def test_many_tokens_are_all_drawn_but_not_written():
    figure = lens_map(lens_rows(tokens=["t"] * 150))
    assert len(figure.data[0].x) == 150 and figure.data[0].text is None
    assert len(figure.layout.xaxis.ticktext) == 50
    assert "predicted next" not in footer(figure)


def test_ranks_are_coloured_by_their_logarithm():
    figure = lens_map(lens_rows(), measure="target_rank")
    assert figure.data[0].z[0].tolist()[:3] == [3.0, 3.0, 3.0]
    assert np.isnan(figure.data[0].z[0][3])
    assert list(figure.layout.coloraxis.colorbar.ticktext) == ["1", "10", "100", "1,000"]


@pytest.mark.parametrize(("layer", "row"), [(1, 1), (-1, 3)])
def test_a_chosen_layer_is_framed_and_drawn_below(layer, row):
    figure = lens_map(lens_rows(), measure="entropy_nats", layer=layer)
    cells, bars = figure.data
    assert list(bars.y) == [1.0 + row] * 4
    (frame,) = figure.layout.shapes
    assert (frame.y0, frame.y1) == (row - 0.5, row + 0.5)
    assert list(figure.layout.xaxis2.ticktext) == list(SENTENCE)
    assert f"Framed and below: layer {row}." in footer(figure)


def test_rows_may_come_in_any_order():
    frame = lens_rows()
    shuffled = frame.sample(frac=1, random_state=1)
    assert (lens_map(shuffled).data[0].z == lens_map(frame).data[0].z).all()
    assert list(lens_curve(shuffled).data[0].y) == pytest.approx(list(lens_curve(frame).data[0].y))


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="measure must be one of kl_nats.*; got 'kl'"):
        lens_curve(lens_rows(), measure="kl")
    with pytest.raises(ValueError, match=r"layer must lie in 0..3; got 9"):
        lens_map(lens_rows(), layer=9)
    with pytest.raises(ValueError, match="draws one text; .* Pick one run"):
        lens_map(pd.concat([lens_rows(sequence=0), lens_rows(sequence=1)]))
    with pytest.raises(ValueError, match="missing: top_token"):
        lens_map(lens_rows().drop(columns="top_token"))
    with pytest.raises(ValueError, match="lens_curve needs columns layer, kl_nats; missing: layer"):
        lens_curve(lens_rows().drop(columns="layer"))


def test_long_tokens_have_room_below_the_map():
    short, long = lens_map(lens_rows()), lens_map(lens_rows(tokens=["a", "b" * 15, "c" * 40]))
    assert long.layout.margin.b > short.layout.margin.b
    assert long.layout.xaxis.ticktext[2] == "c" * 15 + "…"
