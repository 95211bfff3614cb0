"""Needles by length, reach of attention and key tokens: on models whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from engram_lab.model import presets
from engram_lab.model.modeling import EngramLM
from engram_lab.probes.attention import attention_mass
from engram_lab.probes.long_context import attention_reach, key_token_losses, needle_scores
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.needles import NEEDLE_KINDS
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import corpus_data, vocab_size
from engram_lab.training.fit import TrainedRun

VOCAB = 12


class Recaller(nn.Module):
    """Names the successor that its token had `back` tokens ago, if it sees that far."""

    def __init__(self, back: int):
        super().__init__()
        self.back = back
        self.anything = nn.Parameter(torch.zeros(()))

    def forward(self, input_ids, logits_to_keep=0):
        seq = input_ids.shape[1]
        logits = torch.zeros(*input_ids.shape, VOCAB)
        if seq >= self.back:
            remembered = input_ids[:, : seq - self.back + 1]
            logits[:, self.back - 1 :].scatter_(2, remembered[..., None], 6.0)
        return SimpleNamespace(logits=logits[:, -logits_to_keep:])


def texts(repeats: int, others: int, length: int = 32) -> Documents:
    """Texts that repeat themselves every six tokens, and texts of random tokens."""
    rng = np.random.default_rng(0)
    rows = [np.resize(rng.integers(3, VOCAB, size=6), length) for _ in range(repeats)]
    rows += [rng.integers(3, VOCAB, size=length) for _ in range(others)]
    ids = [row.astype(np.int32) for row in rows]
    return Documents.from_lists(ids, vocab_size=VOCAB, name="texts")


@pytest.fixture(scope="module")
def needle_run() -> TrainedRun:
    data = DataConfig(
        corpus="d4", filler="phrases", static_share=0.0, document_length=256,
        train_tokens=2_000, eval_tokens=2_000,
    )  # fmt: skip
    model = presets.tiny(vocab_size(data))
    config = RunConfig(model=model, data=data, train=TrainConfig(batch_size=2, seq_len=256))
    found = corpus_data(data)
    return TrainedRun(
        model=EngramLM(model, found.compression).train(),
        config=config,
        history=pd.DataFrame({"tokens": [512]}),
        validation=found.validation,
        tokenizer=None,
        compression=found.compression,
        seconds=0.0,
    )


def test_needles_are_asked_at_a_quarter_a_half_and_all_of_the_context(needle_run):
    frame = needle_scores(needle_run)
    assert set(frame["context"]) == {64, 128, 256}
    assert len(frame) == 3 * len(NEEDLE_KINDS) and set(frame["task"]) == set(NEEDLE_KINDS)
    assert frame["score"].between(0, 1).all() and (frame["items"] == 8).all()
    assert (frame["train_tokens"] == 512).all() and frame["params"].nunique() == 1
    assert needle_run.model.training


def test_reach_is_that_of_attention_on_the_documents_of_the_run(needle_run):
    frame = attention_reach(needle_run)
    ids = needle_run.validation.ids[: 4 * 256].reshape(4, 256).astype(np.int64)
    plain = attention_mass(needle_run.model, torch.from_numpy(ids))
    assert frame["mass"].tolist() == pytest.approx(plain["mass"].tolist(), rel=1e-4)
    assert set(frame["window"]) == {8, 32, 128} and (frame["queries"] == 4 * 128).all()


def test_key_tokens_are_those_that_only_a_long_context_tells():
    frame = key_token_losses(Recaller(6), Recaller(6), texts(2, 3), long=16, short=3)
    rows = frame.set_index(["token_class", "document"])
    assert set(rows.loc["key"].index) >= {0, 1}
    for document in (0, 1):  # two windows with eight tokens in the later half of each
        own = rows.loc["key", document]
        assert own["eval_tokens"] == 16 and ("other", document) not in rows.index
        assert own["loss_nats"] == pytest.approx(np.log1p(11 * np.exp(-6)), rel=1e-4)
        assert own["short_loss_nats"] == pytest.approx(np.log(VOCAB), rel=1e-5)
    whole = rows.xs("all")["eval_tokens"]
    assert (whole == 16).all() and len(whole) == 5
    parts = frame[frame["token_class"] != "all"].groupby("document")["eval_tokens"].sum()
    assert (parts == 16).all()


def test_the_grader_alone_says_which_tokens_are_key():
    documents = texts(2, 2)
    blind, sighted = Recaller(99), Recaller(6)
    of_both = [key_token_losses(m, sighted, documents, long=16, short=3) for m in (blind, sighted)]
    counts = [frame.groupby("token_class")["eval_tokens"].sum().to_dict() for frame in of_both]
    assert counts[0] == counts[1] and counts[0]["key"] >= 32
    assert set(key_token_losses(sighted, blind, documents, long=16, short=3)["token_class"]) == {
        "all", "other",
    }  # fmt: skip


def test_contexts_without_tokens_are_refused():
    with pytest.raises(ValueError, match="short must lie in 1..7"):
        key_token_losses(Recaller(6), Recaller(6), texts(1, 1), long=16, short=8)
    with pytest.raises(
        ValueError, match="needs texts of at least 64 tokens; the longest .* has 32"
    ):
        key_token_losses(Recaller(6), Recaller(6), texts(1, 1), long=64, short=8)
