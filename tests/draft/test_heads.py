"""The heads: golden logits, chains and confidences; what each of them may know."""

import numpy as np
import pytest
import torch

from engram_lab.draft.config import MARKOV_HEADS, DraftConfig
from engram_lab.draft.heads import ConfidenceHead, MarkovHead, markov_head
from engram_lab.draft.schedule import Threshold
from tests.draft.tiny import golden

MARKOV, CONFIDENCE = golden("markov"), golden("confidence")
BASE = torch.tensor(MARKOV["base_logits"])
HIDDEN = torch.tensor(MARKOV["hidden_states"])
PREVIOUS = torch.tensor(MARKOV["prev_token_ids"])
each_head = pytest.mark.parametrize("kind", MARKOV_HEADS)


def config(**changes: object) -> DraftConfig:
    fields = {
        "vocab_size": 7,
        "hidden_size": 4,
        "target_depth": 2,
        "target_layer_ids": (0,),
        "mask_token_id": 6,
        "block_size": 4,
        "markov_rank": 3,
    }
    return DraftConfig(**fields | changes)


def golden_head(kind: str) -> MarkovHead:
    head = markov_head(config(markov_head_type=kind))
    weights = MARKOV["heads"][kind]["weights"]
    head.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    return head


@each_head
def test_known_tokens_give_the_golden_logits(kind: str):
    logits = BASE + golden_head(kind)(PREVIOUS, HIDDEN)
    wanted = torch.tensor(MARKOV["heads"][kind]["teacher_forced_logits"])
    assert torch.allclose(logits, wanted, atol=1e-5)


@each_head
def test_the_bias_of_the_first_slot_is_golden(kind: str):
    bias, _ = golden_head(kind).step(PREVIOUS[..., 0], HIDDEN[..., 0, :], None)
    wanted = torch.tensor(MARKOV["heads"][kind]["step_bias_slot0"])
    assert torch.allclose(bias, wanted, atol=1e-5)


@each_head
def test_the_greedy_chain_is_golden(kind: str):
    wanted = MARKOV["heads"][kind]["greedy_block0"]
    head, state = golden_head(kind), None
    previous = torch.tensor(wanted["first_prev_token_ids"])
    tokens, read = [], []
    for slot in range(4):
        read.append(int(previous))
        bias, state = head.step(previous, HIDDEN[:, 0, slot], state)
        logits = BASE[:, 0, slot] + bias
        golden_logits = torch.tensor(wanted["corrected_logits"])[:, slot]
        assert torch.allclose(logits, golden_logits, atol=1e-5)
        previous = logits.argmax(-1)
        tokens.append(int(previous))
    assert tokens == wanted["tokens"][0]
    assert read == wanted["prev_chain"]


def test_the_states_of_the_recurrent_head_are_golden():
    wanted = torch.tensor(MARKOV["heads"]["rnn"]["states_after_each_slot"])
    head, state = golden_head("rnn"), None
    for slot in range(4):
        _, state = head.latent(head.embed(PREVIOUS[..., slot]), HIDDEN[..., slot, :], state)
        assert torch.allclose(state, wanted[..., slot, :], atol=1e-5)


def test_the_gate_is_golden():
    head = golden_head("gated")
    embedded = head.embed(PREVIOUS)
    latent, _ = head.latent(embedded, HIDDEN, None)
    wanted = torch.tensor(MARKOV["heads"]["gated"]["gate"])
    assert torch.allclose(latent, wanted * embedded, atol=1e-5)


@each_head
def test_step_by_step_and_all_at_once_agree(kind: str):
    head, state = golden_head(kind), None
    together = head(PREVIOUS, HIDDEN)
    for slot in range(4):
        bias, state = head.step(PREVIOUS[..., slot], HIDDEN[..., slot, :], state)
        assert torch.allclose(bias, together[..., slot, :], atol=1e-6)


@each_head
def test_a_slot_depends_on_the_token_before_it_and_on_no_later_one(kind: str):
    head = golden_head(kind)
    changed = PREVIOUS.clone()
    changed[..., 2] = (changed[..., 2] + 1) % 7
    moved = (head(changed, HIDDEN) != head(PREVIOUS, HIDDEN)).any(-1)
    assert not moved[..., :2].any()
    assert moved[..., 2].all()
    assert bool(moved[..., 3].any()) == (kind == "rnn")  # only a carried state remembers it


@each_head
def test_a_fresh_head_leaves_the_logits_alone(kind: str):
    assert (markov_head(config(markov_head_type=kind))(PREVIOUS, HIDDEN) == 0).all()


def test_rank_zero_is_no_head():
    assert markov_head(config(markov_rank=0)) is None


@pytest.mark.parametrize("part", ["with_markov", "without_markov"])
def test_confidences_are_golden(part: str):
    rank = 3 if part == "with_markov" else 0
    head = ConfidenceHead(config(markov_rank=rank, confidence=True))
    wanted = CONFIDENCE[part]
    weights = {f"proj.{name}": torch.tensor(wanted[name]) for name in ("weight", "bias")}
    head.load_state_dict(weights)
    hidden = torch.tensor(CONFIDENCE["hidden_states"])
    table = torch.tensor(CONFIDENCE["markov_w1"])
    embedded = table[torch.tensor(CONFIDENCE["prev_token_ids"])] if rank else None
    logits = head(hidden, embedded)
    assert torch.allclose(logits, torch.tensor(wanted["logits"]), atol=1e-5)
    if rank:
        chances = torch.tensor(wanted["conditional_prob"])
        survival = torch.tensor(wanted["prefix_survival"])
        assert torch.allclose(logits.sigmoid(), chances, atol=1e-5)
        assert torch.allclose(logits.sigmoid().cumprod(-1), survival, atol=1e-5)


@pytest.mark.parametrize("threshold", CONFIDENCE["threshold_prefix_length"]["per_block"])
def test_thresholds_cut_blocks_where_the_golden_rule_does(threshold: str):
    chances = np.array(CONFIDENCE["with_markov"]["conditional_prob"])[0]
    lengths = Threshold(threshold=float(threshold))(chances)
    assert lengths.tolist() == CONFIDENCE["threshold_prefix_length"]["per_block"][threshold]


@pytest.mark.parametrize("detached", [False, True])
def test_the_gradient_of_confidence_reaches_the_backbone_only_if_wanted(detached: bool):
    head = ConfidenceHead(config(confidence=True, confidence_detach=detached))
    hidden, embedded = HIDDEN.clone().requires_grad_(), torch.randn(1, 2, 4, 3, requires_grad=True)
    head(hidden, embedded).sum().backward()
    assert (hidden.grad is None) == (embedded.grad is None) == detached
    assert head.proj.weight.grad is not None
