"""The model that ships: small, made by its script, opened at once, and better than chance."""

import importlib.util
import json
import math
import time
from functools import partial

import pytest
import torch

from engram_lab import paths
from engram_lab.configs import same_config
from engram_lab.model.presets import tiny
from engram_lab.probes.row_keys import row_index_of_run
from engram_lab.probes.rows import row_frame
from engram_lab.probes.shipped import load_shipped, round_to_half, save_shipped
from engram_lab.tokens.corpus import load_text_corpus
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.fit import fit

MOST_BYTES = 5_000_000
SECONDS = 2


@pytest.fixture(scope="module")
def shipped():
    return load_shipped("microscope")


@pytest.fixture(scope="module")
def short_run():
    data = DataConfig(corpus="text", train_tokens=2_000, eval_tokens=500)
    model = tiny(vocab_size(data)).replace(tie_word_embeddings=True)
    train = TrainConfig(batch_size=2, seq_len=32, steps=40)
    few = partial(load_text_corpus, parts=["bible"], max_tokens=60_000)
    with pytest.MonkeyPatch.context() as patch:  # the whole bundle takes half a minute to tokenise
        patch.setattr("engram_lab.training.data.load_text_corpus", few)
        return fit(RunConfig(model=model, data=data, train=train), progress=False)


def test_all_its_files_are_small():
    folder = paths.models_dir() / "microscope"
    assert sum(file.stat().st_size for file in folder.iterdir()) <= MOST_BYTES


def test_it_opens_at_once(shipped):
    begin = time.process_time()  # wall time tells more of what else runs
    load_shipped("microscope")
    assert time.process_time() - begin < SECONDS


def test_its_config_is_that_of_its_script(shipped, repository):
    path = repository / "scripts" / "train_microscope.py"
    spec = importlib.util.spec_from_file_location("train_microscope", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    stored = json.loads((script.TARGET / "run.json").read_text())["config"]
    assert same_config(stored, script.CONFIG) and shipped.config == script.CONFIG


def test_it_has_learned_something_and_its_memory_helps(shipped):
    uniform = math.log(shipped.model.config.vocab_size)
    assert shipped.losses["all on"] < uniform - 2
    assert shipped.losses["all on"] < shipped.losses["memory off"] - 0.02


def test_its_rows_can_be_read_with_what_trained_them(shipped):
    frame = row_frame(shipped.model, "In the beginning", shipped.tokenizer, index=shipped.index)
    assert (frame["times_trained"] > 0).all() and (frame["keys"] != "").all()
    assert frame.loc[frame["order"] == 2, "keys"].str.contains("beginning").all()


def test_it_computes_in_float32_and_is_not_training(shipped):
    assert {parameter.dtype for parameter in shipped.model.parameters()} == {torch.float32}
    assert not shipped.model.training


def test_what_is_saved_is_the_model_rounded_to_half_precision(short_run, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "models_dir", lambda: tmp_path)
    before = short_run.model.lm_head.weight.clone()
    index = row_index_of_run(short_run)
    losses = {"all on": 8.0}
    save_shipped(tmp_path / "mine", short_run, index, losses=losses, circumstances={"threads": 1})
    assert torch.equal(short_run.model.lm_head.weight, before)
    loaded = load_shipped("mine")
    assert loaded.config == short_run.config and loaded.losses == losses
    assert loaded.model.lm_head.weight is loaded.model.embed_tokens.weight
    round_to_half(short_run.model)
    ids = loaded.tokenizer.encode("In the beginning")
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, short_run.model(ids).logits)
    record = json.loads((tmp_path / "mine" / "run.json").read_text())
    assert record["threads"] == 1 and record["config"]["seed"] == 0
    assert (tmp_path / "mine" / "history.csv").read_text().startswith("step,tokens,loss_nats,lr\n")


def test_a_model_that_is_not_shipped_is_refused():
    with pytest.raises(ValueError, match="a shipped model is one of microscope; got 'telescope'"):
        load_shipped("telescope")


def test_a_generated_corpus_has_no_text_to_type(tmp_path):
    data = DataConfig(corpus="d1", train_tokens=500, eval_tokens=200)
    train = TrainConfig(batch_size=2, seq_len=32, steps=1)
    config = RunConfig(model=tiny(vocab_size(data)), data=data, train=train)
    run = fit(config, progress=False)
    with pytest.raises(ValueError, match="needs a tokenizer.* generated corpus 'd1'"):
        save_shipped(tmp_path / "x", run, row_index_of_run(run), losses={}, circumstances={})
