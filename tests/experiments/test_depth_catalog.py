"""Sweeps of E5 and E6: what their models hold equal, and that each runs to a frame."""

import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import run
from engram_lab.experiments.catalog import engram_depth as depth
from engram_lab.model.budget import budget

PAIRS = [depth.ENGRAM_CKA, depth.ENGRAM_CKA_ALIGNMENT, depth.ENGRAM_CKA_GAIN]


@pytest.mark.parametrize("scale", ["tiny", "workshop", "full"])
def test_models_hold_equal_what_they_say(scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    runs = {model: depth.depth_run(model, 0) for model in depth.MODELS}
    counts = {model: budget(config.model) for model, config in runs.items()}
    for model in ("engram", "neighbour"):
        assert counts[model].active == pytest.approx(counts["experts"].active, rel=0.012)
        assert counts[model].total == pytest.approx(counts["experts"].total, rel=0.005)
    blocks = runs["experts"].model.num_hidden_layers
    assert runs["deeper"].model.num_hidden_layers == blocks + 1
    assert len({config.data for config in runs.values()}) == 1


@pytest.mark.parametrize("scale", ["tiny", "workshop", "full"])
def test_the_null_compares_experts_with_experts(scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    points = [p for p in depth.ENGRAM_CKA.points() if p["comparison"] == "seed"]
    for point in points:
        pair = depth.ENGRAM_CKA.configure(**point)
        assert pair.plain.model == pair.other.model and pair.plain.seed != pair.other.seed
    names = {fingerprint(depth.ENGRAM_CKA.configure(**p)) for p in depth.ENGRAM_CKA.points()}
    assert len(names) == len(depth.ENGRAM_CKA.points())


@pytest.mark.slow  # trains five tiny models
def test_the_sweeps_run_from_nothing_to_a_frame():
    frame = run(depth.ENGRAM_LENS)
    assert {"model", "seed", "memory", "layer", "kl_nats", "token_class"} <= set(frame)
    for sweep in PAIRS:
        frame = run(sweep)
        assert {"comparison", "seed", "estimator", "low", "removed"} <= set(frame)
