"""The target: what its passes show for every family, and that they leave it as it was."""

import pytest
import torch
from torch import nn

from engram_lab.draft.target import Target
from engram_lab.model.residual import residual_stream
from tests.draft.tiny import FAMILIES, TAPS, family, golden_pair, some_ids
from tests.model.foreign import foreign

each_family = pytest.mark.parametrize("name", FAMILIES)


def traces(model: nn.Module) -> list:
    """Modes, hooks and gradients of every module."""
    return [
        (m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()
    ] + [(p.requires_grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()]


def same(before: list, after: list) -> bool:
    return all(
        a[0] == b[0]
        and (torch.equal(a[1], b[1]) if isinstance(a[1], torch.Tensor) else a[1:] == b[1:])
        for a, b in zip(before, after, strict=True)
    )


def test_features_and_last_states_are_golden():
    target, _, file = golden_pair()
    wanted = file["training_forward"]
    read = target.read(torch.tensor(wanted["input_ids"]))
    states = torch.tensor(wanted["target_hidden_states"])
    assert torch.allclose(read.features, states, atol=1e-4)
    final = torch.tensor(wanted["target_last_hidden_states"])
    assert torch.allclose(read.final, final, atol=1e-4)


def test_logits_behind_a_prompt_are_golden():
    target, _, file = golden_pair()
    wanted = file["target_next_token_logits"]
    logits = target.read(torch.tensor([wanted["prompt"]])).logits[0, -1]
    assert torch.allclose(logits, torch.tensor(wanted["logits"]), atol=2e-4)


def test_the_rows_of_the_training_labels_have_the_golden_logits():
    target, _, file = golden_pair()
    wanted = file["training_forward"]
    read = target.read(torch.tensor(wanted["input_ids"]))
    aligned = torch.tensor(wanted["aligned_target_logits"])
    for row, column in ((0, 0), (0, 1), (1, 0)):
        anchor = wanted["anchors"][row][column]
        logits = read.logits[row, anchor : anchor + 4]
        assert torch.allclose(logits, aligned[row, column], atol=2e-4)


@each_family
def test_taps_are_the_outputs_of_their_blocks(name: str):
    model = family(name)
    ids = some_ids(61, 2, 7)
    stream = residual_stream(model, ids)  # before each block, and after the last
    read = Target(model, (-1, 0, 1)).read(ids)
    first, second, third = read.features.chunk(3, dim=-1)
    assert torch.allclose(first, stream[0], atol=1e-5)
    assert torch.allclose(second, stream[1], atol=1e-5)
    assert torch.allclose(third, stream[2], atol=1e-5)


@each_family
def test_the_head_on_the_final_states_is_the_models_logits(name: str):
    target = Target(family(name), TAPS)
    read = target.read(some_ids(61, 2, 7))
    assert torch.allclose(target.head(read.final), read.logits, atol=1e-5)
    raw = residual_stream(target.model, some_ids(61, 2, 7))[-1]
    assert not torch.allclose(target.head(raw), read.logits, atol=0.1)  # not before the norm


@pytest.mark.parametrize("name", ["gemma2", "cohere", "granite"])
def test_scaled_and_capped_logits_are_the_models_own(name: str):
    target = Target(foreign(name), TAPS)
    read = target.read(some_ids(61, 1, 7))
    assert torch.allclose(target.head(read.final), read.logits, atol=1e-5)


def test_embeddings_are_scaled_as_the_model_scales_them():
    target = Target(foreign("gemma2"), (-1,))
    ids = some_ids(61, 1, 5)
    assert torch.allclose(target.embed(ids), target.read(ids).features, atol=1e-5)


@each_family
def test_a_pass_without_taps_has_no_features(name: str):
    assert Target(family(name)).read(some_ids(61, 1, 4)).features is None


def test_gradients_reach_states_but_neither_head_nor_embedding():
    target = Target(family("qwen3"), TAPS)
    hidden = torch.randn(1, 3, target.hidden_size, requires_grad=True)
    (target.head(hidden).sum() + target.embed(some_ids(61, 1, 3)).sum()).backward()
    assert hidden.grad.any()
    assert all(parameter.grad is None for parameter in target.model.parameters())


@each_family
@pytest.mark.parametrize("training", [False, True])
def test_a_pass_leaves_the_model_as_it_was(name: str, training: bool):
    model = family(name).train(training)
    next(model.parameters()).requires_grad_(False)
    last = list(model.parameters())[-1]
    last.grad = torch.ones_like(last)
    list(model.modules())[-1].train(not training)  # modes need not be alike
    before = traces(model)
    Target(model, TAPS).read(some_ids(61, 1, 4))
    assert same(before, traces(model))


@each_family
def test_a_failing_pass_leaves_the_model_as_it_was(name: str):
    model = family(name).train()
    before = traces(model)
    with pytest.raises((ValueError, IndexError)):
        Target(model, TAPS).read(torch.full((1, 4), 61))
    assert same(before, traces(model))


def test_dropout_of_a_model_in_training_mode_is_off():
    model = family("gpt2").train()  # has dropout
    target = Target(model, TAPS)
    ids = some_ids(61, 1, 6)
    assert torch.equal(target.read(ids).logits, target.read(ids).logits)


def test_packed_documents_are_passed_to_a_model_that_knows_them():
    target = Target(family("memory"), TAPS)
    ids = some_ids(61, 1, 9)
    packed = target.read(ids, document_ids=torch.tensor([[0] * 4 + [1] * 5]))
    alone = target.read(ids[:, 4:])
    assert torch.allclose(packed.features[:, 4:], alone.features, atol=1e-5)


def test_packed_documents_are_refused_by_a_model_that_does_not():
    target = Target(family("llama"), TAPS)
    ids = some_ids(61, 1, 4)
    with pytest.raises(ValueError, match="LlamaForCausalLM does not tell packed documents apart"):
        target.read(ids, document_ids=torch.tensor([[0, 0, 1, 1]]))
    one = target.read(ids, document_ids=torch.tensor([[7, 7, 7, 7]]))  # a row of one document
    assert torch.equal(one.logits, target.read(ids).logits)


@pytest.mark.parametrize(
    ("taps", "told"),
    [((0, 2), "last block, 2 of 3"), ((0, 3), r"-1\.\.1.*3 blocks.*\(0, 3\)"), ((1, 0), "rising")],
)
def test_blocks_that_cannot_be_tapped_are_refused(taps: tuple[int, ...], told: str):
    with pytest.raises(ValueError, match=told):
        Target(family("qwen3"), taps)


def test_a_model_without_a_head_is_refused():
    with pytest.raises(ValueError, match="head"):
        Target(family("llama").model, TAPS)


def test_a_model_of_another_interface_is_named():
    class Renamed(nn.Module):
        """A model whose forward has other names."""

        def __init__(self, model: nn.Module):
            super().__init__()
            self.blocks, self.norm = model.blocks, model.norm
            self.lm_head, self.embed = model.lm_head, model.embed_tokens

        def get_input_embeddings(self) -> nn.Module:
            return self.embed

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return tokens

    with pytest.raises(ValueError, match="that of Renamed does not take input_ids, use_cache"):
        Target(Renamed(family("plain")), TAPS).read(some_ids(61, 1, 4))


def test_settling_once_changes_no_pass_and_leaves_no_hook():
    target = Target(family("plain"), TAPS)
    ids = some_ids(61, 2, 6)
    apart = target.read(ids)
    target.model.train()
    with target.settled():
        assert not target.model.training
        with target.settled():
            inner = target.read(ids)
        outer = target.read(ids)
    assert target.model.training
    for found in (inner, outer):
        assert torch.equal(found.logits, apart.logits)
        assert torch.equal(found.features, apart.features)
        assert torch.equal(found.final, apart.final)
    with pytest.raises(RuntimeError), target.settled():
        raise RuntimeError
    assert not any(module._forward_hooks for module in target.model.modules())
    assert not any(module._forward_pre_hooks for module in target.model.modules())
