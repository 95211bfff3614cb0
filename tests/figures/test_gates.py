"""Gate figures: every token in its place, coloured by its gate, none hidden."""

import pytest

from engram_lab.figures.gates import gate_heatmap, gate_strip, text_lines, visible_token
from tests.figures.frames import footer, gate_rows


def test_a_strip_has_every_token_coloured_by_its_gate_from_0_to_1():
    frame = gate_rows()
    figure = gate_strip(frame)
    assert [bar.name for bar in figure.data] == ["block 1"]
    assert list(figure.data[0].text) == ["the", "Princess", "of", "Wales"]
    assert list(figure.data[0].marker.color) == pytest.approx(frame["gate"].tolist())
    axis = figure.layout.coloraxis
    assert (axis.cmin, axis.cmax) == (0, 1)
    assert axis.colorscale[0][1] == "#FFFFFF"


def test_each_layer_and_branch_has_a_strip_with_its_label():
    figure = gate_strip(gate_rows(layers=(1, 6), branches=2))
    labels = ["block 1, branch 0", "block 1, branch 1", "block 6, branch 0", "block 6, branch 1"]
    assert list(figure.layout.yaxis.ticktext) == labels
    assert [bar.y[0] for bar in figure.data] == list(figure.layout.yaxis.tickvals)
    assert "all of them shown" in footer(figure)


def test_hover_tells_position_gate_and_length():
    bar = gate_strip(gate_rows()).data[0]
    assert list(bar.customdata[1]) == pytest.approx([1, 0.4, 0.8])


def test_strips_can_show_the_written_length_instead():
    figure = gate_strip(gate_rows(), measure="value_norm")
    assert figure.layout.coloraxis.cmax == pytest.approx(1.6)
    assert figure.layout.coloraxis.colorbar.title.text == "gate × |value|"


def test_an_unknown_measure_is_refused():
    with pytest.raises(ValueError, match="measure must be gate or value_norm; got 'gates'"):
        gate_strip(gate_rows(), measure="gates")


def test_a_long_text_is_set_in_lines_and_no_token_is_lost():
    places = text_lines(["word"] * 50, 92)
    assert len(places) == 50
    assert places["line"].max() == 2
    assert (places["start"] + places["width"]).max() <= 92
    ends = (places["start"] + places["width"]).groupby(places["line"]).shift(0)
    assert (places.groupby("line")["start"].min() == 0).all() and ends.notna().all()


def test_wide_scripts_take_two_characters():
    assert text_lines(["士"], 92)["width"][0] == pytest.approx(2.7)
    assert text_lines(["s"], 92)["width"][0] == pytest.approx(1.7)


def test_a_token_wider_than_a_line_is_cut_to_it():
    assert text_lines(["x" * 200], 92)["width"][0] == 92


def test_tokens_are_shown_as_they_are():
    assert visible_token(" <b>") == "\u00a0&lt;b&gt;"
    assert visible_token("") == "\u00a0"
    assert gate_strip(gate_rows(tokens=["<eos>"])).data[0].text[0] == "&lt;eos&gt;"


def test_the_heatmap_has_layers_down_and_positions_across():
    figure = gate_heatmap(gate_rows(layers=(1, 6)))
    heat = figure.data[0]
    assert list(heat.y) == ["block 1", "block 6"]
    assert list(heat.x) == [0, 1, 2, 3]
    assert heat.z.shape == (2, 4)
    assert list(figure.layout.xaxis.ticktext) == ["the", "Princess", "of", "Wales"]


def test_repeated_tokens_keep_their_own_positions():
    figure = gate_heatmap(gate_rows(tokens=["a", "a", "a"]))
    assert list(figure.data[0].x) == [0, 1, 2]
    assert list(figure.layout.xaxis.ticktext) == ["a", "a", "a"]


def test_the_heatmap_is_neutral_at_one_half():
    axis = gate_heatmap(gate_rows()).layout.coloraxis
    middle = [shade for place, shade in axis.colorscale if place == 0.5]
    assert (axis.cmin, axis.cmax, middle) == (0, 1, ["#F7F7F7"])


def test_many_tokens_are_all_drawn_and_some_are_named():
    figure = gate_heatmap(gate_rows(tokens=["t"] * 150))
    assert len(figure.data[0].x) == 150
    assert len(figure.layout.xaxis.ticktext) == 50
    assert figure.layout.xaxis.title.text == "token (one in 3 named)"


def test_rows_may_come_in_any_order():
    frame = gate_rows(layers=(1, 6))
    shuffled = frame.sample(frac=1, random_state=1)
    assert (gate_heatmap(shuffled).data[0].z == gate_heatmap(frame).data[0].z).all()
    assert list(gate_strip(shuffled).data[0].text) == list(gate_strip(frame).data[0].text)
