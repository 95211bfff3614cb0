"""The floor of a calibration error: what honest confidences show, against draws."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.draft.reliability import reliability_by_position
from engram_lab.probes.confidence import confidence_frame, confidence_summary, records_of
from engram_lab.probes.confidence_floor import chance_gap, floor_frame


def test_a_bin_strays_as_far_as_a_binomial_does():
    predicted = np.array([0.02, 0.3, 0.5, 0.97])
    count = np.array([7, 20, 1, 50])
    draws = np.random.default_rng(0).binomial(count, predicted, size=(200_000, 4)) / count
    assert chance_gap(predicted, count) == pytest.approx(
        np.abs(draws - predicted).mean(0), rel=0.02
    )
    assert chance_gap(np.array([0.0, 1.0]), np.array([5, 5])).tolist() == [0, 0]


def test_honest_confidences_lie_at_their_floor():
    rng = np.random.default_rng(1)
    parts = []
    for seed in range(12):
        confidence = rng.random((300, 1))
        accepted = (rng.random(300) < confidence[:, 0]).astype(np.int64)
        bins = reliability_by_position(confidence, accepted)
        parts.append(bins.assign(seed=seed, method="raw"))
    frame = floor_frame(pd.concat(parts, ignore_index=True))
    assert len(frame) == 12 and (frame["rounds"] == 300).all()
    assert frame["ece"].mean() == pytest.approx(frame["floor"].mean(), rel=0.1)


def test_the_error_is_that_of_the_summary_and_the_rest_is_above_the_floor():
    rng = np.random.default_rng(2)
    logits = rng.standard_normal((200, 3))
    accepted = (rng.random((200, 3)) < 0.3).cumprod(1).sum(1)
    records = records_of(logits, accepted, domain="code", seed=0)
    frame = floor_frame(confidence_frame(records))
    both = frame.merge(confidence_summary(records), on=["domain", "seed", "method", "position"])
    assert len(both) == len(frame) == 12
    assert both["ece_x"].to_numpy() == pytest.approx(both["ece_y"].to_numpy())
    assert (frame["excess"] >= 0).all() and frame["floor"].between(0.01, 0.2).all()
    assert (frame["excess"] <= frame["ece"]).all()


def test_bins_that_lack_something_are_refused():
    with pytest.raises(ValueError, match="missing: observed, count"):
        floor_frame(pd.DataFrame({"method": ["raw"], "position": [1], "predicted": [0.5]}))
