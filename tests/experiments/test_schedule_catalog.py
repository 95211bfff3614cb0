"""Schedules in the catalogue: configs, and the sweeps at tiny scale."""

import pandas as pd
import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import run
from engram_lab.experiments.catalog import DSPARK_ROUNDS, DSPARK_SCHEDULE
from engram_lab.experiments.catalog.dspark_schedule import schedule_run
from engram_lab.probes.schedule import traces_of


def test_every_curve_and_confidence_has_all_three_seeds(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    points = DSPARK_SCHEDULE.points()
    groups = pd.DataFrame(points).groupby(["domain", "costs", "quality"])["seed"]
    assert (groups.nunique() == 3).all() and len(points) == 81
    code = [point for point in points if point["domain"] == "code"]
    assert len({fingerprint(schedule_run(**point)) for point in code}) == 27


def test_what_is_not_known_is_refused():
    with pytest.raises(ValueError, match="quality one of sequential, raw, mean; got 'code'"):
        schedule_run("code", 0, "affine", "guess")


@pytest.mark.slow  # trains a tiny target and a tiny drafter
def test_stored_rounds_can_be_replayed_like_those_of_the_sweep():
    frame = run(DSPARK_SCHEDULE)
    assert set(frame["quality"]) == {"sequential", "raw", "mean"}
    assert {"plain decoding", "early stop", "stale capacity"} <= set(frame["policy"])
    assert (frame.loc[frame["policy"] == "unrestricted", "regret"].abs() < 1e-9).all()
    records = run(DSPARK_ROUNDS)
    assert set(records["domain"]) == {"structured", "code", "prose"}
    assert len(traces_of(records).accepted) > frame["rounds"].max()
