"""Load histograms: a panel for every hash there is, red where it is uneven."""

import pandas as pd
import pytest

from engram_lab.figures.row_loads import load_histogram
from engram_lab.figures.style import COLOURS
from tests.figures.collision_frames import load_rows
from tests.figures.frames import traces


def test_a_plain_frame_is_one_panel_of_the_table_asked_for():
    figure = load_histogram(load_rows().drop(columns="deviation"), head=1)
    assert len(figure.data) == 2
    assert list(figure.data[0].y) == [0.5, 0.3, 0.15, 0.05]
    assert list(figure.layout.xaxis.ticktext) == ["0", "1", "2", "3+"]


def test_every_choice_of_hash_has_a_panel_and_uneven_ones_are_red():
    frame = pd.concat(
        [
            load_rows(1.0, lengths="primes", multipliers="odd"),
            load_rows(-250.0, lengths="primes", multipliers="small"),
            load_rows(0.0, lengths="power_of_two", multipliers="odd"),
            load_rows(9.0, lengths="power_of_two", multipliers="small"),
        ]
    )
    figure = load_histogram(frame)
    colours = [bar.marker.color for bar in traces(figure, "counted")]
    sound, uneven = COLOURS["engram"], COLOURS["static"]
    assert colours == [sound, uneven, sound, uneven]
    titles = " ".join(note.text for note in figure.layout.annotations)
    assert "large, odd × distinct primes<br>+1.0 σ" in titles and "−250 σ" in titles


def test_a_table_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no row of order 5 and head 0"):
        load_histogram(load_rows(), order=5)
