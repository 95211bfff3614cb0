"""The sweep: points, skipping, repeats, failures, several processes, two runs at once."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from engram_lab.experiments import SweepError, load_results, product, run
from tests.experiments import fakes
from tests.experiments.fakes import executions, fake_sweep


def test_rows_of_all_points_come_in_grid_order_with_grid_columns_first():
    frame = run(fake_sweep())
    assert list(frame.columns) == ["ratio", "seed", "token_class", "loss_nats"]
    assert frame["ratio"].tolist() == [0.0] * 4 + [0.5] * 4 + [1.0] * 4
    assert frame["seed"].tolist() == [0, 0, 1, 1] * 3
    assert frame["token_class"].tolist() == ["static", "NA"] * 6
    assert frame["loss_nats"][0] == 1 / 3


def test_a_second_run_executes_nothing_and_gives_the_same_frame():
    first = run(fake_sweep())
    assert executions() == 6
    assert_frame_equal(run(fake_sweep()), first)
    assert executions() == 6


def test_fresh_executes_again():
    run(fake_sweep())
    run(fake_sweep(), fresh=True)
    assert executions() == 12


def test_deleting_a_file_repeats_one_point(results):
    run(fake_sweep())
    next(iter(results.glob("*.csv"))).unlink()
    with pytest.warns(UserWarning, match="is missing; it is computed again"):
        run(fake_sweep())
    assert executions() == 7


def test_limit_takes_the_first_points():
    assert run(fake_sweep(), limit=2)["seed"].tolist() == [0, 0, 1, 1]
    assert executions() == 2


def test_only_keeps_the_points_with_these_values():
    frame = run(fake_sweep(), only={"ratio": (0.0, 1.0), "seed": 1})
    assert frame[["ratio", "seed"]].drop_duplicates().values.tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only": {"rate": 1}}, "only= names 'rate'; the grid of 'fake' has ratio, seed"),
        ({"only": {"seed": 9}}, "no point of sweep 'fake' has seed in"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"n_jobs": 0}, "n_jobs must be at least 1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        run(fake_sweep(), **arguments)


def test_results_of_another_config_never_mix():
    run(fake_sweep())
    wider = fake_sweep(configure=lambda ratio, seed: fakes.configure(ratio, seed + 10))
    assert run(wider, only={"seed": 0})["loss_nats"].min() > 10
    assert run(fake_sweep())["loss_nats"].max() < 5


def test_two_points_with_one_config_are_refused():
    with pytest.raises(ValueError, match=r"one config for two points, \(ratio=0.0, seed=0\)"):
        run(fake_sweep(configure=lambda ratio, seed: fakes.configure(ratio, 0)))


def test_a_grid_with_gaps_is_a_list_of_points():
    points = [*product(ratio=(0.0,), seed=(0, 1)), *product(ratio=(1.0,), seed=(2,))]
    frame = run(fake_sweep(grid=points))
    assert frame["seed"].drop_duplicates().tolist() == [0, 1, 2]


def test_a_grid_may_be_asked_for_when_it_is_needed(monkeypatch):
    sweep = fake_sweep(grid=lambda: {"ratio": (0.0,), "seed": (0,)})
    assert len(run(sweep)) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Fake sweep"}, "lower-case letters"),
        ({"grid": {"ratio": ()}}, "has no points"),
        ({"grid": {"ratio": (1.0,)}}, "configure of sweep 'fake' must take"),
        ({"grid": [{"ratio": 1.0, "seed": 0}, {"ratio": 1.0}]}, "need the same names"),
    ],
)
def test_a_sweep_that_cannot_run_is_refused_at_once(changes, message):
    with pytest.raises(ValueError, match=message):
        fake_sweep(**changes)


def test_one_failing_point_does_not_lose_the_others(results):
    with pytest.raises(SweepError, match="2 of 6 points of sweep 'fake' failed") as caught:
        run(fake_sweep(execute=fakes.fail_at_half))
    assert set(caught.value.failures) == {"ratio=0.5, seed=0", "ratio=0.5, seed=1"}
    assert "no luck at a half" in str(caught.value)
    assert len(list(results.glob("*.csv"))) == 4
    run(fake_sweep())
    assert executions() == 6


def test_a_point_that_cannot_be_configured_does_not_lose_the_others():
    def picky(ratio, seed):
        if ratio == 0.5:
            raise ValueError("too few experts")
        return fakes.configure(ratio, seed)

    with pytest.raises(SweepError, match="too few experts"):
        run(fake_sweep(configure=picky))
    assert executions() == 4


def test_an_interrupted_run_is_not_stored(results):
    class Interrupted:
        interrupted = True

    with pytest.raises(KeyboardInterrupt):
        run(fake_sweep(execute=lambda config: Interrupted()))
    assert not list(results.glob("*.csv"))


def test_measured_columns_must_not_contradict_the_grid():
    def renamed(config):
        return fakes.measure(config).assign(ratio=config.ratio + 0.01)

    with pytest.raises(SweepError, match="names of the grid, with other values"):
        run(fake_sweep(measure=renamed), limit=1)


def test_no_rows_are_a_failure():
    with pytest.raises(SweepError, match="measure returned no rows at ratio=0.0, seed=0"):
        run(fake_sweep(measure=lambda config: pd.DataFrame()), limit=1)


def test_load_results_reads_what_is_there_and_computes_nothing():
    assert load_results(fake_sweep()).empty
    assert list(load_results(fake_sweep()).columns) == ["ratio", "seed"]
    run(fake_sweep(), limit=1)
    assert len(load_results(fake_sweep())) == 2
    assert executions() == 1


def test_several_processes_give_the_same_frame(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_JOBS", "2")
    parallel = run(fake_sweep(execute=fakes.slowly))
    assert executions() == 6
    shutil.rmtree(Path(fakes.os.environ["ENGRAM_LAB_HOME"]) / "data")
    assert_frame_equal(run(fake_sweep(), n_jobs=1), parallel)


@pytest.mark.slow  # starts processes that import torch
def test_a_failing_point_in_another_process_is_named():
    with pytest.raises(SweepError, match="no luck at a half"):
        run(fake_sweep(execute=fakes.fail_at_half), n_jobs=2)
    assert executions() == 4


@pytest.mark.slow  # starts processes that import torch
def test_a_dying_process_is_an_error_that_names_its_points():
    def die(config):
        if config.seed == 1:
            fakes.os._exit(1)
        return fakes.execute(config)

    with pytest.raises(SweepError, match="a worker process died"):
        run(fake_sweep(execute=die), n_jobs=2)


def test_the_record_tells_how_a_result_came_about(results):
    run(fake_sweep(), limit=1)
    record = json.loads(next(iter(results.glob("*.json"))).read_text())
    assert record["point"] == {"ratio": 0.0, "seed": 0}
    assert record["config"] == {"ratio": 0.0, "seed": 0}
    assert record["rows"] == 2
    assert record["threads"] == 1
    assert {"revision", "versions", "device", "seconds", "date", "sha256"} <= set(record)
    assert record["versions"]["torch"]


def test_two_threads_share_the_work_and_read_each_other(results):
    frames = []
    sweep = fake_sweep(execute=fakes.slowly)
    threads = [threading.Thread(target=lambda: frames.append(run(sweep))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_frame_equal(*frames)
    assert executions() == 6


TWO = """
from tests.experiments import fakes
from engram_lab.experiments import run
print(len(run(fakes.fake_sweep(execute=fakes.slowly))))
"""


@pytest.mark.slow  # two interpreters import torch
def test_two_runs_at_once_compute_each_point_once(repository, results):
    command = [sys.executable, "-c", TWO]
    runs = [
        subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in runs] == ["12", "12"]
    assert executions() == 6
    assert not list(results.glob("*.tmp")) and not list(results.glob(".*"))
