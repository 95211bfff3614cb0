"""Ways in which an experiment misleads: a control left out, one seed, a null result kept quiet."""

import pytest

from engram_lab.experiments import catalog
from engram_lab.experiments.claims import allocation_claims, control_claims
from engram_lab.model.budget import budget
from tests.experiments.test_claims import planted

CONTROLS = ("experts", "neighbour", "wide_ffn")


@pytest.mark.parametrize("scale", ["workshop", "full"])
def test_every_arm_is_run_with_the_same_seeds_and_more_than_one(scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    sweep = catalog.ENGRAM_ALLOCATION_CONTROLS
    seeds: dict[str, set[int]] = {}
    for point in sweep.points():
        seeds.setdefault(point["arm"], set()).add(point["seed"])
    assert seeds.keys() == {*CONTROLS, "engram"}
    assert all(found == seeds["engram"] and len(found) >= 2 for found in seeds.values())


def test_controls_cost_what_the_hybrid_costs(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    configure = catalog.ENGRAM_ALLOCATION_CONTROLS.configure
    counts = {arm: budget(configure(arm=arm, seed=0).model) for arm in (*CONTROLS, "engram")}
    for count in counts.values():
        assert count.total == pytest.approx(counts["engram"].total, rel=1e-3)
    assert counts["experts"].active == pytest.approx(counts["engram"].active, rel=1e-2)
    assert counts["neighbour"] == counts["engram"] and counts["engram"].table > 0
    assert counts["experts"].table == counts["wide_ffn"].table == 0


def test_no_gain_over_a_control_is_said_in_as_many_words():
    equal = planted("arm", dict.fromkeys(("engram", *CONTROLS), 2.0))
    assert {verdict.outcome for verdict in control_claims(equal)} == {"undecided"}
    worse = planted("arm", dict.fromkeys(CONTROLS, 1.9) | {"engram": 2.0})
    for verdict in control_claims(worse):
        assert "the hybrid beats" in verdict.sentence and ": contradicted." in verdict.sentence
        assert verdict.difference == pytest.approx(0.1) and verdict.n_seeds == 3


def test_a_monotone_curve_is_no_gain():
    frame = planted("allocation_ratio", {0.0: 3.2, 0.75: 3.0, 1.0: 2.9})
    against_experts, _ = allocation_claims(frame, "toy")
    assert against_experts.outcome == "contradicted"
