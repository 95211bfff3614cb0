"""The allocation slider: the figure shows the point at which the sliders stand."""

import pandas as pd
import pytest

from engram_lab.figures.allocation_point import allocation_point
from engram_lab.figures.style import plain
from engram_lab.widgets.allocation import allocation_slider
from tests.figures.frames import SHAPES, allocation_frame

WITHOUT_EXPERTS = {name: {0.0: 0.1, 0.5: 0.2} for name in SHAPES}


@pytest.fixture
def frame() -> pd.DataFrame:
    parts = [allocation_frame(static_share=0.5), allocation_frame(static_share=0.8)]
    return pd.concat(parts, ignore_index=True)


def sliders(board) -> list:
    return list(board.children[0].children)


def drawn(figure) -> dict:
    """A figure as `save` would store it, without its template."""
    content = plain(figure.to_plotly_json())
    return content | {"layout": content["layout"] | {"template": None}}


def test_both_sliders_move_the_figure_in_place(frame):
    board = allocation_slider(frame)
    ratio, share = sliders(board)
    picture = board.figures[0]
    ratio.value, share.value = 0.0, 0.5
    assert board.figures[0] is picture
    wanted = allocation_point(frame, 0.0, static_share=0.5)
    assert drawn(picture) == drawn(wanted)


def test_a_frame_of_one_corpus_has_one_slider_with_its_ratios():
    board = allocation_slider(allocation_frame())
    (ratio,) = sliders(board)
    assert [value for _, value in ratio.options] == [0.0, 0.5, 0.75, 1.0]


def test_a_share_that_lacks_pure_experts_says_so_and_keeps_the_picture(frame):
    other = allocation_frame(static_share=0.2, shapes=WITHOUT_EXPERTS)
    board = allocation_slider(pd.concat([other, frame], ignore_index=True))
    before = len(board.figures[0].data)
    sliders(board)[1].value = 0.2
    assert "no run at ratio 1 with static share 0.2" in board.children[1].value
    assert len(board.figures[0].data) == before
    sliders(board)[1].value = 0.8
    assert board.children[1].value == ""


def test_a_frame_with_nothing_stored_is_refused():
    with pytest.raises(ValueError, match="at least one row"):
        allocation_slider(allocation_frame().iloc[:0])
