"""Lens and CKA of trained runs: what is averaged, and over which positions."""

import numpy as np
import pytest
import torch

from engram_lab.probes.trained_depth import (
    ModelPair,
    name_ends,
    pair_alignment,
    pair_gain,
    pair_map,
    trained_lens,
)
from engram_lab.tokens.synthetic import FactbookConfig, factbook
from engram_lab.training.config import DataConfig
from engram_lab.training.data import language
from engram_lab.training.fit import fit
from tests.training.runs import DATA, small_run

D3 = DataConfig(corpus="d3", entities=20, document_length=64, train_tokens=2_000, eval_tokens=3_000)


@pytest.fixture(scope="module")
def trained():
    return fit(small_run(data=D3))


@pytest.fixture(scope="module")
def pair(trained):
    return ModelPair(plain=fit(small_run(data=D3, seed=1)), other=trained)


def test_name_ends_are_followed_by_a_relation():
    rules = FactbookConfig(entities=20)
    documents = factbook(rules, 2_000, seed=0)
    ids = torch.from_numpy(documents.ids.astype(np.int64)).reshape(len(documents), -1)
    found = name_ends(rules, ids)
    words = [rules.token_ranges["n"], rules.token_ranges["r"]]
    after = ids.roll(-1, dims=1)
    assert found.any() and not found[:, -1].any()
    assert all(int(number) in words[0] for number in ids[found])
    assert all(int(number) in words[1] for number in after[found])


def test_the_lens_of_a_memory_is_read_with_and_without_it(trained):
    frame = trained_lens(trained)
    assert set(frame["memory"]) == {"kept", "removed"}
    assert set(frame["layer"]) == {0, 1, 2}
    whole = frame[(frame["token_class"] == "all") & (frame["memory"] == "kept")]
    last = whole[whole["layer"] == 2].iloc[0]
    assert last["kl_nats"] == pytest.approx(0, abs=1e-5) and last["agreement"] == 1
    taken = frame[(frame["layer"] == 2) & (frame["memory"] == "removed")]
    assert (taken["kl_nats"] > 1e-6).all()


def test_classes_of_the_lens_add_up_to_all_positions(trained):
    frame = trained_lens(trained).query("layer == 1 and memory == 'kept'")
    every = frame["token_class"] == "all"
    parts = frame[~every]
    assert parts["positions"].sum() == int(frame[every]["positions"].iloc[0])
    mean = (parts["kl_nats"] * parts["positions"]).sum() / parts["positions"].sum()
    assert mean == pytest.approx(float(frame[every]["kl_nats"].iloc[0]), rel=1e-4)


def test_a_model_without_memory_has_nothing_to_remove():
    run = small_run(data=D3)
    bare = fit(type(run)(model=run.model.replace(engram=None), data=run.data, train=run.train))
    assert set(trained_lens(bare)["memory"]) == {"kept"}


def test_a_pair_is_compared_at_all_its_layers(pair):
    frame = pair_map(pair)
    assert len(frame) == 4 * 9  # three estimators, and one without the first directions
    assert set(frame["samples"]) == {int(_ends(pair).sum())}
    assert list(pair_alignment(pair)["removed"]) == [0, 0, 0, 2, 2, 2]
    assert list(pair_gain(pair)["removed"]) == [0, 2]


def _ends(pair):
    documents = pair.plain.validation
    ids = torch.from_numpy(documents.ids.astype(np.int64)).reshape(len(documents), -1)
    return name_ends(language(D3), ids)


def test_a_model_is_like_itself(trained):
    frame = pair_map(ModelPair(plain=trained, other=trained))
    same = frame[(frame["layer_a"] == frame["layer_b"]) & (frame["estimator"] != "minibatch")]
    np.testing.assert_allclose(same["cka"], 1, atol=1e-3)


def test_other_corpora_have_no_names():
    other = fit(small_run(data=DATA))
    with pytest.raises(ValueError, match="corpus d3 has; got 'd8'"):
        pair_map(ModelPair(plain=other, other=other))
