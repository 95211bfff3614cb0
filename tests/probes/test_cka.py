"""CKA: its laws, the published numbers, a slow twin, samples in pieces, models as they were."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.model.residual import residual_stream
from engram_lab.probes.cka import cka_frame, compare_models, layer_features, linear_cka
from engram_lab.probes.cka_layers import layer_similarity, top_directions, without
from engram_lab.probes.cka_stream import CKAStream, check_estimator, check_samples
from engram_lab.probes.cka_sums import GroupSums, extended
from tests.twins import cka as twin

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/cka.json").read_text())["cka"]
COLUMNS = ["layer_a", "layer_b", "estimator", "cka", "low", "high", "reason", "samples"]


def rotation(width: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(width, width).double()).Q


def related(samples: int, *, noise: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two layers of x and three of y that share some of what they hold."""
    shared = torch.randn(samples, 6).double()
    x = torch.stack([shared @ torch.randn(6, 5).double() for _ in range(2)])
    y = torch.stack([shared @ torch.randn(6, 7).double() for _ in range(3)])
    return x + noise * torch.randn_like(x), y + noise * torch.randn_like(y)


def test_unbiased_hsic_has_the_published_values():
    x, y = (torch.tensor(GOLDEN[name], dtype=torch.float64) for name in "XY")
    for i, row in enumerate(GOLDEN["hsic_full"]):
        for j, expected in enumerate(row):
            one, other = extended(x[i]), extended(y[j])
            sums = GroupSums(2, one, other)
            sums.add(0, one[:5], other[:5])
            sums.add(1, one[5:], other[5:])
            found = sums.hsic(torch.ones(1, 2).double(), debiased=True)
            assert float(found) == pytest.approx(expected, rel=1e-10)


def test_minibatch_cka_has_the_published_values():
    x, y = (torch.tensor(GOLDEN[name], dtype=torch.float64) for name in "XY")
    stream = CKAStream(block_size=6, batch_size=6)
    stream.update(x, y)
    found = stream.result("minibatch").values
    np.testing.assert_allclose(found, GOLDEN["cka_minibatch"], rtol=1e-10)


@pytest.mark.parametrize("estimator", ["debiased", "biased", "minibatch"])
def test_it_equals_the_slow_twin(estimator):
    x, y = related(21)
    found = layer_similarity(x, y, estimator=estimator).values
    for i, j in np.ndindex(2, 3):
        one, other = x[i].tolist(), y[j].tolist()
        if estimator == "minibatch":
            expected = twin.minibatch_cka(one, other, 8)  # 8, 8, and the last 5
        else:
            expected = twin.cka(one, other, getattr(twin, f"{estimator}_hsic"))
        assert found[i, j] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("estimator", ["debiased", "biased", "minibatch"])
def test_it_is_one_under_rotation_scaling_and_moving(estimator):
    x = torch.randn(60, 9).double() * torch.arange(1, 10)
    turned = -3.5 * x @ rotation(9) + 40
    assert linear_cka(x, turned, estimator=estimator) == pytest.approx(1, abs=1e-9)
    assert linear_cka(x.float(), turned.float(), estimator=estimator) == pytest.approx(1, abs=1e-5)


def test_it_is_symmetric_and_at_most_one():
    x, y = related(40)
    one, other = layer_similarity(x, y).values, layer_similarity(y, x).values
    np.testing.assert_allclose(one, other.T)
    assert np.abs(one).max() <= 1 + 1e-6
    assert linear_cka(x[0], x[0]) == pytest.approx(1)


def test_independent_gaussians_are_debiased_to_zero_and_biased_far_above():
    """Over 20 seeds the mean has a standard error of 0.01, so 0.05 is missed once in a million."""
    pairs = [(torch.randn(32, 16), torch.randn(32, 16)) for _ in range(20)]
    debiased = [linear_cka(x, y) for x, y in pairs]
    assert abs(np.mean(debiased)) < 0.05
    assert min(debiased) < 0  # not clipped
    assert np.mean([linear_cka(x, y, estimator="biased") for x, y in pairs]) > 0.2


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_fewer_than_four_samples_are_refused(samples):
    with pytest.raises(ValueError, match=f"at least 4 samples.*got n = {samples}"):
        linear_cka(torch.randn(samples, 5), torch.randn(samples, 5))


def test_four_samples_will_do():
    assert -1 <= linear_cka(torch.randn(4, 5), torch.randn(4, 5)) <= 1


