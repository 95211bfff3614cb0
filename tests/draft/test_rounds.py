"""Counts of rounds: golden summaries, frames, times, and the formulas that go with them."""

import math

import numpy as np
import pytest
import torch

from engram_lab.draft.breakeven import break_even_length, expected_accepted_length, speed_up
from engram_lab.draft.rounds import Generation, Round
from engram_lab.draft.verify import Proposal
from engram_lab.probes.acceptance import acceptance_frame
from tests.draft.tiny import golden

GOLDEN = golden("metrics")


def golden_generation() -> Generation:
    """The golden rounds of two responses, as a batch would have lived through them."""
    rounds = []
    responses = GOLDEN["rounds"]
    for step in range(max(len(each["acceptance_lengths"]) for each in responses)):
        here = [i for i, each in enumerate(responses) if step < len(each["acceptance_lengths"])]
        emitted = [responses[i]["acceptance_lengths"][step] for i in here]
        accepted = [responses[i]["accepted_draft_lengths"][step] for i in here]
        stopped = [gained == kept for gained, kept in zip(emitted, accepted, strict=True)]
        rounds.append(
            Round(
                sequences=here,
                proposal=Proposal(tokens=torch.arange(4).repeat(len(here), 1)),
                accepted=torch.tensor(accepted),
                emitted=emitted,
                stopped=stopped,
                expected=torch.full((len(here), 4), 0.5),
                draft_seconds=0.25,
                verify_seconds=0.75,
            )
        )
    return Generation(
        token_ids=[torch.zeros(9, dtype=torch.int64)] * 2,
        rounds=rounds,
        block_size=4,
        seconds=6.0,
        prefill_seconds=2.0,
    )


def test_the_frame_has_the_golden_rounds():
    frame = golden_generation().frame()
    for index, response in enumerate(GOLDEN["rounds"]):
        rows = frame[frame["sequence"] == index]
        assert rows["emitted"].tolist() == response["acceptance_lengths"]
        assert rows["proposed"].tolist() == response["proposal_lengths"]
        assert rows["accepted"].tolist() == response["accepted_draft_lengths"]
        assert rows["round"].tolist() == list(range(len(rows)))


def test_the_summary_is_golden():
    frame, wanted = golden_generation().frame(), GOLDEN["summary"]
    assert len(frame) == wanted["proposal_count"]
    assert frame["emitted"].sum() == wanted["acceptance_length_sum"]
    assert frame["proposed"].sum() == wanted["proposal_length_sum"]
    for k in range(4):
        assert (frame["proposed"] > k).sum() == wanted["proposals_at_pos"][k]
        assert (frame["accepted"] > k).sum() == wanted["accepted_at_pos"][k]


def test_rates_and_lengths_are_golden():
    generation = golden_generation()
    frame, wanted = generation.frame(), GOLDEN["row"]
    assert generation.accepted_length == pytest.approx(wanted["acceptance_length"], abs=1e-6)
    verified = frame["proposed"].sum() + len(frame)  # the anchor's row is verified too
    assert frame["emitted"].sum() / verified == pytest.approx(wanted["verify_rate"], abs=1e-6)
    assert frame["proposed"].mean() == pytest.approx(wanted["draft_tokens_per_proposal"], abs=1e-6)
    drafts = generation.positions()
    survival = drafts.groupby("position")["accepted"].mean()
    assert np.allclose(survival, wanted["accept_rates_by_position"], atol=1e-6)


def test_conditional_acceptance_is_golden_in_both_ways():
    rates = acceptance_frame([golden_generation()])
    exact = GOLDEN["conditional_acceptance_exact_denominator"]
    assert np.allclose(rates["conditional_rate"], exact, atol=1e-6)
    kept = rates["accepted"]  # the other way divides by all that survived, also where none followed
    counts = kept / kept.shift(fill_value=len(golden_generation().frame()))
    assert np.allclose(counts, GOLDEN["conditional_acceptance_ratio_of_counts"], atol=1e-6)


def test_drafts_behind_a_stop_token_are_in_no_frame():
    generation = golden_generation()
    last = generation.positions().query("sequence == 1").groupby("round").size()
    assert last.iloc[-1] == 2
    (ended,) = generation.frame().query("stopped").itertuples()
    assert (ended.proposed, ended.accepted, ended.emitted) == (2, 2, 2)


def test_positions_name_tokens_chances_and_missing_confidences():
    drafts = golden_generation().positions()
    assert drafts["position"].min() == 1
    assert (drafts["token"] == drafts["position"] - 1).all()
    assert (drafts["expected"] == 0.5).all()
    assert drafts["logit"].isna().all()


def test_speed_leaves_prefill_out():
    assert golden_generation().tokens_per_s == pytest.approx(17 / 4)


def test_a_generation_without_rounds_has_columns_and_no_numbers():
    empty = Generation(
        token_ids=[torch.tensor([1])], rounds=[], block_size=4, seconds=1.0, prefill_seconds=1.0
    )
    assert list(empty.frame()) == [
        "sequence",
        "round",
        "proposed",
        "accepted",
        "emitted",
        "stopped",
    ]
    assert "logit" in empty.positions()
    assert math.isnan(empty.accepted_length)
    assert math.isnan(empty.tokens_per_s)


FIGURE = GOLDEN["tau_from_conditional"]["fig2_check"]


@pytest.mark.parametrize(
    ("domain", "drafter"), [(d, n) for d, drafters in FIGURE.items() for n in drafters]
)
def test_the_papers_conditional_rates_give_its_accepted_lengths(domain: str, drafter: str):
    case = FIGURE[domain][drafter]
    found = expected_accepted_length(np.array(case["conditional"]))
    assert found == pytest.approx(case["tau"], abs=1e-5)


@pytest.mark.parametrize(
    "case",
    GOLDEN["geometric"],
    ids=str,
)
def test_a_constant_rate_gives_the_geometric_sum(case: dict):
    found = expected_accepted_length(np.full(case["gamma"], case["alpha"]))
    assert found == pytest.approx(case["tau"], abs=1e-5)


@pytest.mark.parametrize("case", GOLDEN["mtp"]["mtp1_tau"], ids=str)
def test_one_draft_gains_its_chance(case: dict):
    assert expected_accepted_length(np.array([case["alpha"]])) == pytest.approx(case["tau"])


def test_the_latency_example_is_golden():
    example = GOLDEN["latency_model"]["example"]
    times = {
        "plain": example["T_target_1tok_ms"],
        "draft": example["T_draft_ms"],
        "verify": example["T_verify_ms"],
    }
    gained = example["tau"]
    assert speed_up(gained, **times) == pytest.approx(example["speedup"], abs=1e-6)
    latency = (times["draft"] + times["verify"]) / gained
    assert latency == pytest.approx(example["L_ms"], abs=1e-5)
    assert break_even_length(**times) == pytest.approx(1.2)
