"""Timing the hot tier: arms in turn, and models left as they were."""

import pytest
import torch

from engram_lab.probes.hot_tier_speed import PARTS, speed_frame


def test_every_arm_part_and_repeat_has_a_row(tiny_model):
    ids = torch.randint(0, tiny_model.config.vocab_size, (2, 16))
    frame = speed_frame({"hash": tiny_model, "hot_cold": tiny_model}, ids, repeats=2)
    assert len(frame) == 2 * 2 * 2 and set(frame["part"]) == set(PARTS)
    assert (frame["tokens"] == 32).all() and (frame["wall_ms"] > 0).all()


def test_the_model_is_left_as_found(tiny_model):
    ids = torch.randint(0, tiny_model.config.vocab_size, (1, 8))
    weight = next(tiny_model.parameters())
    weight.grad = torch.ones_like(weight)
    before = {name: value.clone() for name, value in tiny_model.state_dict().items()}
    speed_frame({"hash": tiny_model}, ids, repeats=1)
    assert torch.equal(weight.grad, torch.ones_like(weight)) and not tiny_model.training
    assert all(torch.equal(value, before[name]) for name, value in tiny_model.state_dict().items())


def test_nothing_to_time_is_refused(tiny_model):
    ids = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match="a model and repeats of at least 1; got 0 and 3"):
        speed_frame({}, ids, repeats=3)
    with pytest.raises(ValueError, match="'bare' has none"):
        speed_frame({"bare": torch.nn.Linear(2, 2)}, ids)
