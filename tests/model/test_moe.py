"""The expert layer: golden router, grouped products against a plain loop, and honest balance
losses."""

import json
from pathlib import Path

import pytest
import torch

from engram_lab.model.config import MoEConfig
from engram_lab.model.layers import swiglu
from engram_lab.model.moe import MoE, Router, sequence_balance_loss

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "moe.json").read_text())
SCORES = {"softmax": "softmax", "sigmoid": "sigmoid", "sqrtsoftplus": "sqrtsoftplus"}


def _layer(**changes) -> MoE:
    torch.manual_seed(0)
    layer = MoE(
        12,
        MoEConfig(
            **{"n_routed_experts": 6, "topk": 2, "expert_width": 8, "shared_width": 8, **changes}
        ),
    )
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer


def _loop_over_experts(layer: MoE, hidden: torch.Tensor) -> torch.Tensor:
    tokens = hidden.flatten(0, 1)
    chosen, weights, _ = layer.router(tokens)
    output = layer.shared(tokens) if layer.shared is not None else torch.zeros_like(tokens)
    for expert in range(layer.config.n_routed_experts):
        for slot in range(layer.config.topk):
            rows = chosen[:, slot] == expert
            inner = swiglu(tokens[rows] @ layer.experts.gate_up[expert], clamp=layer.config.clamp)
            output[rows] = output[rows] + weights[rows, slot, None] * (
                inner @ layer.experts.down[expert]
            )
    return output.view_as(hidden)


@pytest.mark.parametrize(
    "case", GOLDEN["gate_cases"], ids=lambda c: f"{c['score_func']}-{c['bias'] is not None}"
)
def test_router_matches_the_golden_cases(case):
    weight = torch.tensor(GOLDEN["gate_weight"])
    config = MoEConfig(
        n_routed_experts=len(weight),
        topk=case["topk"],
        score=case["score_func"],
        norm_topk=case["norm_topk"],
        route_scale=case["route_scale"],
    )
    router = Router(weight.shape[1], config)
    router.weight.data = weight
    if case["bias"] is not None:
        router.bias = torch.tensor(case["bias"])
    chosen, weights, scores = router(torch.tensor(GOLDEN["x"]))
    torch.testing.assert_close(scores, torch.tensor(case["scores"]), atol=2e-6, rtol=1e-5)
    order, expected = chosen.argsort(dim=-1), torch.tensor(case["indices"])
    assert torch.equal(chosen.gather(-1, order), expected.sort(dim=-1).values)
    by_expert = torch.tensor(case["weights"]).gather(-1, expected.argsort(dim=-1))
    torch.testing.assert_close(weights.gather(-1, order), by_expert, atol=2e-6, rtol=1e-5)


def test_balancing_bias_moves_as_in_the_golden_update():
    case = GOLDEN["bias_update"]
    router = Router(
        4, MoEConfig(n_routed_experts=len(case["bias"]), bias_update_rate=case["speed"])
    )
    router.bias = torch.tensor(case["bias"])
    router.load = torch.tensor(case["counts"], dtype=torch.float32)
    router.update_balance()
    torch.testing.assert_close(router.bias, torch.tensor(case["new_bias"]))
    assert not router.load.any()


@pytest.mark.parametrize(("limit", "key"), [(None, "out_nolimit"), (1.0, "out_limit_1")])
def test_expert_clamp_matches_golden(limit, key):
    w1, w3, w2, x = (torch.tensor(GOLDEN["expert"][name]) for name in ("w1", "w3", "w2", "x"))
    output = swiglu(x @ torch.cat([w1, w3]).T, clamp=limit) @ w2.T
    torch.testing.assert_close(output, torch.tensor(GOLDEN["expert"][key]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"clamp": 0.5}, {"shared_width": 0}, {"score": "softmax", "topk": 1}]
)
def test_grouped_products_equal_a_loop_over_experts(changes):
    layer, hidden = _layer(**changes), torch.randn(2, 7, 12, requires_grad=True)
    output, _ = layer(hidden)
    reference = _loop_over_experts(layer, hidden)
    torch.testing.assert_close(output, reference, atol=1e-5, rtol=1e-5)
    probe = torch.randn_like(output)
    variables = [hidden, *layer.parameters()]
    ours = torch.autograd.grad((output * probe).sum(), variables, retain_graph=True)
    theirs = torch.autograd.grad((reference * probe).sum(), variables)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=2e-5, rtol=1e-4)


def test_an_expert_that_nobody_chooses_is_harmless():
    layer = _layer()
    layer.router.bias[3] = -100.0
    output, _ = layer(torch.randn(1, 5, 12))
    output.sum().backward()
    assert torch.isfinite(output).all() and not layer.experts.gate_up.grad[3].any()


def test_balance_loss_is_one_for_even_routing_and_larger_when_it_collapses():
    even = torch.full((1, 4, 4), 0.25)
    spread, same = torch.tensor([[[0], [1], [2], [3]]]), torch.zeros(1, 4, 1, dtype=torch.int64)
    collapsed = torch.tensor([0.97, 0.01, 0.01, 0.01]).expand(1, 4, 4)
    assert sequence_balance_loss(even, spread).item() == pytest.approx(1.0)
    assert sequence_balance_loss(collapsed, same).item() > 3.0


def test_tiny_scores_cannot_cheat_the_balance_loss():
    tiny = torch.full((1, 4, 4), 1e-30)
    spread = torch.tensor([[[0], [1], [2], [3]]])
    assert sequence_balance_loss(tiny, spread).item() == pytest.approx(1.0)


def test_balance_gradient_reaches_the_router_in_proportion_to_its_coefficient():
    hidden, gradients = torch.randn(2, 6, 12), []
    for coefficient in (0.1, 0.2):
        layer = _layer(sequence_loss=coefficient).train()
        layer(hidden)[1].backward()
        gradients.append(layer.router.weight.grad)
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(2 * gradients[0], gradients[1])


def test_padding_counts_neither_in_load_nor_in_the_balance_loss():
    layer, hidden = _layer(sequence_loss=0.1).train(), torch.randn(1, 5, 12)
    _, alone = layer(hidden)
    load = layer.router.load.clone()
    layer.router.load.zero_()
    padded = torch.cat([hidden, torch.randn(1, 3, 12)], dim=1)
    _, masked = layer(padded, torch.tensor([[True] * 5 + [False] * 3]))
    torch.testing.assert_close(alone, masked)
    assert torch.equal(load, layer.router.load)


def test_topk_above_the_expert_count_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"1\.\.n_routed_experts \(2\); got 3"):
        MoEConfig(n_routed_experts=2, topk=3)


def test_balancing_keeps_float32_when_a_model_is_narrowed():
    router = Router(8, MoEConfig(n_routed_experts=4, topk=1, expert_width=4))
    router.bias += 0.12345678
    narrowed = router.to(torch.bfloat16)
    assert narrowed.weight.dtype == torch.bfloat16
    assert narrowed.bias.dtype == narrowed.load.dtype == torch.float32
    assert narrowed.bias[0] == torch.tensor(0.12345678)
    assert set(narrowed.state_dict()) == {"weight", "bias"}
