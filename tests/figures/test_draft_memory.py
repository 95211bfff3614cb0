"""Tokens a round of every target and drafter: means, seeds, and what is told of the targets."""

import pytest

from engram_lab.figures.draft_memory import lengths_by_cell
from tests.figures.draft_memory_frames import cell_rows
from tests.figures.frames import footer, traces


def test_targets_stand_side_by_side_with_the_mean_over_seeds():
    figure = lengths_by_cell(cell_rows())
    (structured, prose) = traces(figure, "DSpark that reads rows")
    assert list(structured.y) == pytest.approx([3.65, 4.15])  # 20 + gain + 1.5 over 10 rounds
    assert 0 < structured.x[0] < 0.5 and structured.x[1] - structured.x[0] == pytest.approx(1)
    assert list(figure.layout.xaxis.ticktext) == ["without memory", "with memory"]
    assert structured.showlegend and not prose.showlegend
    assert list(structured.error_y.array) == pytest.approx([0.1, 0.1])


def test_the_footer_tells_the_losses_of_the_targets_where_the_frame_does():
    frame = cell_rows()
    assert "without memory 3.000, with memory 2.500" in footer(lengths_by_cell(frame))
    assert "loss" not in footer(lengths_by_cell(frame.drop(columns="target_loss_nats")))


def test_drafters_that_were_not_tried_take_no_room():
    frame = cell_rows()
    figure = lengths_by_cell(frame[frame["drafter"] == "dspark"], temperature=0.0)
    assert not traces(figure, "bigram counts")
    assert traces(figure, "DSpark")[0].x[0] == pytest.approx(-0.08)
    assert "most likely token" in figure.layout.title.text


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match=r"no rows at temperature 2.0; there are \[0.0, 1.0\]"):
        lengths_by_cell(cell_rows(), temperature=2.0)
    with pytest.raises(ValueError, match="missing: rows"):
        lengths_by_cell(cell_rows().drop(columns="rows"))
