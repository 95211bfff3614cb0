"""Collision figures: every table drawn, prediction beside count, heads both ways."""

import numpy as np
import pytest

from engram_lab.figures.collisions import collision_curve, heads_figure
from tests.figures.collision_frames import collision_rows, head_rows
from tests.figures.frames import footer, traces


def test_every_table_is_a_point_in_both_panels():
    frame = collision_rows()
    figure = collision_curve(frame)
    counted = traces(figure, "2-grams, counted")[0]
    part = frame[frame["order"] == 2]
    assert list(counted.x) == part["load"].tolist()
    assert list(counted.y) == part["collided_share"].tolist()
    assert list(traces(figure, "2-grams, look-ups")[0].y) == part["traffic_share"].tolist()
    assert list(traces(figure, "2-grams")[0].y) == part["interference"].tolist()


def test_the_prediction_is_the_formula():
    line = traces(collision_curve(collision_rows()), "even spreading predicts")[0]
    assert np.allclose(line.y, 1 - np.exp(-np.array(line.x)))


def test_the_footer_tells_the_largest_deviation_and_the_text():
    note = footer(collision_curve(collision_rows()))
    assert "differ by 1.0 standard deviations at most" in note
    assert "2 M tokens of the bundle in the ids of bpe4k" in note


def test_tables_that_hold_everybody_are_not_judged():
    frame = collision_rows().assign(predicted_share=1.0, collided_share=0.5)
    assert "standard deviations" not in footer(collision_curve(frame))


def test_a_memory_of_real_size_is_named():
    real = collision_rows(budgets=(5_000,), orders=(2, 3, 4))
    figure = collision_curve(collision_rows(), real=real)
    assert len(traces(figure, "V4.1, 4-grams")) == 2
    assert "V4.1: 2 M tokens" in footer(figure)


def test_one_head_opens_both_ways_to_spend_the_table():
    figure = heads_figure(head_rows())
    lines = traces(figure, "2-grams, in company in every head")
    assert [list(line.x) for line in lines] == [[1, 2, 4], [1, 2, 4]]
    assert lines[0].y[0] == pytest.approx(0.401)
    assert "One head has 1,000 rows" in footer(figure)


def test_missing_columns_are_named():
    with pytest.raises(ValueError, match="missing: interference"):
        collision_curve(collision_rows().drop(columns="interference"))
    with pytest.raises(ValueError, match="missing: split"):
        heads_figure(head_rows().drop(columns="split"))
