"""Losses of drafters that read their own output, against the reference's numbers and by hand."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from engram_lab.draft.target import Pass
from engram_lab.training.draft_loss import DraftBatch
from engram_lab.training.unrolled_loss import (
    eagle_loss,
    joint_loss,
    label_masks,
    mtp_loss,
    state_masks,
    step_weights,
    trunk_pass,
    unrolled_loss,
)
from tests.draft.drafters import BLOCK, VOCAB, eagle, mtp, tiny_lm

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden/dspark_metrics.json").read_text(encoding="utf-8")
)
TTT = GOLDEN["eagle3_ttt"]
UNUSED = torch.Generator()


def texts(*, packed: bool = False) -> DraftBatch:
    ids = torch.randint(VOCAB, (2, 14), generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(2, 14, dtype=torch.bool)
    mask[0, 4:], mask[1, 6:11] = True, True
    documents = torch.tensor([[0] * 8 + [1] * 6, [0] * 14]) if packed else None
    return DraftBatch(token_ids=ids, loss_mask=mask, document_ids=documents)


def test_masks_losses_and_counts_of_eagle_are_the_golden_ones() -> None:
    masks = state_masks(torch.tensor(TTT["loss_mask"]).bool(), TTT["ttt_length"])
    for step, expected in enumerate(TTT["position_masks"]):
        assert masks[:, step].long().tolist() == expected
    logits = [torch.tensor(step) for step in TTT["draft_logits_per_step"]]
    valid = [step[masks[:, index]] for index, step in enumerate(logits)]
    weights = [TTT["step_loss_decay"] ** step for step in range(3)]
    loss = unrolled_loss(valid, torch.tensor(TTT["target_logits"]), masks, weights=weights)
    assert loss.total.item() == pytest.approx(TTT["total_loss"], abs=1e-5)
    losses = [loss.terms[f"cross_entropy@{step}"].item() for step in range(3)]
    expected = TTT["step_losses_sum_over_positions_divided_by_BT"]
    assert losses == pytest.approx(expected, abs=1e-5)
    metrics = TTT["metrics"]
    named = {
        f"{name}@{step}": f"{name}@{step}"
        for name in ("accuracy", "accept_rate")
        for step in range(3)
    }
    named |= {"tau_greedy": "accepted_length_greedy", "tau_probabilistic": "accepted_length"}
    for golden, ours in named.items():
        total, count = metrics[golden]
        assert loss.terms[ours].item() == pytest.approx(total / count, abs=1e-5)


def test_step_weights_are_the_golden_ones() -> None:
    assert step_weights(0.6, 3) == pytest.approx(GOLDEN["mtp"]["step_weights_beta0.6_K3"], abs=1e-6)


def test_states_of_another_document_or_behind_the_end_do_not_count() -> None:
    batch = texts(packed=True)
    masks = state_masks(batch.loss_mask, 2, batch.document_ids)
    assert masks[0, 0].nonzero()[:, 0].tolist() == [4, 5, 6, 8, 9, 10, 11, 12]
    assert masks[0, 1].nonzero()[:, 0].tolist() == [3, 4, 5, 8, 9, 10, 11]
    assert masks[1, 1].nonzero()[:, 0].tolist() == [5, 6, 7, 8]


def test_labels_count_from_the_token_behind_the_answers_first() -> None:
    batch = texts(packed=True)
    masks = label_masks(batch.loss_mask, 2, batch.document_ids)
    # step 0 at t: tokens t + 1 (the anchor) and t + 2 (the label) are the target's
    assert masks[0, 0].nonzero()[:, 0].tolist() == [3, 4, 5, 8, 9, 10, 11]
    assert masks[0, 1].nonzero()[:, 0].tolist() == [3, 4, 8, 9, 10]
    assert masks[1, 0].nonzero()[:, 0].tolist() == [5, 6, 7, 8]
    assert not label_masks(batch.loss_mask[:, :2], 3).any()


def test_the_loss_of_mtp_is_the_weighted_mean_of_its_steps_by_hand() -> None:
    drafter, batch = mtp(tiny_lm(memory=False)), texts()
    read = drafter.target.read(batch.token_ids)
    loss = mtp_loss(drafter, read, batch, UNUSED)
    steps = drafter.unroll(read.final, drafter.target.embed(batch.token_ids))
    expected = 0.0
    for step, hidden in enumerate(steps):
        logits, labels = drafter.target.head(hidden), batch.token_ids[:, 2 + step :]
        # rows of the first text from its prompt's last token on, of the second likewise
        ends = ((3, 12 - step), (5, 9 - step))
        chosen = [logits[row, start:end] for row, (start, end) in enumerate(ends)]
        wanted = [labels[row, start:end] for row, (start, end) in enumerate(ends)]
        value = F.cross_entropy(torch.cat(chosen), torch.cat(wanted))
        torch.testing.assert_close(loss.terms[f"cross_entropy@{step}"], value)
        expected = expected + step_weights(0.6, BLOCK)[step] * value
    torch.testing.assert_close(loss.total, expected)


@pytest.mark.parametrize(("make", "loss_of"), [(eagle, eagle_loss), (mtp, mtp_loss)])
@pytest.mark.parametrize("packed", [False, True])
def test_a_gradient_reaches_all_of_the_drafter_and_nothing_of_the_target(
    make: object, loss_of: object, packed: bool
) -> None:
    model = tiny_lm()
    drafter, batch = make(model), texts(packed=packed)
    read = drafter.target.read(batch.token_ids, document_ids=batch.document_ids)
    loss_of(drafter, read, batch, UNUSED).total.backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0
        for parameter in drafter.parameters()
    )
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("make", "loss_of"), [(eagle, eagle_loss), (mtp, mtp_loss)])
def test_overfitting_one_text_makes_every_step_accept(make: object, loss_of: object) -> None:
    model = tiny_lm(memory=False)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(50)  # a fresh head can say nothing for sure
    drafter = make(model)
    ids = torch.randint(VOCAB, (1, 10), generator=torch.Generator().manual_seed(1))
    batch = DraftBatch(token_ids=ids, loss_mask=torch.ones(1, 10, dtype=torch.bool))
    read = drafter.target.read(ids)
    sure = 20 * F.one_hot(torch.roll(ids, -1, dims=1), VOCAB).float()  # of the text's next token
    read = Pass(logits=sure, features=read.features, final=read.final)
    optimizer = torch.optim.Adam(drafter.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        loss = loss_of(drafter, read, batch, UNUSED)
        loss.total.backward()
        optimizer.step()
    # the last two starts of the text have one step and two: 7 or 6 whole blocks of three
    starts = 9 if loss_of is eagle_loss else 8
    whole = 1 + (BLOCK * (starts - 2) + 3) / starts
    assert loss.terms["accepted_length"] > 0.95 * whole


def test_joint_training_moves_the_trunk_only_where_its_pass_has_a_gradient() -> None:
    model = tiny_lm()
    drafter, batch = mtp(model), texts(packed=True)
    frozen = drafter.target.read(batch.token_ids, document_ids=batch.document_ids)
    live = trunk_pass(drafter.target, batch)
    torch.testing.assert_close(live.final.detach(), frozen.final)
    loss = joint_loss(drafter, live, batch, UNUSED)
    torch.testing.assert_close(loss.total.detach(), loss.terms["trunk"] + 0.3 * loss.terms["mtp"])
    torch.testing.assert_close(loss.terms["mtp"], mtp_term(drafter, frozen, batch))
    loss.total.backward()
    block = next(drafter.target.anatomy.blocks[0].parameters())
    assert block.grad.abs().sum() > 0
    model.zero_grad(set_to_none=True)
    joint_loss(drafter, frozen, batch, UNUSED).total.backward()
    assert block.grad is None
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0  # shared in earnest


def mtp_term(drafter: object, read: object, batch: DraftBatch) -> torch.Tensor:
    return mtp_loss(drafter, read, batch, UNUSED).terms["cross_entropy@0"]
