"""Timing a target: one step of many sequences at a fixed context."""

import pytest
import torch

from engram_lab.draft.target import Target
from engram_lab.draft.target_costs import target_cost_table
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.modeling import EngramLM


@pytest.fixture
def target() -> Target:
    config = EngramLMConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    return Target(EngramLM(config))


def test_every_size_is_timed_with_one_step_of_its_own(target):
    seen = []
    hook = target.model.register_forward_pre_hook(
        lambda model, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    table = target_cost_table(target, (1, 4, 8), context=6, block=4, repeats=2)
    hook.remove()
    assert table.sizes == (1, 4, 8) and min(table.seconds) > 0
    assert seen.count((1, 1)) == 3 and seen.count((1, 4)) == 3 and seen.count((2, 4)) == 3
    assert seen.count((1, 6)) == 2 and seen.count((2, 6)) == 1


def test_the_target_is_left_as_it_was(target):
    before = {name: value.clone() for name, value in target.model.state_dict().items()}
    target.model.train()
    target_cost_table(target, (2,), context=4, block=2, repeats=1)
    assert target.model.training and torch.is_grad_enabled()
    assert all(
        torch.equal(value, before[name]) for name, value in target.model.state_dict().items()
    )


def test_sizes_and_contexts_that_do_not_fit_are_refused(target):
    with pytest.raises(ValueError, match=r"block 4 and \[6\]"):
        target_cost_table(target, (4, 6), block=4)
    with pytest.raises(ValueError, match="32 tokens; context 30 and a block of 4 are longer"):
        target_cost_table(target, (4,), context=30, block=4)
    with pytest.raises(ValueError, match="at least 1 token"):
        target_cost_table(target, (), context=4)
