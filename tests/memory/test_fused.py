"""The fused full pass against the step-by-step one, a NumPy twin, and differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engram_lab.hooks import edit
from engram_lab.memory import fused
from engram_lab.memory.config import EngramConfig
from engram_lab.memory.engram import Engram
from engram_lab.memory.fused import UpdateRule, fused_update
from engram_lab.memory.state import MemoryContext
from tests.twins import update as twin

TINY = EngramConfig(
    layer_ids=(1,), engram_vocab_size=(50, 70), n_head_per_ngram=2, n_embed_per_ngram=4
)
RULE = UpdateRule(
    transform="signed_sqrt",
    zero_rule="sign",
    eps=1e-6,
    conv_eps=1e-5,
    dilation=3,
    silent=None,
    mute=True,
    connected=None,
)


def module_of(branches: int, **changes) -> Engram:
    module = Engram(
        replace(TINY, sparse_grad=False, **changes),
        1,
        hidden_size=8,
        hc_mult=branches,
        canonical_vocab_size=30,
        fill_id=0,
        eos_id=3,
    ).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator) + 0.2)
    return module


def outcome(module: Engram, context: MemoryContext, *, fused: bool) -> list[torch.Tensor]:
    """Update and all gradients; a hook point that is watched asks for the plain path."""
    generator = torch.Generator().manual_seed(3)
    shape = (2, 17, module.hc_mult, 8)
    hidden = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    ids = torch.randint(0, 30, (2, 17), generator=generator)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64)
    watch = {} if fused else {"hook_gate": lambda gate: gate}
    with edit(module, watch):
        update = module(hidden, ids, context=context)
    names = type(update.grad_fn).__name__
    assert ("_UpdateBackward" in names) is fused
    update.backward(weights)
    gradients = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    return [update, hidden.grad, *gradients]


@pytest.mark.parametrize("branches", [1, 2, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"conv": False, "bias": True},
        {"gate_transform": "identity", "bias": True},
        {"gate_zero_rule": "copysign", "conv_reset": False},
        {"zero_centred_gain": True, "padding": "fill"},
        {"reset": "eos", "padding": "hashed"},
        {"kernel_size": 1},
        {"kernel_size": 9},  # looks back further than the sequence is long
    ],
    ids=str,
)
def test_update_and_gradients_equal_the_plain_path(branches, changes):
    module = module_of(branches, **changes)
    generator = torch.Generator().manual_seed(4)
    context = MemoryContext(
        attention_mask=torch.rand(2, 17, generator=generator) > 0.2,
        document_ids=(torch.rand(2, 17, generator=generator) > 0.8).cumsum(1),
    )
    plain, fused = (outcome(module, context, fused=fused) for fused in (False, True))
    for expected, found in zip(plain, fused, strict=True):
        # float64 on both sides; sums run in other orders
        torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-9)


@pytest.mark.parametrize("conv", [True, False])
def test_gradients_are_those_of_differences(conv):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.requires_grad_()

    hidden, memory, weight, bias, gain = (
        draw(1, 5, 2, 3),
        draw(1, 5, 4),
        draw(9, 4),
        draw(9),
        draw(2, 3),
    )
    taps = draw(2, 2, 3) if conv else None
    rule = replace(RULE, connected=[torch.tensor([[True, False]])]) if conv else RULE
    assert torch.autograd.gradcheck(
        lambda h, m, w, b, g, t=None: fused_update(h, m, (w, b), g, t, rule),
        [x for x in (hidden, memory, weight, bias, gain, taps) if x is not None],
        atol=1e-6,
    )


def test_the_update_equals_the_twin():
    module = module_of(2)
    hidden, ids = torch.randn(1, 14, 2, 8, dtype=torch.float64), torch.randint(0, 30, (1, 14))
    memory = module.table(module.hash.addresses(ids)).flatten(2)
    matrix = module.projection.weight.detach().numpy()
    weights = {
        "key": matrix[:-8].reshape(2, 8, -1),
        "value": matrix[-8:],
        "gain": (module.query_gain * module.key_gain).detach().numpy(),
        "conv_gain": module.conv_gain.detach().numpy(),
        "taps": module.conv_weight.detach().numpy(),
    }
    expected = twin.update(
        hidden[0].numpy(),
        memory[0].detach().numpy(),
        weights,
        kernel=4,
        dilation=3,
        eps=module.config.norm_eps,
        conv_eps=module.config.conv_norm_eps,
    )
    found = module(hidden, ids)[0].detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("conv", [True, False])
def test_parts_of_the_batch_add_up(conv, monkeypatch):
    module = module_of(2, conv=conv, bias=True)
    context = MemoryContext(
        attention_mask=torch.tensor([[1] * 15 + [0] * 2, [0] * 3 + [1] * 14]),
        document_ids=torch.tensor([[0] * 9 + [1] * 8, [2] * 4 + [3] * 13]),
    )
    whole = outcome(module, context, fused=True)
    monkeypatch.setattr(fused, "_BLOCK", 1)  # one sequence at a time
    for expected, found in zip(whole, outcome(module, context, fused=True), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


def test_a_gradient_can_be_taken_twice():
    module = module_of(1)
    hidden = torch.randn(1, 6, 1, 8, dtype=torch.float64, requires_grad=True)
    update = module(hidden, torch.randint(0, 30, (1, 6))).square().sum()
    first, second = (torch.autograd.grad(update, hidden, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_an_empty_batch_has_an_empty_update():
    module = module_of(1)
    hidden = torch.randn(0, 6, 1, 8, dtype=torch.float64, requires_grad=True)
    module(hidden, torch.zeros(0, 6, dtype=torch.int64)).sum().backward()
    assert hidden.grad.shape == (0, 6, 1, 8)


def test_frozen_parts_get_no_gradient():
    module = module_of(1)
    module.requires_grad_(False)
    hidden = torch.randn(1, 6, 1, 8, dtype=torch.float64, requires_grad=True)
    module(hidden, torch.randint(0, 30, (1, 6))).sum().backward()
    assert hidden.grad.abs().max() > 0
    assert all(parameter.grad is None for parameter in module.parameters())


def test_only_the_table_may_learn():
    module = module_of(1).requires_grad_(False)
    module.table.requires_grad_(True)
    hidden = torch.randn(1, 6, 1, 8, dtype=torch.float64)
    module(hidden, torch.randint(0, 30, (1, 6))).sum().backward()
    assert module.table.weight.grad.abs().max() > 0


def test_gradients_at_agreement_zero_are_finite():
    module = module_of(1)
    torch.nn.init.zeros_(module.query_gain)  # every agreement is exactly 0
    hidden = torch.randn(1, 6, 1, 8, dtype=torch.float64, requires_grad=True)
    module(hidden, torch.randint(0, 30, (1, 6))).sum().backward()
    for gradient in (hidden.grad, *(p.grad for p in module.parameters())):
        assert gradient.isfinite().all()
