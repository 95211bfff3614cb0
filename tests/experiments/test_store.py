"""Stored results: what is written, what counts as damaged, and what happens when nothing can be."""

import errno
import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from engram_lab.experiments import SweepError, load_results, run, store
from engram_lab.experiments.provenance import code_revision
from tests.experiments import fakes
from tests.experiments.fakes import executions, fake_sweep


def damage_truncate(table, record):
    table.write_bytes(table.read_bytes()[:-5])


def damage_no_record(table, record):
    record.unlink()


def damage_half_record(table, record):
    record.write_text(record.read_text()[:40])


def damage_record_is_a_list(table, record):
    record.write_text("[]")


def damage_other_rows(table, record):
    record.write_text(json.dumps(json.loads(record.read_text()) | {"rows": 7}))


def damage_not_text(table, record):
    table.write_bytes(bytes(range(256)))


@pytest.mark.parametrize(
    "damage",
    [
        damage_truncate,
        damage_no_record,
        damage_half_record,
        damage_record_is_a_list,
        damage_other_rows,
        damage_not_text,
    ],
)
def test_a_damaged_result_is_named_and_computed_again(results, damage):
    sound = run(fake_sweep())
    table = min(results.glob("*.csv"))
    damage(table, table.with_suffix(".json"))
    with pytest.warns(UserWarning, match=f"{table.name} is damaged.*it is computed again"):
        again = run(fake_sweep())
    assert_frame_equal(again, sound)
    assert executions() == 7


def test_load_results_leaves_a_damaged_result_out(results):
    run(fake_sweep())
    damage_truncate(min(results.glob("*.csv")), None)
    with pytest.warns(UserWarning, match="it is left out"):
        assert len(load_results(fake_sweep())) == 10


def test_a_result_of_a_renamed_grid_is_not_taken(results):
    run(fake_sweep(), limit=1)
    renamed = fake_sweep(
        grid={"share": (0.0,), "seed": (0,)},
        configure=lambda share, seed: fakes.configure(share, seed),
    )
    with pytest.warns(UserWarning, match="stored for the point"):
        assert list(run(renamed).columns)[0] == "share"


def test_windows_line_ends_are_not_damage(results):
    run(fake_sweep(), limit=1)
    table = min(results.glob("*.csv"))
    table.write_bytes(table.read_bytes().replace(b"\n", b"\r\n"))
    run(fake_sweep(), limit=1)
    assert executions() == 1


def test_no_temporary_file_stays_behind(results):
    run(fake_sweep(), limit=1)
    assert {path.suffix for path in results.iterdir()} == {".csv", ".json"}


def test_temporary_files_of_a_killed_run_are_swept_up(results):
    run(fake_sweep(), limit=1)
    name = min(results.glob("*.csv")).stem
    (results / f".{name}.123.csv.tmp").touch()
    run(fake_sweep(), limit=1, fresh=True)
    assert not list(results.glob(".*"))


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_results_folder_deleted_during_the_run_is_an_error(results, n_jobs):
    def vandal(config):
        shutil.rmtree(results, ignore_errors=True)
        return fakes.execute(config)

    with pytest.raises(SweepError, match="was deleted or replaced during the run"):
        run(fake_sweep(execute=vandal), n_jobs=n_jobs)
    assert executions() <= n_jobs  # nobody trains what cannot be stored
    assert not results.exists()


def test_a_full_disk_is_named_and_earlier_points_stay(results, monkeypatch):
    run(fake_sweep(), limit=2)
    monkeypatch.setattr(os, "fsync", _disk_full)
    with pytest.raises(SweepError, match="no space is left on the disk"):
        run(fake_sweep())
    monkeypatch.undo()
    assert len(list(results.glob("*.csv"))) == 2
    assert not list(results.glob(".*"))


def test_no_point_is_begun_when_the_disk_is_full(monkeypatch):
    monkeypatch.setattr(store, "FREE_BYTES", 2**70)
    with pytest.raises(SweepError, match="no space is left on the disk"):
        run(fake_sweep())
    assert executions() == 0


def test_a_folder_that_cannot_be_made_is_an_error(results):
    results.parent.mkdir(parents=True)
    results.write_text("a file")
    with pytest.raises(store.StoreError, match="cannot be made"):
        run(fake_sweep())


def test_lock_files_lie_out_of_sight_of_git(results):
    run(fake_sweep(), limit=1)
    assert (results.parent / ".locks" / ".gitignore").read_text() == "*\n"


def test_the_revision_is_the_commit_or_else_the_version(repository, tmp_path):
    assert code_revision(tmp_path) == "engram-lab 0.1.0"
    if (repository / ".git").exists():
        assert len(code_revision(repository).removesuffix("+changes")) == 40


def _disk_full(descriptor):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_results_that_ship_are_read_where_home_has_none(results, tmp_path, monkeypatch):
    stored = run(fake_sweep())
    monkeypatch.setattr(store, "checkout", lambda: tmp_path)
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path / "elsewhere"))
    assert_frame_equal(run(fake_sweep()), stored)
    assert executions() == 0  # counted where home is now


def test_a_result_of_a_config_with_another_default_is_computed_again(results):
    run(fake_sweep(), limit=1)
    record = min(results.glob("*.json"))
    content = json.loads(record.read_text())
    key = next(iter(content["config"]))
    record.write_text(json.dumps(content | {"config": content["config"] | {key: "other"}}))
    with pytest.warns(UserWarning, match="a default has changed"):
        run(fake_sweep(), limit=1)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1, 1], "b": [0.5, np.nan], "c": ["x", "x"], "d": [1e12, 1e12]}),
        pd.DataFrame({"a": [np.nan, np.nan], "b": [True, True], "c": [1, 2]}),
        pd.DataFrame({"a": [7, 7], "b": [1.0, 1.0]}),
        pd.DataFrame({"a": [7], "b": ["one row"]}),
    ],
)
def test_columns_of_one_value_come_back_as_they_were(tmp_path, frame):
    (tmp_path / "s").mkdir()
    kept = store.Store(folder=tmp_path / "s", identity=store._identity(tmp_path / "s"))
    kept.save("p", frame, {"point": {}})
    assert_frame_equal(kept.load("p", {}), frame)
    stored = (tmp_path / "s" / "p.csv").read_text()
    assert len(stored.splitlines()) == len(frame) + 1
