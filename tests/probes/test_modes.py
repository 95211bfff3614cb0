"""Acceptance behind cues: ideal drafters reach what is known, others do not."""

import pytest
import torch

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.target import Target
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.probes.modes import mode_frame
from engram_lab.tokens.replies import RepliesConfig, replies

RULES = RepliesConfig(cues=3, modes=2, document_length=40)
DOCUMENTS = replies(RULES, 400, 0)


def pair(block_size: int = 4, **heads: object) -> tuple[Drafter, Target]:
    torch.manual_seed(0)
    model = EngramLM(
        EngramLMConfig(
            vocab_size=RULES.vocab_size,
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=32,
        )
    ).eval()
    target = Target(model, (0, 1))
    config = DraftConfig(
        vocab_size=RULES.vocab_size,
        hidden_size=16,
        target_depth=3,
        target_layer_ids=(0, 1),
        mask_token_id=3,
        block_size=block_size,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_size=8,
        intermediate_size=32,
        **heads,
    )
    return Drafter(config, target).eval(), target


@pytest.mark.parametrize(
    "heads, across",
    [({}, 0.5), ({"markov_rank": 4}, 0.5), ({"markov_rank": 4, "markov_head_type": "rnn"}, 1.0)],
)
def test_the_frame_knows_what_each_head_could_reach(heads: dict, across: float) -> None:
    drafter, target = pair(**heads)
    frame = mode_frame(drafter, target, RULES, DOCUMENTS)
    assert frame["position"].tolist() == [1, 2, 1, 2, 3]
    assert frame["acceptance"].between(0, 1).all()
    assert frame["ideal"].iloc[-1] == across
    assert frame["blocks"].min() > 5


def test_a_drafter_with_the_targets_own_logits_is_always_kept(monkeypatch) -> None:
    drafter, target = pair()
    plain = Drafter.forward

    def perfect(self, token_ids, features, anchors, keep, document_ids=None):
        drafted = plain(self, token_ids, features, anchors, keep, document_ids)
        rows = (anchors[..., None] + torch.arange(4)).clamp_max(token_ids.shape[1] - 1)
        batch = torch.arange(len(token_ids))[:, None, None]
        logits = target.read(token_ids).logits[batch, rows]
        return type(drafted)(hidden=drafted.hidden, base=logits, logits=logits, confidence=None)

    monkeypatch.setattr(Drafter, "forward", perfect)
    frame = mode_frame(drafter, target, RULES, DOCUMENTS)
    assert frame["acceptance"].tolist() == pytest.approx([1.0] * 5, abs=1e-5)


def test_a_block_shorter_than_a_reply_is_refused() -> None:
    drafter, target = pair(block_size=2)
    with pytest.raises(ValueError, match="up to 3 tokens.*has 2"):
        mode_frame(drafter, target, RULES, DOCUMENTS)
