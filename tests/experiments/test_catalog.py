"""The catalogue: every sweep can be configured at every scale, and holds equal what it says."""

import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import Sweep, catalog, run
from engram_lab.model.budget import budget
from engram_lab.training.fit import load_or_fit

SWEEPS = [getattr(catalog, name) for name in catalog.__all__]
# some arms of these differ in their totals, as test_memory_catalog and test_depth_catalog say
OTHER_TOTALS = ("head_to_head", "engram_lens", "engram_entity")
TRAINED = [sweep for sweep in SWEEPS if sweep.execute is load_or_fit]
SAME_TOTAL = [s for s in TRAINED if not any(name in s.name for name in OTHER_TOTALS)]


@pytest.mark.parametrize("sweep", SAME_TOTAL, ids=lambda sweep: sweep.name)
def test_points_are_different_runs_with_the_same_total(sweep: Sweep):
    configs = [sweep.configure(**point) for point in sweep.points()]
    assert len({fingerprint(config) for config in configs}) == len(configs)
    totals = [budget(config.model).total for config in configs]
    assert max(totals) / min(totals) < 1.002


@pytest.mark.parametrize("scale", ["workshop", "full"])
def test_the_ends_of_the_curve_can_be_split_at_larger_scales(scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    points = catalog.ENGRAM_ALLOCATION.points()
    for ratio in (0.0, 0.5, 1.0):
        point = next(point for point in points if point["allocation_ratio"] == ratio)
        model = catalog.ENGRAM_ALLOCATION.configure(**point).model
        assert budget(model).allocation_ratio == pytest.approx(ratio, abs=0.02)


def test_names_of_sweeps_are_names_of_constants():
    assert [sweep.name.upper() for sweep in SWEEPS] == catalog.__all__


def test_controls_share_data_seeds_and_sizes_with_the_hybrid():
    sweep = catalog.ENGRAM_ALLOCATION_CONTROLS
    runs = {point["arm"]: sweep.configure(**point) for point in sweep.points()}
    assert {run.data for run in runs.values()} == {runs["engram"].data}
    assert runs["experts"].model.engram is None and runs["wide_ffn"].model.engram is None
    assert runs["neighbour"].model.engram.addresses == "neighbour"
    assert budget(runs["neighbour"].model) == budget(runs["engram"].model)
    assert budget(runs["wide_ffn"].model).active > budget(runs["engram"].model).active


@pytest.mark.slow  # trains three tiny models
def test_the_quickstart_runs_from_nothing_to_a_frame():
    frame = run(catalog.QUICKSTART)
    assert frame["allocation_ratio"].unique().tolist() == [1.0, 0.5, 0.0]
    assert {"document", "token_class", "loss_nats", "params", "realised_ratio"} <= set(frame)
