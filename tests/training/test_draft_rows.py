"""Drafters that read rows: of their own target or of another run, trained, kept and loaded."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engram_lab.configs import fingerprint, from_dict, to_dict
from engram_lab.draft.config import DraftConfig
from engram_lab.draft.memory_head import MemoryDrafter
from engram_lab.model import presets
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig
from engram_lab.training.draft_fit import load_or_fit_drafter
from engram_lab.training.draft_loss import DraftLossConfig
from engram_lab.training.fit import load_or_fit

DATA = DataConfig(corpus="d1", train_tokens=4_000, eval_tokens=1_000, document_length=48)
OWNER = RunConfig(
    model=presets.tiny(vocab_size(DATA)).replace(num_hidden_layers=3, moe=None),
    data=DATA,
    train=TrainConfig(batch_size=8, seq_len=48, steps=6),
)
PLAIN = replace(OWNER, model=OWNER.model.replace(engram=None))
SHAPE = DraftConfig(
    vocab_size=OWNER.model.vocab_size,
    hidden_size=32,
    target_depth=3,
    target_layer_ids=(0, 1),
    mask_token_id=3,
    block_size=4,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_size=16,
    intermediate_size=64,
    markov_rank=8,
    confidence=True,
)


def config(target: RunConfig, **changes: object) -> DraftRunConfig:
    settings = {
        "target": target,
        "drafter": SHAPE,
        "loss": DraftLossConfig(num_anchors=4),
        "answers": AnswerConfig(rows=16, prompt_tokens=4, answer_tokens=20),
        "train": draft_train_config(batch_size=4, steps=4),
    }
    return DraftRunConfig(**settings | changes)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))


@pytest.mark.parametrize("target", [OWNER, PLAIN])
def test_a_drafter_with_rows_is_trained_kept_and_loaded(target: RunConfig) -> None:
    run = config(target, rows_of=OWNER)
    table = load_or_fit(OWNER, progress=False).model.memories[1].table.weight.detach().clone()
    first = load_or_fit_drafter(run, progress=False)
    again = load_or_fit_drafter(run, progress=False)
    assert isinstance(again.drafter, MemoryDrafter)
    kept = again.drafter.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in first.drafter.state_dict().items())
    ids = torch.arange(12)[None]
    rows = [each.drafter.rows for each in (first, again)]
    assert torch.equal(*(row.read(row.addresses(ids)) for row in rows))
    after = load_or_fit(OWNER, progress=False).model.memories[1].table.weight
    assert torch.equal(after, table)  # the rows were read and not trained
    owns = again.drafter.rows._model is again.target.model
    assert owns == (target is OWNER)  # a table at hand is not loaded twice


def test_no_rows_means_the_run_that_was_before_there_were_any() -> None:
    run = config(OWNER)
    assert "rows_of" in to_dict(run)
    assert fingerprint(run) != fingerprint(config(OWNER, rows_of=OWNER))
    assert from_dict(DraftRunConfig, to_dict(config(PLAIN, rows_of=OWNER))).rows_of == OWNER
    without = to_dict(run)
    without.pop("rows_of")
    assert fingerprint(from_dict(DraftRunConfig, without)) == fingerprint(run)


def test_rows_need_a_head_that_can_read_them_and_a_memory() -> None:
    with pytest.raises(ValueError, match="rows_of must be the run of a model with a memory"):
        config(OWNER, rows_of=PLAIN)
    with pytest.raises(ValueError, match="rows_of needs a block drafter with a sequential head"):
        config(OWNER, rows_of=OWNER, drafter=replace(SHAPE, markov_rank=0))
