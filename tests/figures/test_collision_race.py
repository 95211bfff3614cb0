"""The race: bars are counts, the line is the prediction, and the sentence has both numbers."""

import pytest

from engram_lab.figures.collision_race import collision_race
from engram_lab.figures.style import COLOURS
from tests.figures.collision_frames import load_rows, race_rows
from tests.figures.frames import footer, traces


def test_bars_count_and_the_line_predicts():
    frame = race_rows()
    figure = collision_race(frame, load_rows())
    assert list(traces(figure, "counted")[0].y) == frame["collided_share"].tolist()
    assert list(traces(figure, "predicted")[0].y) == frame["predicted_share"].tolist()
    assert list(traces(figure, "rows, counted")[0].y) == [0.5, 0.3, 0.15, 0.05]


def test_the_sentence_has_the_numbers_without_fractions_of_n_grams():
    title = collision_race(race_rows(), load_rows()).layout.title.text
    assert "200 n-grams in 499 rows: 33.0% predicted" in title and "34.0% counted" in title


def test_an_uneven_hash_is_red_and_its_choice_is_in_the_footer():
    loads = load_rows(50.0, multipliers="small", lengths="power_of_two")
    figure = collision_race(race_rows(), loads)
    assert traces(figure, "rows, counted")[0].marker.color == COLOURS["static"]
    assert "Multipliers: small, odd; table lengths: power of two" in footer(figure)


def test_missing_columns_are_named():
    with pytest.raises(ValueError, match="missing: twin_share"):
        collision_race(race_rows().drop(columns="twin_share"), load_rows())
    with pytest.raises(ValueError, match="missing: deviation"):
        collision_race(race_rows(), load_rows().drop(columns="deviation"))
