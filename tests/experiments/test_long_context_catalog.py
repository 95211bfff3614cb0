"""Sweeps of E9: what the arms hold equal, which runs they share, and that each gives a frame."""

import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import run
from engram_lab.experiments.catalog import engram_allocation as allocation
from engram_lab.experiments.catalog import engram_long_context as long_context
from engram_lab.model.budget import budget

SWEEPS = [
    long_context.ENGRAM_LONG_CONTEXT_LOSS,
    long_context.ENGRAM_LONG_CONTEXT,
    long_context.ENGRAM_LONG_CONTEXT_ATTENTION,
    long_context.ENGRAM_LONG_CONTEXT_TEXT,
    long_context.ENGRAM_LONG_CONTEXT_TEXT_ATTENTION,
]
COLUMNS = {
    "engram_long_context_loss": {"document", "token_class", "loss_nats"},
    "engram_long_context": {"context", "task", "score", "stderr", "chance"},
    "engram_long_context_attention": {"layer", "window", "mass"},
    "engram_long_context_text_attention": {"layer", "window", "mass"},
    "engram_long_context_text": {"token_class", "loss_nats", "short_loss_nats"},
}


@pytest.mark.parametrize("scale", ["tiny", "workshop", "full"])
def test_arms_hold_equal_what_they_say_and_grow_alike(scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    sweep = long_context.ENGRAM_LONG_CONTEXT
    points = [p for p in sweep.points() if p["seed"] == 0 and p["share"] == 1.0]
    configs = {point["arm"]: sweep.configure(**point) for point in points}
    assert set(configs) == {"experts", "engram", "neighbour"}
    assert len({config.stage.data for config in configs.values()}) == 1
    counts = {arm: budget(config.base.model) for arm, config in configs.items()}
    for arm in ("engram", "neighbour"):
        assert counts[arm].total == pytest.approx(counts["experts"].total, rel=0.002)
        assert counts[arm].active == pytest.approx(counts["experts"].active, rel=0.012)
    for config in configs.values():
        assert config.stage.train.seq_len == long_context.STRETCH * long_context.context()
        assert config.stage.model.rope_theta > config.base.model.rope_theta


def test_memory_checkpoints_are_runs_of_fewer_tokens_with_three_seeds(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    points = long_context.ENGRAM_LONG_CONTEXT_LOSS.points()
    tokens = {(p["arm"], p["share"]): long_context.base_run(**p).data.train_tokens for p in points}
    assert {arm for arm, share in tokens if share < 1} == {"engram"}
    assert len({tokens["engram", share] for share in long_context.shares()}) == 3
    assert len(points) == 3 * len(tokens)
    bases = {fingerprint(long_context.ENGRAM_LONG_CONTEXT.configure(**p).base) for p in points}
    assert bases == {fingerprint(long_context.base_run(**p)) for p in points}


def test_text_models_are_those_of_the_allocation_experiment(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    sweep, known = long_context.ENGRAM_LONG_CONTEXT_TEXT, allocation.ENGRAM_ALLOCATION_TEXT
    names = {fingerprint(sweep.configure(**point)) for point in sweep.points()}
    grid = {fingerprint(known.configure(**point)): point for point in known.points()}
    assert names <= set(grid) and len(names) == 6
    assert {grid[name]["allocation_ratio"] for name in names} == {0.75, 1.0}
    assert long_context.GRADER_RATIO not in {0.75, 1.0}


@pytest.mark.slow  # trains half a dozen tiny models
@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_a_sweep_runs_from_nothing_to_a_frame(sweep):
    frame = run(sweep)
    assert COLUMNS[sweep.name] <= set(frame)
    assert len(frame.drop_duplicates(list(sweep.points()[0]))) == len(sweep.points())
