"""Rows that drafting reads: bytes kept and in vain, and the curves against a threshold."""

import pytest

from engram_lab.figures.draft_reads import bytes_by_cell, waste_by_threshold
from tests.figures.draft_memory_frames import cell_rows, threshold_rows
from tests.figures.frames import traces


def test_bars_are_bytes_of_positions_that_stay_and_of_those_that_do_not():
    figure = bytes_by_cell(cell_rows(seeds=(0,)))
    (kept, _), (wasted, _) = traces(figure, "stay in the text"), traces(figure, "read in vain")
    assert list(kept.x) == pytest.approx([256.0] * 5)  # one position, whatever the drafter
    at = dict(zip(wasted.y, wasted.x, strict=True))
    (own,) = [value for name, value in at.items() if name.startswith("DSpark,")]
    assert own == pytest.approx(20_480 / 40.5 - 256)  # all bytes over all tokens, 40.5 a prompt
    assert len(at) == 5  # cells without a reader are left out


def test_curves_fall_with_the_threshold():
    figure = waste_by_threshold(threshold_rows())
    lines = traces(figure, "target and drafter read")
    assert [list(line.y) for line in lines[:3]] == [[12.0, 11.0], [20.0, 19.0], [3.0, 2.5]]
    assert [line.showlegend for line in lines[:3]] == [True, False, False]
    assert len(traces(figure, "drafter alone reads")) == 6


def test_frames_in_which_nobody_reads_are_refused():
    plain = cell_rows()
    with pytest.raises(ValueError, match="that reads rows; none does"):
        bytes_by_cell(plain[(plain["target"] == "plain") & ~plain["rows"]])
    rows = threshold_rows()
    with pytest.raises(ValueError, match="rows are read; none is"):
        waste_by_threshold(rows[(rows["target"] == "plain") & ~rows["rows"]])
    with pytest.raises(ValueError, match="no rows at temperature 0.5"):
        waste_by_threshold(rows, temperature=0.5)
