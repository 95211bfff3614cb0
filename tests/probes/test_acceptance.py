"""Rates of acceptance, from rounds that are known."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from engram_lab.draft.rounds import Generation, Round
from engram_lab.draft.verify import Proposal
from engram_lab.probes.acceptance import (
    acceptance_frame,
    accepted_lengths,
    beside_published,
    confidence_records,
    position_rates,
)

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/dspark_metrics.json").read_text())


def generation(rounds: list[dict], *, confidence: bool = True) -> Generation:
    """One response from the reference's lists of a round each."""
    entries = []
    for accepted, proposed in rounds:
        block = torch.zeros(1, proposed)
        entries.append(
            Round(
                sequences=[0],
                proposal=Proposal(
                    tokens=torch.zeros(1, proposed, dtype=torch.int64),
                    confidence=block if confidence else None,
                ),
                accepted=torch.tensor([accepted]),
                emitted=[accepted + 1],
                stopped=[False],
                expected=block + 0.5,
                draft_seconds=0.0,
                verify_seconds=0.0,
            )
        )
    tokens = [torch.arange(sum(a + 1 for a, _ in rounds))]
    return Generation(
        token_ids=tokens, rounds=entries, block_size=4, seconds=1.0, prefill_seconds=0.0
    )


def golden_generations() -> list[Generation]:
    return [
        generation(list(zip(r["accepted_draft_lengths"], r["proposal_lengths"], strict=True)))
        for r in GOLDEN["rounds"]
    ]


def test_the_published_curve_stands_beside_every_position_that_it_has() -> None:
    own = pd.DataFrame({"position": [2, 1, 8], "conditional_rate": [0.5, 0.6, 0.7]})
    beside = beside_published(own, "DFlash")
    assert beside["position"].tolist() == [2, 1, 8]
    assert beside["conditional_rate"].tolist() == [0.5, 0.6, 0.7]
    assert beside["published_math"].tolist()[:2] == [0.827, 0.885]
    assert beside["published_chat"].tolist()[:2] == [0.6479, 0.7181]
    assert beside.loc[2, ["published_math", "published_code", "published_chat"]].isna().all()
    assert set(beside["published_drafter"]) == {"DFlash"}
    assert set(beside["published_kind"]) == {"digitised"}
    assert beside_published(own)["published_math"].tolist()[:2] == [0.8899, 0.9053]


def test_a_drafter_of_which_nothing_is_published_is_refused() -> None:
    with pytest.raises(ValueError, match="published of DFlash, Eagle3, DSpark; got 'lookup'"):
        beside_published(pd.DataFrame({"position": [1]}), "lookup")


def test_counts_and_rates_are_those_of_the_reference() -> None:
    frame = acceptance_frame(golden_generations())
    summary = GOLDEN["summary"]
    assert frame["offered"].tolist() == summary["proposals_at_pos"]
    assert frame["accepted"].tolist() == summary["accepted_at_pos"]
    survival = GOLDEN["row"]["accept_rates_by_position"]
    assert frame["survival"].tolist() == pytest.approx(survival, abs=1e-6)
    exact = GOLDEN["conditional_acceptance_exact_denominator"]
    assert frame["conditional_rate"].tolist() == pytest.approx(exact, abs=1e-6)
    assert (frame["expected_rate"] == 0.5).all()


def test_accepted_lengths_add_up() -> None:
    frame = accepted_lengths(generation([(2, 4), (0, 4), (4, 4)]))
    assert frame.to_dict("list") == {
        "sequence": [0],
        "rounds": [3],
        "emitted": [9],
        "accepted_length": [3.0],
    }


def test_confidence_records_say_how_far_each_round_came() -> None:
    frame = confidence_records(generation([(1, 2), (2, 2)]))
    assert frame["round"].tolist() == [0, 0, 1, 1]
    assert frame["position"].tolist() == [1, 2, 1, 2]
    assert frame["accepted"].tolist() == [1, 1, 2, 2]


def test_a_position_that_was_never_reached_has_no_rate() -> None:
    frame = acceptance_frame([generation([(0, 2)])])
    assert frame["reached"].tolist() == [1, 0]
    assert pd.isna(frame["conditional_rate"].iloc[1])


def test_rates_need_a_draft_lengths_a_round_and_records_a_confidence() -> None:
    with pytest.raises(ValueError, match="verified a draft"):
        acceptance_frame([])
    empty = Generation(token_ids=[], rounds=[], block_size=0, seconds=1.0, prefill_seconds=0.0)
    with pytest.raises(ValueError, match="at least one round"):
        accepted_lengths(empty)
    with pytest.raises(ValueError, match="confidence head"):
        confidence_records(generation([(1, 2)], confidence=False))


def test_rates_of_joined_frames_are_rates_of_all_rounds() -> None:
    frames = [g.positions() for g in golden_generations()]
    pd.testing.assert_frame_equal(
        position_rates(pd.concat(frames, ignore_index=True)), acceptance_frame(golden_generations())
    )
