"""Soft alignment: the published values, a planted shift of depth, what chance and seeds give."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engram_lab.probes.cka_alignment import (
    alignment_frame,
    default_topk,
    depth_gains,
    soft_alignment,
)
from engram_lab.probes.cka_layers import layer_similarity
from engram_lab.probes.cka_nulls import gain_over_null, permutation_null, seed_null
from tests.twins import cka as twin

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/cka.json").read_text())["soft_alignment"]
LAYERS, SAMPLES, WIDTH = 6, 96, 12


def journey() -> torch.Tensor:
    """Features that change step by step with depth, half a layer at a time."""
    steps = torch.randn(2 * LAYERS + 1, SAMPLES, WIDTH)
    path = [steps[0]]
    for step in steps[1:]:
        path.append(0.85 * path[-1] + 0.5 * step)
    return torch.stack(path)


def model(path: torch.Tensor, *, ahead: int = 0) -> torch.Tensor:
    """Layers along a journey, each turned by chance; all but the first `ahead` half-layers on."""
    halves = [min(2 * layer + ahead * (layer > 0), 2 * LAYERS) for layer in range(LAYERS + 1)]
    turns = torch.linalg.qr(torch.randn(LAYERS + 1, WIDTH, WIDTH)).Q
    return path[halves] @ turns + 0.2 * torch.randn(LAYERS + 1, SAMPLES, WIDTH)


def test_it_has_the_published_values():
    similarity = np.array(GOLDEN["S_rows_i_cols_j"])
    found = soft_alignment(similarity, topk=GOLDEN["k"])
    np.testing.assert_allclose(found, GOLDEN["a_j"], rtol=1e-12)


def test_it_equals_the_slow_twin():
    similarity = np.random.default_rng(0).random((7, 4))
    for topk in (1, 3, 7):
        expected = [twin.alignment(column, topk) for column in similarity.T.tolist()]
        assert soft_alignment(similarity, topk=topk) == pytest.approx(expected)


def test_depths_may_be_named_and_topk_must_fit():
    similarity = np.array([[1.0], [3.0]])
    assert soft_alignment(similarity, topk=2, depths=(4, 8)) == pytest.approx(7)
    with pytest.raises(ValueError, match=r"topk must lie in 1\.\.2.*got 3"):
        soft_alignment(similarity, topk=3)
    assert [default_topk(layers) for layers in (2, 9, 30)] == [2, 3, 5]


def test_similarities_that_are_no_weights_give_no_alignment():
    similarity = np.array([[0.9, 0.9, np.nan], [0.5, -0.1, 0.3], [0.1, -0.2, 0.2]])
    found = soft_alignment(similarity, topk=2)
    assert np.isnan(found).tolist() == [False, True, False]


def test_a_planted_shift_of_depth_is_found():
    """Layers 1 to 3 of the shifted model hold what the plain one holds two layers later."""
    path = journey()
    plain, shifted, other = model(path), model(path, ahead=4), model(path)
    cka = layer_similarity(plain, shifted)
    frame = alignment_frame(cka)
    early = frame[frame["layer_b"].between(1, 3)]
    assert (early["alignment"] - early["layer_b"]).to_numpy() == pytest.approx(2, abs=0.35)
    assert (frame["low"] <= frame["alignment"]).all()
    assert (frame["alignment"] <= frame["high"]).all()
    null = layer_similarity(plain, other)
    gains = depth_gains({"shifted": cka, "other seed": null}).set_index("comparison")
    assert gains.loc["shifted", "gain"] > 1.2 and abs(gains.loc["other seed", "gain"]) < 0.5
    assert gains.loc["shifted", "low"] > gains.loc["other seed", "high"]
    assert (gains["layers"] == 3).all() and (gains["reason"] == "").all()
    row = gain_over_null(cka, [null]).iloc[0]
    assert row["difference"] == pytest.approx(row["gain"] - row["null_gain"])
    assert 0 < row["low"] <= row["difference"] <= row["high"]


def test_the_gain_over_another_seed_has_an_interval_around_0():
    path = journey()
    maps = seed_null([model(path) for _ in range(3)])
    assert list(maps) == ["seed 0 and 1", "seed 0 and 2", "seed 1 and 2"]
    one, *others = maps.values()
    row = gain_over_null(one, others).iloc[0]
    assert row["null_low"] <= row["null_gain"] <= row["null_high"]
    assert abs(row["difference"]) < 0.4


def test_a_null_must_be_of_the_same_layers_and_samples():
    x = torch.randn(3, 40, 4)
    cka, shorter = layer_similarity(x, x), layer_similarity(x[:, :30], x[:, :30])
    for nulls in ([], [shorter]):
        with pytest.raises(ValueError, match="nulls with the layers, samples and estimator"):
            gain_over_null(cka, nulls)
    with pytest.raises(ValueError, match="at least two of them; got 1"):
        seed_null([x])


def test_a_layer_without_cka_has_no_alignment_and_a_reason():
    x = torch.randn(4, 72, 4)
    y = x.clone()
    y[1] = 3
    frame = alignment_frame(layer_similarity(x, y), topk=1)
    assert frame["alignment"].isna().tolist() == [False, True, False, False]
    assert frame["reason"][1] == "layer 1 of b is the same at every sample"
    gain = depth_gains({"it": layer_similarity(x, y)}, topk=1).iloc[0]
    assert np.isnan(gain["gain"]) and "same at every sample" in gain["reason"]


def test_few_samples_align_without_interval_and_say_so():
    x = torch.randn(4, 20, 4)
    frame = alignment_frame(layer_similarity(x, x), topk=1)
    assert frame["alignment"].tolist() == [0, 1, 2, 3]
    assert frame["low"].isna().all()
    assert frame["reason"].str.startswith("no interval: 3 groups").all()


@pytest.mark.parametrize("estimator", ["debiased", "minibatch"])
def test_shuffled_samples_are_alike_by_chance_only(estimator):
    x = torch.randn(2, 64, 6)
    frame = permutation_null(x, x, estimator=estimator, permutations=20)
    assert frame["cka"].abs().max() < 0.1
    assert (frame["low"] < 0).all() and (frame["high"] > 0).all()
    assert (frame["high"] < 0.5).all() and (frame["reason"] == "").all()


def test_the_biased_estimator_is_far_above_zero_when_samples_are_shuffled():
    x = torch.randn(1, 32, 16)
    assert permutation_null(x, x, estimator="biased", permutations=20)["low"][0] > 0.2


def test_too_few_permutations_are_refused():
    with pytest.raises(ValueError, match="at least 20 of them; got 5"):
        permutation_null(torch.randn(1, 32, 4), torch.randn(1, 32, 4), permutations=5)
