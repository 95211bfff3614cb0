"""Calibration: golden fits and metrics, held-out error, online counts, what must be refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engram_lab.draft.calibration import METHODS, Calibrator, fit_sequential, prefix_survival
from engram_lab.draft.online import OnlineTemperatures
from engram_lab.draft.reliability import (
    calibration_error,
    ranking_quality,
    reliability_by_position,
    squared_error,
    survived,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "dspark_sts.json").read_text())
LOGITS, ACCEPTED = np.array(GOLDEN["logits"]), np.array(GOLDEN["accepted_len"])


def rounds(count: int, *, positions: int = 4, seed: int = 0, heat: float = 2.0):
    """Rounds whose true conditional logits are the stated ones divided by `heat`."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(2.0, 2.0, (count, positions))
    kept = generator.random(logits.shape) < 1 / (1 + np.exp(-logits / heat))
    return logits, np.cumprod(kept, axis=1).sum(1)


def errors(calibrator: Calibrator, logits: np.ndarray, accepted: np.ndarray) -> list[float]:
    survival = prefix_survival(calibrator.apply(logits))
    outcomes = survived(accepted, logits.shape[1])
    return [calibration_error(p, y) for p, y in zip(survival.T, outcomes.T, strict=True)]


def test_the_sequential_fit_finds_the_golden_temperatures():
    assert list(fit_sequential(LOGITS, ACCEPTED)) == GOLDEN["temperatures"]


def test_the_error_along_the_grid_is_the_golden_one():
    curve = [
        calibration_error(1 / (1 + np.exp(-LOGITS[:, 0] / heat)), ACCEPTED > 0)
        for heat in np.arange(51) * 0.05 + 0.5
    ]
    assert np.allclose(curve, GOLDEN["ece_curve_pos0"], atol=1e-6)


@pytest.mark.parametrize("method, when", [("raw", "before"), ("sequential", "after")])
def test_error_ranking_and_brier_score_are_the_golden_ones(method: str, when: str):
    survival = prefix_survival(Calibrator(method).fit(LOGITS, ACCEPTED).apply(LOGITS))
    outcomes = survived(ACCEPTED, 4)
    for expected in GOLDEN[f"metrics_{when}"]:
        predicted, happened = survival[:, expected["position"]], outcomes[:, expected["position"]]
        assert calibration_error(predicted, happened) == pytest.approx(expected["ece"], abs=1e-6)
        assert ranking_quality(predicted, happened) == pytest.approx(expected["auc"], abs=1e-6)
        assert squared_error(predicted, happened) == pytest.approx(expected["brier"], abs=1e-6)
        assert predicted.mean() == pytest.approx(expected["pred_mean"], abs=1e-6)
        assert happened.mean() == pytest.approx(expected["target_mean"], abs=1e-6)


def test_the_online_temperatures_are_the_golden_ones():
    online = OnlineTemperatures(4)
    assert online.temperatures.tolist() == [1, 1, 1, 1]
    for step, expected in enumerate(GOLDEN["online_variant"]["temperatures_after_each_batch"]):
        batch = slice(100 * step, 100 * step + 100)
        online.update(LOGITS[batch], ACCEPTED[batch])
        assert np.allclose(online.temperatures, expected, atol=1e-5)


def test_online_counts_leave_out_what_was_not_verified():
    whole, cut = OnlineTemperatures(4), OnlineTemperatures(4)
    whole.update(np.where(np.arange(4) < 2, LOGITS[:50], np.nan), np.minimum(ACCEPTED[:50], 2))
    cut.update(LOGITS[:50], np.minimum(ACCEPTED[:50], 2), verified=np.full(50, 2))
    assert np.array_equal(whole.temperatures, cut.temperatures)


def test_older_steps_fade():
    early, late = OnlineTemperatures(4, decay=0.5), OnlineTemperatures(4, decay=0.5)
    other_logits, other_accepted = rounds(600, seed=1, heat=0.5)
    early.update(other_logits, other_accepted)
    for _ in range(40):
        early.update(LOGITS, ACCEPTED)
        late.update(LOGITS, ACCEPTED)
    assert np.allclose(early.temperatures, late.temperatures)


@pytest.mark.parametrize("method", ["sequential", "isotonic", "online"])
def test_every_method_lowers_the_error_at_every_position_on_held_out_rounds(method: str):
    fitted, held_out = rounds(3000, seed=1), rounds(3000, seed=2)
    before = errors(Calibrator("raw").fit(*fitted), *held_out)
    after = errors(Calibrator(method).fit(*fitted), *held_out)
    assert all(now < was / 2 for was, now in zip(before, after, strict=True))


def test_temperatures_keep_the_order_within_a_position_and_isotonic_curves_do_not_invert_it():
    for method in METHODS:
        confidences = Calibrator(method).fit(LOGITS, ACCEPTED).apply(LOGITS)
        for k in range(4):
            ordered = confidences[np.argsort(LOGITS[:, k]), k]
            assert (np.diff(ordered) >= 0).all()
            assert method == "isotonic" or len(np.unique(ordered)) == len(np.unique(LOGITS[:, k]))


