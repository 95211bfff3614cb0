"""Anchors, slots, labels and masks: golden ones, and what may not be seen."""

import pytest
import torch

from engram_lab.draft.blocks import (
    UNSEEN,
    anchor_candidates,
    block_labels,
    sample_anchors,
    slot_positions,
    slot_tokens,
    training_bias,
    visible,
)
from engram_lab.draft.config import DraftConfig
from tests.draft.tiny import golden

GOLDEN = golden("anchor_mask")
LAYOUT, PACKED = GOLDEN["layout"], GOLDEN["packed_documents_variant"]
SEQ, BLOCK = GOLDEN["seq_len"], GOLDEN["block_size"]
LOSS_MASK = torch.tensor(GOLDEN["loss_mask"]).bool()
IDS = torch.arange(100, 100 + SEQ)[None]
ANCHORS = torch.tensor(LAYOUT["anchors"])
KEEP = torch.tensor(LAYOUT["block_keep"]).bool()


def config(**changes: object) -> DraftConfig:
    fields = {
        "vocab_size": 1000,
        "hidden_size": 4,
        "target_depth": 2,
        "target_layer_ids": (0,),
        "mask_token_id": 999,
        "block_size": BLOCK,
    }
    return DraftConfig(**fields | changes)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_candidates_are_golden():
    found = anchor_candidates(LOSS_MASK)
    assert found.int().tolist() == GOLDEN["candidate_mask"]
    assert found[0].nonzero()[:, 0].tolist() == GOLDEN["candidate_positions"]


def test_an_anchor_and_the_token_behind_it_are_of_one_document():
    documents = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]])
    found = anchor_candidates(LOSS_MASK, documents)[0].nonzero()[:, 0]
    assert found.tolist() == [3, 5, 6, 9]  # 4 is the last of its document


def test_enough_anchors_are_all_candidates_and_fillers_at_zero():
    anchors, keep = sample_anchors(anchor_candidates(LOSS_MASK), 16, seeded())
    wanted = GOLDEN["sampler_invariants"]["num_anchors_16"]
    assert anchors.tolist() == wanted["anchors"]
    assert keep.int().tolist() == wanted["keep"]


@pytest.mark.parametrize("seed", range(20))
def test_anchors_are_candidates_without_repeat_and_rise(seed: int):
    candidates = anchor_candidates(LOSS_MASK).repeat(3, 1)
    candidates[1, :5] = False  # leaves two
    candidates[2] = False
    anchors, keep = sample_anchors(candidates, 4, seeded(seed))
    assert keep.sum(1).tolist() == [4, 3, 0]
    for row in range(3):
        chosen = anchors[row][keep[row]]
        assert (chosen[1:] > chosen[:-1]).all()
        assert candidates[row][chosen].all()
        assert (anchors[row][~keep[row]] == 0).all()


def test_every_candidate_is_drawn_equally_often():
    candidates = anchor_candidates(LOSS_MASK).repeat(3000, 1)
    anchors, _ = sample_anchors(candidates, 2, seeded())
    counts = anchors.flatten().bincount(minlength=SEQ)[GOLDEN["candidate_positions"]]
    assert ((counts - 1200).abs() < 120).all()  # five deviations of a share of two in five


def test_a_text_of_one_token_has_no_anchor():
    anchors, keep = sample_anchors(torch.zeros(2, 0, dtype=torch.bool), 3, seeded())
    assert anchors.tolist() == [[0] * 3] * 2
    assert not keep.any()


def test_at_least_one_anchor_must_be_asked_for():
    with pytest.raises(ValueError, match="at least 1; got 0"):
        sample_anchors(anchor_candidates(LOSS_MASK), 0, seeded())


def test_slots_are_golden():
    tokens = slot_tokens(IDS, ANCHORS, config())
    wanted = torch.tensor(LAYOUT["draft_input_ids_mask999_tokens100plus"])
    kept = KEEP.repeat_interleave(BLOCK, dim=1)  # what stands in a filler has no meaning
    assert (tokens[kept] == wanted[kept]).all()
    assert slot_positions(ANCHORS, config()).tolist() == LAYOUT["draft_position_ids"]


def test_labels_rows_and_supervision_are_golden():
    labels = block_labels(IDS, LOSS_MASK, ANCHORS, KEEP, BLOCK)
    assert labels.tokens.tolist() == LAYOUT["target_ids"]
    assert labels.rows.tolist() == LAYOUT["target_logit_row_indices"]
    assert labels.supervised.int().tolist() == LAYOUT["eval_mask"]


def test_supervision_ends_with_the_anchors_document():
    everything = torch.ones(1, SEQ, dtype=torch.bool)
    documents = torch.tensor([[0] * 6 + [1] * 6])
    labels = block_labels(IDS, everything, ANCHORS, KEEP, BLOCK, documents)
    assert labels.supervised[0].sum(-1).tolist() == [2, 4, 2, 0]


def test_nothing_behind_an_unsupervised_draft_counts():
    holed = torch.ones(1, SEQ, dtype=torch.bool)
    holed[0, 5] = False
    labels = block_labels(IDS, holed, torch.tensor([[3]]), torch.ones(1, 1, dtype=torch.bool), 4)
    assert labels.supervised[0, 0].tolist() == [True, False, False, False]


def test_the_mask_is_golden():
    key = "attention_mask_rows_are_queries_cols_are_context_then_blocks"
    assert visible(ANCHORS, KEEP, config(), SEQ)[0].int().tolist() == LAYOUT[key]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("full", {}),
        ("window3_causal_block", {"sliding_window": 3, "causal_block": True}),
        ("window3_noncausal_block", {"sliding_window": 3}),
    ],
)
def test_masks_of_packed_documents_and_windows_are_golden(name: str, changes: dict):
    anchors = torch.tensor([PACKED["anchors"]])
    documents = torch.tensor([PACKED["document_ids"]])
    keep = torch.ones_like(anchors, dtype=torch.bool)
    seen = visible(anchors, keep, config(**changes), SEQ, documents)
    assert seen[0].int().tolist() == PACKED["masks"][name]


def test_the_bias_hides_what_is_not_visible_and_adds_nothing_else():
    seen = visible(ANCHORS, KEEP, config(), SEQ)
    bias = training_bias(ANCHORS, KEEP, config(), SEQ)
    assert bias.shape == (1, 1, 4 * BLOCK, SEQ + 4 * BLOCK)
    assert (bias[:, 0][seen] == 0).all()
    assert (bias[:, 0][~seen] == UNSEEN).all()


def test_the_anchors_own_state_is_hidden_since_decoding_does_not_have_it():
    seen = visible(torch.tensor([[5]]), torch.ones(1, 1, dtype=torch.bool), config(), SEQ)
    assert seen[0, :, :SEQ].sum(-1).tolist() == [5] * BLOCK


def test_the_longer_layout_has_a_slot_more_and_the_same_labels():
    longer = config(sample_from_anchor=False)
    tokens = slot_tokens(IDS, ANCHORS[:, :1], longer)
    assert tokens.tolist() == [[103, 999, 999, 999, 999]]
    assert slot_positions(ANCHORS[:, :1], longer).tolist() == [[3, 4, 5, 6, 7]]
    assert visible(ANCHORS, KEEP, longer, SEQ).shape == (1, 20, SEQ + 20)
