"""The gate: golden scalars, a formula by hand, finite gradients at and near agreement 0."""

import math

import pytest
import torch

from engram_lab.memory.gate import agreement, context_gate, gate_of_agreement
from tests.memory import golden

SCALARS = golden.load("gate_scalar")


@pytest.mark.parametrize(
    ("column", "rules"),
    [
        ("gate_demo", {"transform": "signed_sqrt", "zero_rule": "sign"}),
        ("gate_v41", {"transform": "signed_sqrt", "zero_rule": "copysign"}),
        ("gate_paper_eq4", {"transform": "identity"}),
    ],
)
def test_golden_scalars(column, rules):
    scores = golden.tensor([float(score) for score in SCALARS["score"]])
    expected = golden.tensor([float(gate) for gate in SCALARS[column]])
    torch.testing.assert_close(gate_of_agreement(scores, **rules), expected, atol=1e-7, rtol=2e-6)


def test_the_formula_by_hand():
    hidden, key, gain = torch.randn(2, 3, 2, 8), torch.randn(2, 3, 2, 8), torch.rand(2, 8) + 0.5
    gate = context_gate(hidden, key, gain=gain, eps=1e-6)
    for b, t, m in [(0, 0, 0), (1, 2, 1)]:
        h, k = hidden[b, t, m].tolist(), key[b, t, m].tolist()
        rms_h = math.sqrt(sum(x * x for x in h) / 8 + 1e-6)
        rms_k = math.sqrt(sum(x * x for x in k) / 8 + 1e-6)
        dot = sum(x / rms_h * y / rms_k * g for x, y, g in zip(h, k, gain[m].tolist(), strict=True))
        score = dot / math.sqrt(8)
        expected = 1 / (1 + math.exp(-math.copysign(math.sqrt(abs(score)), score)))
        assert gate[b, t, m].item() == pytest.approx(expected, abs=1e-6)


def test_statistics_are_per_branch():
    hidden, key = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8)
    louder = hidden.clone()
    louder[:, :, 1] *= 100  # a joint norm would let this branch close the others
    torch.testing.assert_close(context_gate(hidden, key), context_gate(louder, key))


def test_agreement_is_bounded_by_the_root_of_the_width():
    hidden = torch.randn(1, 5, 1, 16)
    found = agreement(hidden, hidden)
    torch.testing.assert_close(found, torch.full_like(found, 4.0), atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("zero_rule", ["sign", "copysign"])
@pytest.mark.parametrize("lean", [0.0, 1e-12, -1e-12, 1e-6, 1e-3])
def test_gradients_are_finite_and_bounded_near_agreement_zero(dtype, zero_rule, lean):
    hidden = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=dtype).reshape(1, 1, 1, 4).requires_grad_()
    key = torch.tensor([lean, 1.0, 0.0, 1.0], dtype=dtype).reshape(1, 1, 1, 4).requires_grad_()
    gate = context_gate(hidden, key, zero_rule=zero_rule)
    gate.sum().backward()
    for gradient in (hidden.grad, key.grad):
        assert gradient.isfinite().all()
        # 1/4 from the sigmoid, 500 from the root at the clamp, sqrt(2) from the norms, / sqrt(4)
        assert gradient.abs().max() <= 0.25 * 500 * 2**0.5


def test_agreement_zero_passes_no_gradient():
    hidden = torch.tensor([1.0, 0.0]).reshape(1, 1, 1, 2).requires_grad_()
    context_gate(hidden, torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2)).sum().backward()
    assert hidden.grad.abs().max() == 0


@pytest.mark.parametrize("eps", [1e-20, 1e-6])
def test_an_all_zero_key_is_harmless(eps):
    hidden, key = torch.randn(1, 1, 1, 4), torch.zeros(1, 1, 1, 4, requires_grad=True)
    gate = context_gate(hidden, key, eps=eps)
    gate.sum().backward()
    assert gate.item() == 0.5
    assert key.grad.isfinite().all()


@pytest.mark.parametrize("transform", ["signed_sqrt", "identity"])
def test_gradients_away_from_zero_are_those_of_differences(transform):
    hidden, key = (torch.randn(1, 2, 2, 3, dtype=torch.float64) for _ in range(2))
    gain = torch.rand(2, 3, dtype=torch.float64) + 0.5
    inputs = [x.requires_grad_() for x in (hidden, key, gain)]
    assert agreement(hidden, key, gain=gain).abs().min() > 1e-2
    assert torch.autograd.gradcheck(
        lambda h, k, g: context_gate(h, k, gain=g, transform=transform), inputs
    )


def test_half_precision_is_computed_in_float32():
    hidden, key = torch.randn(1, 3, 1, 64), torch.randn(1, 3, 1, 64)
    half = context_gate(hidden.bfloat16(), key.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(
        half, context_gate(hidden.bfloat16().float(), key.bfloat16().float())
    )
