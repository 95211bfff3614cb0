"""Interference against frequency: a panel an order and size, a line for every number of heads."""

import pytest

from engram_lab.figures.interference import interference_by_frequency
from tests.figures.collision_frames import frequency_rows
from tests.figures.frames import footer, traces


def test_a_line_for_every_number_of_heads_in_each_panel():
    figure = interference_by_frequency(frequency_rows())
    assert [len(traces(figure, name)) for name in ("1 head", "2 heads", "average row")] == [2, 2, 2]
    assert list(traces(figure, "2 heads")[0].y) == pytest.approx([0.4, 0.2, 0.1, 0.05])
    assert list(traces(figure, "average row")[0].y) == pytest.approx([0.8, 0.4, 0.2, 0.1])


def test_each_table_size_has_a_row_of_panels_and_its_name():
    import pandas as pd

    sizes = pd.concat([frequency_rows(row_budget=100), frequency_rows(row_budget=4_000)])
    figure = interference_by_frequency(sizes)
    titles = [note.text for note in figure.layout.annotations]
    assert "<b>2-grams, 100 rows</b>" in titles and "<b>3-grams, 4,000 rows</b>" in titles


def test_the_axis_holds_the_most_frequent_class():
    figure = interference_by_frequency(frequency_rows())
    assert 10 ** figure.layout.xaxis.range[1] > 16


def test_the_text_is_named_and_missing_columns_are_refused():
    frame = frequency_rows(tokens=2_000_000, tokenizer="bpe16k")
    assert "2 M tokens of the bundle in the ids of bpe16k" in footer(
        interference_by_frequency(frame)
    )
    with pytest.raises(ValueError, match="missing: heads"):
        interference_by_frequency(frame.drop(columns="heads"))