@pytest.mark.parametrize("estimator", ["debiased", "biased", "minibatch"])
@pytest.mark.parametrize(
    "odd",
    [
        torch.full((24, 5), 0.1),
        torch.zeros(24, 5),
        torch.full((24, 5), 7e8),
    ],
    ids=["tenths", "zeros", "large"],
)
def test_constant_features_have_no_value_and_a_reason(odd, estimator):
    x = torch.stack([torch.randn(24, 5), odd])
    cka = layer_similarity(x, torch.randn(1, 24, 4), estimator=estimator)
    frame = cka.frame()
    assert frame["cka"].isna().tolist() == [False, True]
    assert frame["reason"][1] == "layer 1 of a is the same at every sample"
    with pytest.warns(UserWarning, match="no CKA: y is the same at every sample"):
        assert np.isnan(linear_cka(torch.randn(24, 5), odd, estimator=estimator))


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_tiny_and_huge_features_are_no_special_case(scale):
    x, y = related(40)
    expected = layer_similarity(x, y).values
    found = layer_similarity((x * scale).float(), y.float()).values
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_float32_is_enough_where_features_outnumber_samples():
    x = torch.randn(40, 700) * torch.logspace(1, -2, 700) + 100
    y = x @ torch.randn(700, 700) / 30 + torch.randn(40, 700)
    found = layer_similarity(x[None], y[None]).values
    assert found == pytest.approx(linear_cka(x, y), abs=1e-5)


