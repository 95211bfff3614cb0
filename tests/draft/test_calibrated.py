"""A rule behind a calibrator: it sees calibrated confidences, and one temperature."""

import numpy as np
import pytest
import torch

from engram_lab.draft.calibrated import CalibratedRule
from engram_lab.draft.calibration import Calibrator
from engram_lab.draft.costs import affine
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.oracle import BruteForce
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.schedule import FixedLength, Threshold
from tests.draft.tiny import golden_pair

LOGITS = np.full((200, 4), 2.0)
ACCEPTED = np.tile([0, 0, 0, 4], 50)  # said 0.88, kept one time in four


def rule(**changes: object) -> CalibratedRule:
    parts = {
        "rule": Threshold(threshold=0.5),
        "calibrator": Calibrator("isotonic").fit(LOGITS, ACCEPTED),
        "temperature": 1.0,
    }
    return CalibratedRule(**(parts | changes))


def test_the_rule_inside_sees_what_the_confidence_is_worth() -> None:
    said = torch.sigmoid(torch.full((3, 4), 2.0))
    assert Threshold(threshold=0.5)(said).tolist() == [4, 4, 4]
    assert rule()(said).tolist() == [0, 0, 0]


def test_the_raw_calibrator_changes_nothing() -> None:
    said = np.random.default_rng(0).uniform(0.01, 0.99, (20, 4))
    raw = rule(calibrator=Calibrator("raw").fit(LOGITS, ACCEPTED))
    assert raw(said).tolist() == Threshold(threshold=0.5)(said).tolist()


def test_a_rule_is_as_causal_as_the_one_inside() -> None:
    assert rule().causal
    assert not rule(rule=BruteForce(costs=affine(base=1.0, per_token=0.1))).causal
    assert "isotonic" in rule().name


def test_generation_refuses_another_temperature_and_names_both() -> None:
    target, drafter, _ = golden_pair()
    config = GenerationConfig(max_new_tokens=4, sampling=Sampling(temperature=0.5))
    with pytest.raises(ValueError, match="temperature 1; generation is at 0.5"):
        speculative_generate(target, drafter, [torch.tensor([5, 9])], config, schedule=rule())


def test_calibrated_generation_is_still_greedy_decoding() -> None:
    target, drafter, file = golden_pair()
    trace = file["greedy_decoding"][0]
    new = len(trace["output_ids"]) - len(trace["prompt"])
    config = GenerationConfig(max_new_tokens=new, sampling=Sampling(temperature=0.0))
    schedule = rule(rule=FixedLength(length=2), temperature=0.0)
    found = speculative_generate(
        target, drafter, [torch.tensor(trace["prompt"])], config, schedule=schedule
    )
    assert found.token_ids[0].tolist() == trace["output_ids"][len(trace["prompt"]) :]
    assert found.frame()["proposed"].max() == 2


def test_an_unfitted_calibrator_and_a_negative_temperature_are_refused() -> None:
    with pytest.raises(ValueError, match="call Calibrator.fit first"):
        rule(calibrator=Calibrator("sequential"))
    with pytest.raises(ValueError, match="at least 0; got -1"):
        rule(temperature=-1.0)
