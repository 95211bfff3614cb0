"""E37 as sweeps: cells differ in the target and in the rows alone; a tiny run of all of them."""

from pathlib import Path

import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import catalog, run
from engram_lab.experiments.catalog.dspark_drafters import drafter_run
from engram_lab.experiments.catalog.dspark_memory import memory_drafter_run
from engram_lab.experiments.catalog.dspark_targets import memory_target, text_target
from engram_lab.experiments.draft_memory_claims import NAMES, memory_claims
from engram_lab.figures.draft_memory import lengths_by_cell
from engram_lab.figures.draft_reads import bytes_by_cell, waste_by_threshold
from engram_lab.model.budget import budget

each_scale = pytest.mark.parametrize("scale", ["tiny", "workshop", "full"])


@each_scale
def test_cells_without_memory_and_rows_are_the_runs_of_e30(
    scale: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    for drafter in ("dspark", "bigram", "parallel_bigram"):
        here = memory_drafter_run("plain", drafter, False, 1)
        assert fingerprint(here) == fingerprint(drafter_run(drafter, 1))


@each_scale
def test_targets_differ_in_the_memory_alone(scale: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    plain, memory = text_target(2), memory_target(2)
    assert memory.model.replace(engram=None) == plain.model
    assert (memory.data, memory.train, memory.seed) == (plain.data, plain.train, plain.seed)
    counts = budget(memory.model), budget(plain.model)
    assert counts[0].total > counts[1].total
    assert counts[0].active < 1.5 * counts[1].active


def test_rows_are_those_of_the_target_with_memory_of_the_same_seed():
    for target in ("plain", "memory"):
        with_rows, without = (
            memory_drafter_run(target, "dspark", rows, 1) for rows in (True, False)
        )
        assert with_rows.rows_of == memory_target(1) and without.rows_of is None
        assert with_rows.drafter == without.drafter and with_rows.answers == without.answers
    base = memory_drafter_run("memory", "parallel_bigram", False, 1)
    assert base.target == base.base.target == memory_target(1)
    with pytest.raises(ValueError, match="counts read no rows; got drafter='bigram'"):
        memory_drafter_run("plain", "bigram", True, 0)


def test_every_cell_has_a_name_in_claims():
    points = catalog.DSPARK_MEMORY.points()
    assert {(p["target"], p["drafter"], p["rows"]) for p in points} == set(NAMES)
    reads = catalog.DSPARK_MEMORY_READS.points()
    assert all(point in points for point in reads) and len(reads) == len(points) // 2


@pytest.mark.slow
def test_all_cells_run_and_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "tiny")
    frame = run(catalog.DSPARK_MEMORY)
    reads = frame.groupby(["target", "rows"])["bytes_per_token"].min()
    assert reads["plain", False] == 0 and (reads.drop(("plain", False)) > 0).all()
    assert frame.groupby(["target", "domain"])["target_loss_nats"].nunique().max() == 1
    assert len(memory_claims(frame)) == 12
    assert lengths_by_cell(frame).data and bytes_by_cell(frame).data
    curves = run(catalog.DSPARK_MEMORY_READS)
    whole = curves[(curves["target"] == "memory") & (curves["threshold"] == 0)]
    block = drafter_run("dspark", 0).drafter.block_size
    waste = 1 - whole["accepted_length"] / (block + 1)
    assert whole["wasted_share"].tolist() == pytest.approx(waste.tolist(), abs=1e-4)
    assert waste_by_threshold(curves).data
