"""E36 as sweeps: policies differ in the policy alone, objectives in what their name says."""

from dataclasses import asdict

import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import catalog
from engram_lab.experiments.catalog.dspark_drafters import drafter_run
from engram_lab.experiments.catalog.dspark_training import OBJECTIVES, drift_run, objective_run
from engram_lab.figures.draft_objective import OBJECTIVES as NAMED
from engram_lab.figures.drift import POLICIES


@pytest.mark.parametrize("scale", ["tiny", "workshop", "full"])
def test_policies_share_everything_but_the_policy(scale: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    runs = [asdict(drift_run(policy, 1)) for policy in POLICIES]
    assert [run.pop("policy") for run in runs] == list(POLICIES)
    assert runs[0] == runs[1] == runs[2]
    assert drift_run("beside", 1).drafter == drafter_run("dspark", 1)


def test_a_target_moves_to_a_part_it_has_not_read():
    run = drift_run("frozen", 0)
    assert run.onto.parts == ("python_manual",)
    assert not set(run.onto.parts) & set(run.drafter.target.data.parts)
    assert run.held_out.split == "validation" and run.answers.split == "train"


def test_each_objective_is_a_run_of_its_own_and_the_reference_that_of_e30():
    names = {fingerprint(objective_run(name, 0)) for name in OBJECTIVES}
    assert len(names) == len(OBJECTIVES)
    assert objective_run("reference", 0) == drafter_run("dspark", 0)
    assert objective_run("confidence_detached", 0).drafter.confidence_detach


def test_figures_know_every_policy_and_objective_of_the_sweeps():
    assert {point["policy"] for point in catalog.DSPARK_TRAINING.points()} == set(POLICIES)
    found = {point["objective"] for point in catalog.DSPARK_OBJECTIVE.points()}
    assert found == {"reference", *NAMED}
