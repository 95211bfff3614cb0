"""Sweeps of E3, E7, E8 and E14: what their arms hold equal, and that each runs to a frame."""

import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import Sweep, run
from engram_lab.experiments.catalog import engram_allocation as allocation
from engram_lab.experiments.catalog.engram_ablation import ENGRAM_ABLATION, ENGRAM_ABLATION_TEXT
from engram_lab.experiments.catalog.engram_gate_credit import ENGRAM_GATE_CREDIT
from engram_lab.experiments.catalog.engram_gates import ENGRAM_GATES, ENGRAM_GATES_TOPICS
from engram_lab.experiments.catalog.engram_head_to_head import (
    ENGRAM_HEAD_TO_HEAD,
    ENGRAM_HEAD_TO_HEAD_TASKS,
    ENGRAM_HEAD_TO_HEAD_TEXT,
)
from engram_lab.experiments.catalog.memory_arms import LARGER, RATIO, arm_run
from engram_lab.model.budget import budget

SWEEPS = [
    ENGRAM_ABLATION, ENGRAM_ABLATION_TEXT, ENGRAM_GATES, ENGRAM_GATES_TOPICS, ENGRAM_GATE_CREDIT,
    ENGRAM_HEAD_TO_HEAD, ENGRAM_HEAD_TO_HEAD_TASKS, ENGRAM_HEAD_TO_HEAD_TEXT,
]  # fmt: skip


def names(sweep: Sweep, **only) -> set[str]:
    points = [p for p in sweep.points() if all(p[key] in value for key, value in only.items())]
    return {fingerprint(sweep.configure(**point)) for point in points}


@pytest.mark.parametrize("scale", ["tiny", "workshop", "full"])
@pytest.mark.parametrize(
    "sweep", [ENGRAM_HEAD_TO_HEAD, ENGRAM_HEAD_TO_HEAD_TEXT], ids=["d3", "text"]
)
def test_arms_hold_equal_what_they_say(sweep, scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    runs = {p["arm"]: sweep.configure(**p) for p in sweep.points() if p["seed"] == 0}
    counts = {arm: budget(config.model) for arm, config in runs.items()}
    assert len({config.data for config in runs.values()}) == 1
    for arm in ("dense", "engram", "engram_3x", "neighbour"):
        assert counts[arm].active == pytest.approx(counts["experts"].active, rel=0.012)
    for arm in ("engram", "neighbour", "wide_ffn"):
        assert counts[arm].total == pytest.approx(counts["experts"].total, rel=0.002)
    assert counts["dense"].sparse == 0 and counts["wide_ffn"].active > counts["experts"].active
    assert counts["engram_3x"].table == pytest.approx(LARGER * counts["engram"].table, rel=0.02)
    assert counts["engram"].allocation_ratio == pytest.approx(RATIO, abs=0.04)


@pytest.mark.parametrize("scale", ["tiny", "workshop"])
def test_runs_are_shared_by_fingerprint(scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    assert names(ENGRAM_ABLATION) <= names(ENGRAM_HEAD_TO_HEAD) == names(ENGRAM_HEAD_TO_HEAD_TASKS)
    assert names(ENGRAM_GATES, model=("engram",)) <= names(allocation.ENGRAM_ALLOCATION_D1)
    longest = max(point["train_tokens"] for point in ENGRAM_GATE_CREDIT.points())
    assert names(ENGRAM_GATE_CREDIT, train_tokens=(longest,)) <= names(
        allocation.ENGRAM_ALLOCATION_D1
    )
    assert names(ENGRAM_ABLATION_TEXT) <= names(ENGRAM_HEAD_TO_HEAD_TEXT)
    if scale == "workshop":  # at scale tiny the allocation has three ratios alone
        assert names(ENGRAM_ABLATION_TEXT) <= names(allocation.ENGRAM_ALLOCATION_TEXT)


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)
def test_there_are_three_seeds_and_controls_at_workshop_scale(sweep, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    points = sweep.points()
    assert {point["seed"] for point in points} == {0, 1, 2}
    assert len(names(sweep)) == len(points)


def test_an_unknown_arm_is_refused():
    data = ENGRAM_HEAD_TO_HEAD.configure(arm="dense", seed=0).data
    with pytest.raises(ValueError, match="arm must be one of dense.*got 'sparse'"):
        arm_run(data, "sparse", 0)


EXPECTED = {
    "engram_ablation": {"model", "seed", "family", "task", "arm", "layer", "retained_corrected"},
    "engram_gates": {"model", "statistic", "layer", "branch", "measure", "value", "low", "high"},
    "engram_gates_topics": {"model", "layer", "phrase", "gate_home", "gate_elsewhere"},
    "engram_gate_credit": {"model", "train_tokens", "gate_bin", "route", "utility_nats", "auc"},
    "engram_head_to_head_tasks": {"arm", "family", "task", "item", "score", "params"},
}


@pytest.mark.slow  # trains a dozen tiny models
@pytest.mark.parametrize("sweep", [s for s in SWEEPS if s.name in EXPECTED], ids=lambda s: s.name)
def test_a_sweep_runs_from_nothing_to_a_frame(sweep):
    frame = run(sweep)
    assert EXPECTED[sweep.name] <= set(frame)
    assert len(frame.drop_duplicates(list(sweep.points()[0]))) == len(sweep.points())
