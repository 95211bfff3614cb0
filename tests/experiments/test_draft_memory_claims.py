"""Claims on memory and draft together, on counts that are known."""

import pytest

from engram_lab.experiments.draft_memory_claims import memory_claims, read_claims
from tests.figures.draft_memory_frames import cell_rows, threshold_rows


def test_each_pair_of_cells_is_judged_on_every_kind_of_text() -> None:
    verdicts = memory_claims(cell_rows())
    found = {verdict.claim.split(": ")[1]: verdict for verdict in verdicts}
    assert len(verdicts) == 8 and len(found) == 4
    memory = found["DSpark for a target with memory gains more than DSpark without memory"]
    assert (memory.outcome, memory.difference) == ("supported", pytest.approx(-1.0))
    own = found["DSpark with its target's table gains more than DSpark for a target with memory"]
    assert (own.outcome, own.difference) == ("undecided", 0.0)
    foreign = found["DSpark with a foreign table gains more than DFlash with counts"]
    assert foreign.difference == pytest.approx(-1.0)


def test_a_cell_that_was_not_run_is_missed() -> None:
    frame = cell_rows()
    with pytest.raises(ValueError, match="same seeds"):
        memory_claims(frame[(frame["target"] == "plain") | ~frame["rows"]])
    with pytest.raises(ValueError, match=r"no rows at temperature 0.5; there are \[0.0, 1.0\]"):
        memory_claims(frame, temperature=0.5)


def test_a_threshold_that_saves_bytes_is_supported_for_every_reader() -> None:
    verdicts = read_claims(threshold_rows())
    assert [verdict.outcome for verdict in verdicts] == ["supported"] * 6
    assert verdicts[0].difference == pytest.approx(-100.0)
    assert not any("DSpark without memory" in verdict.claim for verdict in verdicts)
    worse = read_claims(threshold_rows(saved=-50.0))
    assert {verdict.outcome for verdict in worse} == {"contradicted"}


def test_a_threshold_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match=r"thresholds 0 and 0.3; got thresholds \[0.0, 0.5\]"):
        read_claims(threshold_rows(), threshold=0.3)