def test_duplicated_samples_have_a_value():
    x, y = torch.randn(2, 4, 5).repeat(1, 6, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert -1 <= linear_cka(x, y) <= 1


def test_samples_alike_to_nothing_have_no_value_and_a_reason():
    x = torch.stack([torch.eye(24), torch.randn(24, 24)])
    frame = layer_similarity(x, torch.randn(1, 24, 4)).frame()
    assert frame["cka"].isna().tolist() == [True, False]
    assert frame["reason"][0] == "layer 0 of a has a similarity of 0 with itself"


def test_a_layer_that_is_not_finite_spoils_no_other():
    x = torch.randn(2, 24, 5)
    x[1, 3, 2] = torch.inf
    frame = layer_similarity(x, torch.randn(1, 24, 4)).frame()
    assert frame["cka"].isna().tolist() == [False, True]
    assert frame["reason"][1] == "layer 1 of a holds values that are not finite"


@pytest.mark.parametrize("estimator", ["debiased", "biased", "minibatch"])
@pytest.mark.parametrize("pieces", [[150], [1, 60, 2, 87]], ids=str)
def test_samples_in_pieces_equal_samples_at_once(pieces, estimator):
    x, y = related(150)
    stream = CKAStream(block_size=10, batch_size=10)
    for one, other in zip(x.split(pieces, dim=1), y.split(pieces, dim=1), strict=True):
        stream.update(one, other)
    found, whole = stream.result(estimator), layer_similarity(x, y, estimator=estimator)
    np.testing.assert_allclose(found.values, whole.values, rtol=1e-9)
    np.testing.assert_allclose(found.replicates, whole.replicates, rtol=1e-9)
    assert found.samples == 150


def test_a_stream_keeps_no_samples():
    """What is kept is the sums, and less than a block of samples."""
    stream = CKAStream(block_size=8, batch_size=8, exact=False)
    for _ in range(5):
        stream.update(torch.randn(1, 81, 4), torch.randn(1, 81, 4))
        assert max(part.shape[1] for part in stream._rest) < 8
    assert stream.result("minibatch").samples == 405


def test_a_stream_takes_nothing_after_its_result():
    stream = CKAStream()
    stream.update(*related(40))
    stream.result()
    with pytest.raises(RuntimeError, match="takes no samples after its result"):
        stream.update(*related(40))


def test_a_stream_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"batch_size must lie in 4\.\.16 \(block_size\).*got 3"):
        CKAStream(block_size=16, batch_size=3)
    stream = CKAStream(exact=False)
    with pytest.raises(ValueError, match="got 5 of x and 6 of y"):
        check_samples(torch.randn(1, 5, 4), torch.randn(1, 6, 4))
    stream.update(*related(40))
    with pytest.raises(ValueError, match=r"must stay \(2, 5\) of x and \(3, 7\) of y"):
        stream.update(torch.randn(2, 5, 4), torch.randn(3, 5, 4))
    with pytest.raises(ValueError, match="knows only \"minibatch\"; got 'debiased'"):
        stream.result()
    with pytest.raises(ValueError, match="one of debiased, biased, minibatch; got 'unbiased'"):
        check_estimator("unbiased", 10)
    with pytest.raises(ValueError, match=r"may take 8 GiB; 64 x 64 layers .* need 256\.0"):
        CKAStream().update(torch.empty(64, 1, 1024), torch.empty(64, 1, 1024))


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """A shared part of half the variance; of 30 intervals of 95 % more than 6 miss it in one case
    of a thousand."""
    mixing = torch.randn(6, 6).double()

    def draw(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        shared = torch.randn(samples, 6).double()
        return shared @ mixing, shared + torch.randn(samples, 6).double()

    truth = linear_cka(*draw(20_000))
    misses, points = 0, []
    for _ in range(30):
        x, y = draw(160)
        row = layer_similarity(x[None], y[None]).frame().iloc[0]
        misses += not row["low"] <= truth <= row["high"]
        points.append((row["cka"], row["high"] - row["low"]))
    values, widths = np.array(points).T
    assert misses <= 6
    assert widths.mean() / (4 * values.std()) == pytest.approx(1, abs=0.4)


def test_few_samples_have_values_but_no_interval_and_say_so():
    frame = layer_similarity(*related(40)).frame()
    assert frame["cka"].notna().all() and frame["low"].isna().all()
    assert (frame["reason"] == "no interval: 5 groups of samples, fewer than 8").all()


def test_top_directions_can_be_taken_out():
    x = torch.randn(1, 100, 6).double()
    loud = x.clone()
    loud[..., 0] *= 50
    other = torch.cat([loud[..., :1], torch.randn(1, 100, 5).double()], dim=2)
    assert layer_similarity(loud, other).values > 0.99
    quiet = layer_similarity(loud, other, remove_top=1).values
    assert abs(quiet) < 0.3
    top = top_directions(loud.split(30, dim=1), 2)
    torch.testing.assert_close(top.mT @ top, torch.eye(2).double()[None])
    assert float((without(loud, top) @ top).abs().max()) < 1e-9
    with pytest.raises(ValueError, match=r"must lie in 1\.\.5; got 6"):
        top_directions([x], 6)


@pytest.fixture
def models() -> tuple[EngramLM, EngramLM]:
    memory = tiny().engram
    plain = EngramLM(tiny().replace(engram=None))
    return plain, EngramLM(tiny().replace(engram=replace(memory, compress=False)))


def ids(batch: int = 5, seq: int = 12) -> torch.Tensor:
    return torch.randint(4, 260, (batch, seq))


def test_two_models_are_compared_layer_by_layer(models):
    tokens = ids()
    frame = cka_frame(*models, tokens)
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 9 and (frame["samples"] == 60).all()
    row = frame[(frame["layer_a"] == 1) & (frame["layer_b"] == 2)].iloc[0]
    x = residual_stream(models[0], tokens)[1].flatten(0, 1)
    y = residual_stream(models[1], tokens)[2].flatten(0, 1)
    assert row["cka"] == pytest.approx(linear_cka(x, y), abs=1e-5)


def test_a_model_compared_with_itself_has_ones_on_the_diagonal(models):
    cka = compare_models(models[0], models[0], ids())
    np.testing.assert_allclose(np.diag(cka.values), 1, atol=1e-6)


def test_only_positions_that_are_kept_count(models):
    tokens = ids()
    keep = torch.rand(5, 12) < 0.6
    changed = tokens.clone()
    changed[:, -1] = 7  # a later token changes nothing earlier
    keep[:, -1] = False
    one, other = (cka_frame(*models, part, keep=keep) for part in (tokens, changed))
    assert one["cka"].to_numpy() == pytest.approx(other["cka"].to_numpy(), abs=1e-5)
    assert (one["samples"] == int(keep.sum())).all()


def test_many_positions_are_streamed_to_the_same_result(models, monkeypatch):
    tokens = ids(batch=20)
    arguments = {"keep": torch.rand(20, 12) < 0.7, "layers": (0, -1), "remove_top": 1}
    whole = compare_models(*models, tokens, **arguments)
    monkeypatch.setattr("engram_lab.probes.cka.GATHERED", 0)
    monkeypatch.setattr("engram_lab.probes.cka.TOKENS_AT_A_TIME", 40)
    streamed = compare_models(*models, tokens, **arguments)
    np.testing.assert_allclose(streamed.values, whole.values, atol=1e-5)
    np.testing.assert_allclose(streamed.replicates, whole.replicates, atol=1e-4)
    assert streamed.layers_a == whole.layers_a == (0, 2)


def test_layers_count_from_either_end_and_others_are_refused(models):
    frame = cka_frame(*models, ids(), layers=(0, -1))
    assert frame["layer_a"].unique().tolist() == [0, 2]
    with pytest.raises(IndexError):
        cka_frame(*models, ids(), layers=(3,))


def test_a_filter_must_fit_and_leave_enough(models):
    with pytest.raises(ValueError, match=r"shape of the ids, \(5, 12\); got \(5, 11\)"):
        cka_frame(*models, ids(), keep=torch.ones(5, 11, dtype=torch.bool))
    keep = torch.zeros(5, 12, dtype=torch.bool)
    keep[0, :3] = True
    with pytest.raises(ValueError, match="got n = 3. Compare more positions"):
        cka_frame(*models, ids(), keep=keep)
    with pytest.raises(ValueError, match="at least one token"):
        layer_features(models[0], ids(batch=0))


def test_models_are_left_as_they_were_and_may_be_bf16(models):
    for model in models:
        model.bfloat16().train()
    frame = cka_frame(*models, ids())
    assert frame["cka"].dtype == np.float64 and frame["cka"].notna().all()
    for model in models:
        assert all(module.training for module in model.modules())
        assert not any(module._forward_hooks for module in model.modules())
        assert all(parameter.dtype == torch.bfloat16 for parameter in model.parameters())


def test_features_are_those_of_the_residual_stream(models):
    tokens = ids()
    keep = torch.rand(5, 12) < 0.5
    found = layer_features(models[1], tokens, keep=keep)
    torch.testing.assert_close(found, residual_stream(models[1], tokens)[:, keep])
