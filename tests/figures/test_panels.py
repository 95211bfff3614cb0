"""A bar and its seeds: the column that is drawn, and what the traces say of themselves."""

import pandas as pd
import pytest
from plotly.subplots import make_subplots

from engram_lab.figures.panels import HOVERS, Line, bar_and_seeds

LINE = Line(name="hybrid", colour="#112233")
ROWS = pd.DataFrame({"seed": [0, 1], "delta_nats": [-0.2, -0.1], "accepted_length": [3.0, 3.5]})


@pytest.mark.parametrize(("column", "mean"), [("delta_nats", -0.15), ("accepted_length", 3.25)])
def test_a_bar_reaches_to_the_mean_of_the_column_and_points_are_seeds(column: str, mean: float):
    figure = make_subplots(rows=1, cols=2)
    place = {"label": "with memory", "width": 0.5, "col": 2, "column": column}
    assert bar_and_seeds(figure, ROWS, LINE, **place) == pytest.approx(mean)
    bar, points = figure.data
    assert list(bar.x) == pytest.approx([mean]) and list(bar.y) == ["with memory"]
    assert list(points.x) == ROWS[column].tolist() and list(points.customdata) == [0, 1]
    assert (bar.name, points.name) == ("hybrid", "hybrid, seeds")
    assert bar.xaxis == points.xaxis == "x2"
    assert [trace.hovertemplate for trace in (bar, points)] == [
        f"{words}<extra></extra>" for words in HOVERS[column]
    ]


def test_differences_of_losses_are_drawn_unless_told_otherwise():
    figure = make_subplots(rows=1, cols=1)
    bar_and_seeds(figure, ROWS, LINE, label="with memory", width=0.5, col=1)
    assert "nats" in figure.data[0].hovertemplate
    assert figure.data[0].x[0] == pytest.approx(-0.15)