def test_isotonic_rates_are_those_of_the_rounds_that_reached_the_position():
    logits = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 2.0], [1.0, 3.0]])
    confidences = Calibrator("isotonic").fit(logits, np.array([0, 1, 2, 2])).apply(logits)
    assert np.allclose(confidences[:, 0], [0.5, 0.5, 1, 1])
    assert np.allclose(confidences[:, 1], [0.5, 0.5, 0.5, 1])


def test_a_position_that_nobody_reached_keeps_its_sigmoid():
    curve = Calibrator("isotonic").fit(np.full((3, 2), 1.0), np.array([0, 0, 0]))
    assert curve.apply(np.array([[0.3, 0.7]]))[0, 1] == pytest.approx(1 / (1 + np.exp(-0.7)))


def test_tensors_of_any_kind_and_shorter_blocks_are_taken():
    calibrator = Calibrator("sequential").fit(LOGITS, ACCEPTED)
    logits = torch.tensor(LOGITS[:3, :2], requires_grad=True)
    assert np.allclose(calibrator.apply(logits), calibrator.apply(LOGITS)[:3, :2])
    assert calibrator.apply(logits.bfloat16()[0]).shape == (2,)


def test_slots_that_a_round_lacks_count_nowhere():
    logits, accepted = LOGITS[:200].copy(), np.minimum(ACCEPTED[:200], 2)
    cut = np.where(np.arange(4) < 2, logits, np.nan)
    for method in METHODS:
        whole = Calibrator(method).fit(logits[:, :2], accepted)
        ragged = Calibrator(method).fit(np.vstack([cut, LOGITS]), np.append(accepted, ACCEPTED))
        assert np.isnan(ragged.apply(cut)[:, 2:]).all()
        assert whole.positions == 2 and ragged.positions == 4
    frame = reliability_by_position(prefix_survival(1 / (1 + np.exp(-cut))), accepted)
    assert set(frame["position"]) == {1, 2} and frame["count"].sum() == 400


def test_reliability_holds_every_record_in_the_bin_of_its_probability():
    survival = prefix_survival(Calibrator("raw").fit(LOGITS, ACCEPTED).apply(LOGITS))
    frame = reliability_by_position(survival, ACCEPTED)
    assert frame.groupby("position")["count"].sum().tolist() == [600] * 4
    assert (frame["bin"] == (20 * frame["predicted"]).astype(int)).all()
    weighted = (frame["count"] * (frame["predicted"] - frame["observed"]).abs()) / 600
    ours = weighted.groupby(frame["position"]).sum()
    assert np.allclose(ours, [row["ece"] for row in GOLDEN["metrics_before"]], atol=1e-6)


def test_nothing_to_measure_is_no_number():
    nothing, nobody = np.array([np.nan]), np.array([True])
    assert np.isnan([calibration_error(nothing, nobody), squared_error(nothing, nobody)]).all()
    assert np.isnan(ranking_quality(np.array([0.4, 0.6]), np.array([True, True])))


@pytest.mark.parametrize(
    "logits, accepted, message",
    [
        ([[]], [0], "needs rounds with logits"),
        ([[np.inf]], [0], "must be finite"),
        ([[np.nan, 1.0]], [0], "follows a missing one"),
        ([[1.0, 1.0]], [3], "lies in 0..2"),
        ([[1.0, np.nan]], [2], "lies in 0..1"),
        ([[1.0]], [-1], "got -1"),
    ],
)
def test_rounds_that_cannot_be_are_refused(logits, accepted, message: str):
    with pytest.raises(ValueError, match=message):
        Calibrator().fit(np.array(logits, dtype=float), np.array(accepted))


def test_misuse_is_named():
    with pytest.raises(ValueError, match="one of raw, sequential, isotonic, online; got 'platt'"):
        Calibrator("platt")
    with pytest.raises(ValueError, match="call fit first"):
        Calibrator().apply(LOGITS)
    with pytest.raises(ValueError, match="fitted on 4 positions"):
        Calibrator().fit(LOGITS, ACCEPTED).apply(np.zeros((1, 5)))
    with pytest.raises(ValueError, match="must be positive"):
        fit_sequential(LOGITS, ACCEPTED, grid=(0.0, 1.0))
    with pytest.raises(ValueError, match="counts 4 positions; got 3"):
        OnlineTemperatures(4).update(LOGITS[:, :3], np.minimum(ACCEPTED, 3))
    with pytest.raises(ValueError, match="request 0 has 3 of 2"):
        OnlineTemperatures(4).update(LOGITS[:1], np.array([3]), verified=np.array([2]))
    with pytest.raises(ValueError, match="at least 1 position"):
        OnlineTemperatures(0)
