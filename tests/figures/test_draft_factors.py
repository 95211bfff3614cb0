"""Figures of one knob of the drafter: levels at equal distances, published curves below."""

import pytest

from engram_lab.figures.draft_factors import factor_curves, length_by_size
from engram_lab.published import load_published
from tests.figures.draft_frames import length_rows
from tests.figures.frames import footer, traces


def rank_rows():
    return length_rows(markov_rank=(0, 4, 64)).assign(markov_head_type="vanilla")


def depth_rows():
    return length_rows(num_hidden_layers=(1, 2)).assign(drafter="dspark")


def test_lines_are_means_over_seeds_with_levels_at_equal_distances():
    figure = factor_curves(rank_rows(), factor="markov_rank", label="rank")
    (line, other) = traces(figure, "DSpark, Markov")
    assert list(line.x) == [0, 1, 2] and list(line.y) == pytest.approx([1.05, 1.25, 1.45])
    assert list(figure.layout.xaxis.ticktext) == ["0", "4", "64"]
    assert line.showlegend and not other.showlegend
    points = traces(figure, "dspark, seeds")[0]
    assert list(points.customdata) == [0, 1] * 3


def test_heads_are_called_as_the_drafters_that_have_them():
    frame = rank_rows()
    frame.loc[frame["markov_rank"] == 4, "markov_head_type"] = "rnn"
    figure = factor_curves(frame, factor="markov_rank", label="rank")
    assert list(traces(figure, "DSpark, RNN")[0].x) == [1]
    assert list(traces(figure, "DSpark, Markov")[0].x) == [0, 2]


def test_published_depths_are_means_over_benchmarks_in_a_row_of_their_own():
    published = load_published("dspark_fig3_depth")
    figure = factor_curves(
        depth_rows(), factor="num_hidden_layers", label="blocks", published=published
    )
    (math, chat) = traces(figure, "published DSpark")
    assert math.y[1] == pytest.approx((5.7 + 5.317 + 4.439) / 3)
    assert chat.y[0] == pytest.approx((2.767 + 2.723 + 2.346) / 3)
    assert math.xaxis == "x3" and list(figure.layout.xaxis3.ticktext) == ["1", "2", "5"]
    assert list(traces(figure, "published DFlash")[0].x) == [2]  # five blocks alone
    assert "read off a figure" in footer(figure)


def test_published_lengths_are_told_from_published_latencies():
    frame = length_rows(block_size=(4, 8)).assign(drafter="dspark")
    published = load_published("dspark_fig4_length_latency")
    figure = factor_curves(frame, factor="block_size", label="drafted tokens", published=published)
    (math, _) = traces(figure, "published DSpark-RNN")
    assert list(math.y) == [3.54, 5.726, 6.974, 7.68]
    assert list(figure.layout.xaxis3.ticktext) == ["3", "7", "11", "15"]


def test_a_published_table_of_something_else_is_refused():
    with pytest.raises(ValueError, match="takes the tables dspark_fig3_depth and"):
        factor_curves(
            rank_rows(),
            factor="markov_rank",
            label="rank",
            published=load_published("dspark_fig6_calibration"),
        )


def test_a_temperature_that_was_not_drawn_at_is_refused():
    with pytest.raises(ValueError, match=r"no rows at temperature 2.0; there are \[0.0, 1.0\]"):
        factor_curves(rank_rows(), factor="markov_rank", label="rank", temperature=2.0)


def test_sizes_leave_out_drafters_without_parameters():
    figure = length_by_size(length_rows())
    assert not traces(figure, "n-gram look-up")
    (point, _) = traces(figure, "DSpark, Markov")
    assert list(point.x) == [1_000] and list(point.y) == pytest.approx([3.05])
    assert list(point.error_y.array) == pytest.approx([0.05])
    assert figure.layout.xaxis.rangemode == "tozero"


def test_a_legend_of_many_names_gets_a_second_line():
    drafters = ("small", "mtp", "eagle3", "parallel", "parallel_same", "parallel_bigram", "dspark")
    few = length_by_size(length_rows(drafter=drafters[-2:]))
    many = length_by_size(length_rows(drafter=drafters))
    assert many.layout.margin.t == few.layout.margin.t + 28


def test_sizes_of_one_drafter_are_joined_and_say_what_differs():
    figure = length_by_size(rank_rows(), by=("markov_head_type", "markov_rank"))
    line = traces(figure, "DSpark, Markov")[0]
    assert line.mode == "markers+lines+text" and list(line.text) == ["0", "4", "64"]
    assert list(line.x) == [1_000, 2_000, 3_000]


def test_a_frame_of_something_else_is_refused():
    with pytest.raises(ValueError, match="missing: markov_rank. experiments.catalog"):
        factor_curves(depth_rows(), factor="markov_rank", label="rank")
    with pytest.raises(ValueError, match="missing: draft_params"):
        length_by_size(length_rows().drop(columns="draft_params"))
    with pytest.raises(ValueError, match="a drafter with parameters"):
        length_by_size(length_rows().query("drafter == 'lookup'"))
