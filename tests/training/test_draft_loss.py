"""The drafter's loss: golden values of both conventions, and where its gradient goes."""

import json
from pathlib import Path

import pytest
import torch

from engram_lab.training.draft_loss import (
    DISTANCES,
    DraftLossConfig,
    dflash_loss,
    distance,
    slot_loss,
)

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/dspark_loss.json").read_text())
OTHER = GOLDEN["speculators_variant"]
TARGET = torch.tensor(GOLDEN["target_logits"])
TOKENS = torch.tensor(GOLDEN["target_ids"])
SUPERVISED = torch.tensor(GOLDEN["eval_mask"]).bool()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    draft = torch.tensor(GOLDEN["draft_logits"], requires_grad=True)
    return draft, torch.tensor(GOLDEN["confidence_logits"], requires_grad=True)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_losses_and_gradients_are_those_of_the_reference(case: dict) -> None:
    args = case["args"]
    config = DraftLossConfig(
        cross_entropy=args["ce_loss_alpha"],
        distribution=args["l1_loss_alpha"],
        confidence=args["confidence_head_alpha"],
        loss_decay_gamma=args["loss_decay_gamma"],
    )
    draft, confidence = inputs()
    found = slot_loss(draft, TARGET, TOKENS, SUPERVISED, confidence, config=config)
    found.total.backward()
    torch.testing.assert_close(found.total.item(), case["loss"], atol=1e-5, rtol=0)
    torch.testing.assert_close(
        draft.grad, torch.tensor(case["grad_draft_logits"]), atol=1e-6, rtol=0
    )
    if config.confidence:
        wanted = torch.tensor(case["grad_confidence_logits"])
        torch.testing.assert_close(confidence.grad, wanted, atol=1e-6, rtol=0)


def test_watched_values_are_those_of_the_reference() -> None:
    found = slot_loss(inputs()[0], TARGET, TOKENS, SUPERVISED, config=DraftLossConfig())
    wanted = GOLDEN["tau_probabilistic"]["mean"]
    assert found.terms["accepted_length"].item() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("case", OTHER["cases"], ids=lambda case: case["name"])
def test_the_second_convention_is_that_of_its_reference(case: dict) -> None:
    kinds = {"kl_div": (0.0, 1.0, "kl"), "ce": (1.0, 0.0, "kl")}
    ce, weight, kind = kinds.get(case["loss_fn"], (0.1, 0.9, "tv"))
    config = DraftLossConfig(
        convention="speculators",
        cross_entropy=ce,
        distribution=weight,
        distance=kind,
        dpace=case["per_position_loss_weight"] == "dpace",
    )
    # in the layout with one slot more, the anchor's own slot predicts nothing and is dropped
    slots = slice(0 if case["sample_from_anchor"] else 1, None)
    draft, confidence = inputs()
    found = slot_loss(
        draft[:, :, slots],
        TARGET[:, :, slots],
        TOKENS[:, :, slots],
        torch.tensor([case["mask"]]).bool()[:, :, slots],
        confidence[:, :, slots],
        config=config,
    )
    assert found.total.item() == pytest.approx(case["loss"], abs=1e-5)
    metrics = case["metrics"]
    rate = metrics["accept_rate_sum"] / metrics["accept_rate_total"]
    assert found.terms["accept_rate"].item() == pytest.approx(rate, abs=1e-5)


@pytest.mark.parametrize("name", ["kl", "tv", "nla", "lk_hybrid"])
def test_distances_are_those_of_the_second_reference(name: str) -> None:
    stored = {"lk_hybrid": "lk_hybrid_eta3"}.get(name, name)
    logits = inputs()[0].detach()
    draft, log_draft = logits.softmax(-1), logits.log_softmax(-1)
    found = distance(name, draft, log_draft, TARGET.softmax(-1))[0]
    torch.testing.assert_close(found, torch.tensor(OTHER["per_slot"][stored]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", DISTANCES)
def test_every_distance_is_zero_for_equal_distributions_and_positive_else(kind: str) -> None:
    logits = inputs()[0].detach()
    draft, log_draft = logits.softmax(-1), logits.log_softmax(-1)
    assert distance(kind, draft, log_draft, draft).abs().max() < 1e-5
    other = distance(kind, draft, log_draft, TARGET.softmax(-1))
    assert (other[0, 1] > 0).all()


def test_slot_zero_is_trained_and_weighs_most() -> None:
    draft, _ = inputs()
    slot_loss(draft, TARGET, TOKENS, SUPERVISED, config=DraftLossConfig()).total.backward()
    assert draft.grad[0, 1, 0].abs().sum() > draft.grad[0, 1, 1].abs().sum() > 0
    assert draft.grad[0, 2].abs().sum() == 0  # nothing of that block counts


def test_the_target_and_the_label_of_the_confidence_carry_no_gradient() -> None:
    draft, confidence = inputs()
    target = TARGET.clone().requires_grad_()
    config = DraftLossConfig(cross_entropy=0.0, distribution=0.0)
    slot_loss(draft, target, TOKENS, SUPERVISED, confidence, config=config).total.backward()
    assert target.grad is None
    assert draft.grad is None or draft.grad.abs().sum() == 0
    assert confidence.grad.abs().sum() > 0


def test_the_loss_of_the_parallel_relative_is_cross_entropy_alone() -> None:
    found = slot_loss(inputs()[0], TARGET, TOKENS, SUPERVISED, config=dflash_loss())
    assert found.total.item() == pytest.approx(found.terms["cross_entropy"].item())
    assert "distance" not in found.terms


@pytest.mark.parametrize(
    "changes, names",
    [
        ({"cross_entropy": -1.0}, "cross_entropy.*-1"),
        ({"loss_decay_gamma": 0.0}, "loss_decay_gamma.*0"),
        ({"num_anchors": 0}, "num_anchors.*0"),
    ],
)
def test_a_loss_that_makes_no_sense_is_refused(changes: dict, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        DraftLossConfig(**changes)
