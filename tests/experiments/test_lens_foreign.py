"""Lenses on a published model: what they read, what comes out, and that the rows ship."""

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from engram_lab.configs import fingerprint
from engram_lab.experiments import load_results, run
from engram_lab.experiments.catalog import lens_foreign
from engram_lab.experiments.catalog.lens_foreign import (
    LENS_FOREIGN,
    LENS_FOREIGN_ATTENTION,
    LENS_FOREIGN_CKA,
    ForeignRun,
    read,
)
from engram_lab.experiments.store import Store
from engram_lab.model.smollm import Foreign
from engram_lab.probes.tuned_lens import TunedLensConfig
from engram_lab.tokens.tokenizer import load_tokenizer

SWEEPS = (LENS_FOREIGN, LENS_FOREIGN_CKA, LENS_FOREIGN_ATTENTION)
RUN = ForeignRun(texts=3, length=14, fitted_on=4)
by_name = pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.name)


@pytest.fixture
def stranger(monkeypatch):
    """A small random decoder in place of the real one, and texts of its own."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    foreign = Foreign(model, load_tokenizer("byte").to_transformers())
    texts = {"countries": [f"{letter} is the name of a land." for letter in "ABCDEFGH"]}
    monkeypatch.setattr(lens_foreign, "_loaded", lambda: foreign)
    monkeypatch.setattr(lens_foreign, "load_corpus_texts", lambda parts: texts)
    return foreign


def test_texts_are_drawn_once_and_never_looked_at_after_a_fit_on_them(stranger):
    reading, again = read(RUN), read(RUN)
    assert torch.equal(reading.token_ids, again.token_ids)
    firsts = [ids[0].tolist() for ids in (reading.token_ids.T, reading.others.T)]
    assert len(set(firsts[0] + firsts[1])) == 7
    assert reading.token_ids.shape == (3, 14) and reading.others.shape == (4, 14)


def test_more_texts_than_there_are_is_refused_with_both_numbers(stranger):
    with pytest.raises(ValueError, match="must have 9 texts of 14 tokens; it has 8"):
        read(ForeignRun(texts=9, length=14))


def test_both_lenses_end_at_the_output_and_the_fitted_one_is_nearer_before(stranger):
    tuned = TunedLensConfig(steps=40, sequences=4, learning_rate=0.01)
    logit, fitted = (
        lens_foreign.lens(read(dataclasses.replace(RUN, tuned=how))) for how in (None, tuned)
    )
    for frame in (logit, fitted):
        assert len(frame) == 3 * 3 * 14
        assert (frame.loc[frame["layer"] == 2, "kl_nats"] == 0).all()
    early = [frame.loc[frame["layer"] == 0, "kl_nats"].mean() for frame in (logit, fitted)]
    assert early[1] < early[0]
    assert (logit["params"] == stranger.model.num_parameters()).all()


def test_a_layer_resembles_itself_entirely(stranger, monkeypatch):
    monkeypatch.setattr(lens_foreign, "EVERY_SECOND", (0, 2))
    frame = lens_foreign.resemblance(read(dataclasses.replace(RUN, remove_top=1)))
    same = frame[frame["layer_a"] == frame["layer_b"]]
    assert same["cka"].tolist() == pytest.approx([1.0, 1.0])


def test_attention_is_a_share(stranger):
    frame = lens_foreign.reach(read(RUN))
    assert frame["mass"].between(0, 1 + 1e-6).all()
    assert frame.loc[frame["window"] == 32, "mass"].tolist() == pytest.approx([1.0, 1.0])


@by_name
def test_points_are_the_same_at_every_scale(sweep, monkeypatch):
    names = set()
    for scale in ("tiny", "workshop", "full"):
        monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
        names.add(tuple(fingerprint(sweep.configure(**point)) for point in sweep.points()))
    assert len(names) == 1


@by_name
def test_its_rows_ship_so_that_nobody_needs_the_model_to_see_them(sweep):
    store = Store.of(sweep.name)
    for point in sweep.points():
        config = sweep.configure(**point)
        assert store.holds(fingerprint(config), point, config=config)
    assert set(load_results(sweep)["params"]) == {134_515_008}
    assert len(run(sweep)) == len(load_results(sweep))
