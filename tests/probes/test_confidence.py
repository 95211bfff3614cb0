"""Confidence frames: held-out halves, domains apart, thresholds, records that cannot be."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.draft.calibration import METHODS, Calibrator, prefix_survival
from engram_lab.draft.reliability import calibration_error
from engram_lab.probes.confidence import (
    confidence_frame,
    confidence_summary,
    records_of,
    rounds_of,
    threshold_frame,
)
from tests.probes.drafted_rounds import drafted


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return records_of(*drafted())


def test_arrays_and_records_say_the_same(records):
    logits, accepted = drafted()
    rounds = rounds_of(records.sample(frac=1, random_state=0))[0]
    assert np.array_equal(rounds.logits, logits)
    assert np.array_equal(rounds.accepted, accepted)


def test_the_frame_is_measured_on_the_half_that_was_not_fitted(records):
    logits, accepted = drafted()
    frame = confidence_frame(records, methods=["sequential"])
    assert list(frame) == ["method", "position", "bin", "predicted", "observed", "count"]
    assert frame.groupby("position")["count"].sum().tolist() == [1000] * 3
    calibrator = Calibrator("sequential").fit(logits[:1000], accepted[:1000])
    survival = prefix_survival(calibrator.apply(logits[1000:]))
    summary = confidence_summary(records, methods=["sequential"])
    for k in range(3):
        expected = calibration_error(survival[:, k], accepted[1000:] > k)
        assert summary["ece"][k] == pytest.approx(expected)
        assert summary["temperature"][k] == calibrator.temperatures[k]
    weights = frame["count"] * (frame["predicted"] - frame["observed"]).abs() / 1000
    assert np.allclose(weights.groupby(frame["position"]).sum(), summary["ece"])


def test_every_fit_halves_the_error_and_leaves_the_ranking(records):
    summary = confidence_summary(records).pivot(index="position", columns="method")
    assert set(summary["ece"]) == set(METHODS)
    for method in ("sequential", "isotonic", "online"):
        assert (summary["ece"][method] < summary["ece"]["raw"] / 2).all()
        assert (summary["brier"][method] < summary["brier"]["raw"]).all()
        assert np.allclose(summary["auc"][method], summary["auc"]["raw"], atol=0.02)
    assert summary["temperature"]["isotonic"].isna().all()


def test_domains_are_fitted_and_measured_apart():
    hot, cold = drafted(600, heat=2.5), drafted(600, heat=1.0, seed=1)
    both = pd.concat([records_of(*hot, domain="chat"), records_of(*cold, domain="code")])
    together = confidence_summary(both, methods=["sequential"])
    alone = confidence_summary(records_of(*hot), methods=["sequential"])
    chat = together[together["domain"] == "chat"].drop(columns="domain").reset_index(drop=True)
    pd.testing.assert_frame_equal(chat, alone)
    assert set(confidence_frame(both)["domain"]) == {"chat", "code"}


def test_rounds_of_one_prompt_stay_on_one_side():
    logits, accepted = drafted(10)
    records = records_of(logits, accepted)
    records["prompt"] = np.where(records["round"] < 8, "long", "short")
    first, second = rounds_of(records)[0].halves()
    assert len(first.accepted) == 8 and len(second.accepted) == 2


def test_shorter_blocks_count_only_where_they_have_drafts():
    logits, accepted = drafted(100)
    logits[60:, 2] = np.nan
    summary = confidence_summary(records_of(logits, np.minimum(accepted, 2)), methods=["raw"])
    assert summary["rounds"].tolist() == [50, 50, 10]


def test_a_threshold_trades_length_for_the_share_that_is_accepted(records):
    frame = threshold_frame(records)
    assert frame["threshold"].tolist() == [step / 10 for step in range(10)]
    assert frame["verified_tokens"][0] == 4
    _, accepted = drafted()
    assert frame["accepted_tokens"][0] == pytest.approx(1 + accepted.mean())
    assert frame["verified_tokens"].is_monotonic_decreasing
    assert frame["accepted_tokens"].is_monotonic_decreasing
    assert frame["verify_rate"].is_monotonic_increasing
    assert np.allclose(
        frame["accepted_tokens"] + frame["rejected_tokens"], frame["verified_tokens"]
    )


def test_a_threshold_is_counted_by_hand():
    logits = np.array([[2.0, -2.0, 2.0], [2.0, 2.0, -2.0]])
    row = threshold_frame(records_of(logits, np.array([3, 1])), thresholds=[0.5]).iloc[0]
    assert row["verified_tokens"] == 2.5 and row["accepted_tokens"] == 2
    assert row["verify_rate"] == 0.8 and row["rounds"] == 2


def changed(records: pd.DataFrame, **columns) -> pd.DataFrame:
    return records.head(6).assign(**columns)


def test_records_that_cannot_be_are_refused(records):
    with pytest.raises(ValueError, match="missing: logit"):
        confidence_frame(records.drop(columns="logit"))
    with pytest.raises(ValueError, match="missing: every row"):
        confidence_summary(records.head(0))
    with pytest.raises(ValueError, match="round 0 has position 1 more than once"):
        threshold_frame(pd.concat([records, records.head(1)]))
    with pytest.raises(ValueError, match="accepted must be the same"):
        rounds_of(changed(records, accepted=range(6)))
    with pytest.raises(ValueError, match="positions must be 1, 2"):
        rounds_of(records[records["position"] > 1])
    with pytest.raises(ValueError, match="lies in 0..3"):
        rounds_of(changed(records, accepted=4))
    with pytest.raises(ValueError, match="3 of one prompt or round. Draft"):
        confidence_frame(records.head(9).assign(prompt=0))
    with pytest.raises(ValueError, match="in 0..1"):
        threshold_frame(records, thresholds=[2.0])


def test_rounds_with_an_unknown_end_are_refused_and_those_with_a_known_one_are_not(records):
    assert len(rounds_of(changed(records, accepted=1, verified=2))) == 1
    with pytest.raises(ValueError, match="Record with the whole block verified"):
        rounds_of(changed(records, accepted=2, verified=2))
