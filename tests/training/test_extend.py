"""The stage of context extension: what it keeps, what it stretches, and that it is kept."""

import pytest
import torch

from engram_lab import paths
from engram_lab.configs import fingerprint
from engram_lab.model import presets
from engram_lab.model.layers import rotary_angles
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import language, vocab_size
from engram_lab.training.extend import ExtensionConfig, load_or_extend, stretched_rotary
from engram_lab.training.fit import load_or_fit

DATA = DataConfig(corpus="d4", static_share=0.0, document_length=64, train_tokens=768)
BASE = RunConfig(
    model=presets.tiny(vocab_size(DATA)),
    data=DATA,
    train=TrainConfig(batch_size=4, seq_len=64, micro_batches=2, steps=3),
    seed=1,
)


@pytest.fixture
def extension(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))
    return ExtensionConfig(base=BASE, stretch=4, train_tokens=768)


def test_the_stage_has_longer_rows_and_the_language_of_the_run(extension):
    stage = extension.stage
    assert (stage.train.seq_len, stage.data.document_length) == (256, 256)
    assert stage.seed == BASE.seed and stage.train.lr == pytest.approx(0.3 * BASE.train.lr)
    assert language(stage.data).seed == language(BASE.data).seed
    assert stage.steps == 768 // (256 * stage.train.batch_size)
    other = ExtensionConfig(base=BASE, stretch=2, train_tokens=768)
    assert fingerprint(other) != fingerprint(extension)


def test_the_slowest_pair_turns_slower_by_the_stretch_and_the_fastest_as_before():
    config = presets.tiny()
    positions = torch.arange(8)[None]
    before = rotary_angles(positions, config.head_size, config.rope_theta)[1]
    longer = stretched_rotary(config, 4)
    after = rotary_angles(4 * positions, config.head_size, longer.rope_theta)[1]
    torch.testing.assert_close(after[..., -1], before[..., -1], rtol=1e-5, atol=1e-7)
    same = rotary_angles(positions, config.head_size, longer.rope_theta)[1]
    torch.testing.assert_close(same[..., 0], before[..., 0])


def test_a_stage_goes_on_from_the_model_of_the_run_and_is_kept(extension):
    run = load_or_extend(extension, progress=False)
    base = load_or_fit(BASE, progress=False)
    assert run.config == extension.stage and len(run.history) == extension.stage.steps
    assert run.model.config.rope_theta > base.model.config.rope_theta
    own, before = run.model.state_dict(), base.model.state_dict()
    moved = [(own[name] - before[name]).abs().max() for name in own if name.endswith("weight")]
    assert 0 < max(moved) < 0.05  # one update away, not a model of its own
    folder = paths.checkpoints_dir() / fingerprint(extension)
    assert folder.is_dir()
    again = load_or_extend(extension, progress=False)
    for name, value in again.model.state_dict().items():
        torch.testing.assert_close(value, own[name], rtol=0, atol=0)
    assert again.history["loss_nats"].tolist() == pytest.approx(run.history["loss_nats"].tolist())


def test_what_cannot_grow_is_refused():
    with pytest.raises(ValueError, match="stretch must be at least 2"):
        ExtensionConfig(base=BASE, stretch=1, train_tokens=768)
    with pytest.raises(ValueError, match="lr_share"):
        ExtensionConfig(base=BASE, train_tokens=768, lr_share=0.0)
    with pytest.raises(ValueError, match="max_position_embeddings"):
        ExtensionConfig(base=BASE, stretch=8, train_tokens=768)
    with pytest.raises(ValueError, match="heads of more than 2 dimensions"):
        stretched_rotary(presets.tiny().replace(num_attention_heads=16), 2)
