"""Boards: what they leave in a notebook, what they let go of; figures redrawn without remains."""

import gc
import weakref

import ipywidgets
import plotly.graph_objects as go
import plotly.io
import pytest

from engram_lab.widgets import base
from engram_lab.widgets.base import FIRST, LIVE, NOTE, STILL, VIEW, Board, Picture, redraw


@pytest.fixture
def outputs(monkeypatch) -> list[dict]:
    """What a cell gets to show, bundle by bundle."""
    monkeypatch.setattr(plotly.io.renderers, "default", "plotly_mimetype")
    shown: list[dict] = []

    def display(thing, raw=False):
        shown.append(thing if raw else thing._repr_mimebundle_())

    monkeypatch.setattr(base, "display", display)
    return shown


@pytest.fixture
def run_cell(monkeypatch, outputs):
    """A function that shows boards as one run of a cell does."""
    runs = iter(range(100))
    monkeypatch.setattr(base, "_shown", {})

    def run(cell: str, *boards: Board) -> None:
        place = (cell, f"run {next(runs)}")
        monkeypatch.setattr(base, "_place", lambda: place)
        for board in boards:
            board._ipython_display_()

    return run


def figure(height: float = 1.0) -> go.FigureWidget:
    return go.FigureWidget(go.Figure(go.Scatter(y=[0, height])))


def is_open(widget: ipywidgets.Widget) -> bool:
    return widget.comm is not None


def test_a_board_shows_its_view_and_leaves_every_figure_beside_it(outputs):
    inner = ipywidgets.HBox([figure(1), figure(2)])
    Board([ipywidgets.Text(), inner])._ipython_display_()
    assert [next(iter(bundle)) for bundle in outputs[::2]] == [
        VIEW,
        *["application/vnd.plotly.v1+json"] * 2,
    ]
    assert FIRST in outputs[1]["text/html"]
    assert FIRST + '"' not in outputs[3]["text/html"].split("</style>")[1]
    assert outputs[4]["application/vnd.plotly.v1+json"]["data"][0]["y"] is not None


def test_beside_the_view_stands_nothing_else_that_a_reader_might_prefer(outputs):
    Board([figure()])._ipython_display_()
    assert set(outputs[0]) == {VIEW}


def test_the_style_names_the_classes_that_board_and_note_carry(outputs):
    board = Board([figure()])
    board._ipython_display_()
    assert LIVE in board._dom_classes
    style, note = outputs[1]["text/html"].split("</style>")
    assert all(name in style for name in (LIVE, STILL, FIRST))
    assert STILL in note
    assert NOTE in note


def test_what_changed_before_the_board_was_shown_reaches_views_that_come_later(outputs):
    board = Board([figure(1)])
    board.figures[0].data[0].y = [0, 7]
    board._ipython_display_()
    assert list(board.figures[0]._widget_data[0]["y"]) == [0, 7]


def test_a_board_closes_when_its_cell_runs_again(run_cell):
    first, second = Board([figure()]), Board([figure()])
    run_cell("a", first)
    run_cell("a", second)
    assert not is_open(first)
    assert first.children == ()
    assert is_open(second)


def test_boards_of_other_cells_and_of_the_same_run_stay_open(run_cell):
    boards = [Board([figure()]) for _ in range(3)]
    run_cell("a", boards[0], boards[1])
    run_cell("b", boards[2])
    assert all(map(is_open, boards))


def test_a_board_that_is_shown_again_or_elsewhere_stays_open(run_cell):
    again, elsewhere = Board([figure()]), Board([figure()])
    run_cell("a", again, elsewhere)
    run_cell("b", elsewhere)
    run_cell("a", again)
    assert is_open(again)
    assert is_open(elsewhere)


def test_outside_a_notebook_nothing_is_closed(outputs):
    boards = [Board([figure()]) for _ in range(2)]
    for board in boards:
        board._ipython_display_()
    assert all(map(is_open, boards))


def test_what_callbacks_hold_is_free_once_the_cell_has_run_again(run_cell):
    class Model:
        pass

    def reader() -> tuple[Board, weakref.ref]:
        model, field = Model(), ipywidgets.Text()
        field.observe(lambda change: model, names="value")
        return Board([field, figure()]), weakref.ref(model)

    kept, model = reader()  # a notebook keeps the value of every cell
    run_cell("a", kept)
    assert model() is not None
    run_cell("a", reader()[0])
    gc.collect()
    assert model() is None


def test_redrawing_leaves_nothing_of_the_figure_before():
    rich = go.Figure(go.Scatter(y=[1, 2], name="old"))
    rich.add_hline(y=1)
    rich.add_annotation(text="old")
    rich.update_layout(yaxis2={"overlaying": "y"}, title="old")
    plain = go.Figure(go.Bar(y=[3]))
    picture = go.FigureWidget(rich)
    redraw(picture, plain)
    assert [trace.type for trace in picture.data] == ["bar"]
    assert set(picture.layout.to_plotly_json()) == set(plain.layout.to_plotly_json())


def test_redrawing_keeps_the_widget():
    picture = figure()
    model_id = picture.model_id
    redraw(picture, go.Figure(go.Bar(y=[3]), layout={"title": {"text": "new"}}))
    assert picture.model_id == model_id
    assert picture.layout.title.text == "new"


def test_gaps_in_a_table_reach_the_page_as_null():
    gaps = go.Heatmap(z=[[1.0, float("nan")]], customdata=[[["a", 2.0], ["b", float("nan")]]])
    picture = Picture(go.Figure(gaps))
    redrawn = Picture()
    redraw(redrawn, go.Figure(gaps))
    for shown in (picture.data[0], redrawn.data[0]):
        assert shown.z[0][1] is None and shown.z[0][0] == 1.0
        assert shown.customdata[0][1][1] is None
    assert float(gaps.z[0][1]) != float(gaps.z[0][1])  # the figure itself is left alone
