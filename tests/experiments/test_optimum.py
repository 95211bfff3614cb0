"""The optimum of an allocation curve: planted minima, flat and monotone curves, parity."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.experiments.optimum import optimum, optimum_frame
from engram_lab.experiments.paired import Bootstrap
from tests.experiments.frames import loss_frame

RATIOS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


def curve(shape, ratios=RATIOS, **options):
    return loss_frame({r: shape(r) for r in ratios}, by="allocation_ratio", **options)


def bowl(ratio):
    return 0.3 * (ratio - 0.7) ** 2


def test_a_planted_minimum_is_found_with_an_interval_around_it():
    found = optimum(curve(bowl))
    assert found.ratio == pytest.approx(0.7, abs=0.05)
    assert found.low < 0.7 < found.high
    assert found.cubic_ratio == pytest.approx(0.7, abs=0.1)
    assert found.fitted_on == (0.25, 0.5, 0.75, 0.9)
    assert found.best_ratio == 0.75
    assert found.outcome == "supported"
    assert "Minimum of the fit at ρ* = 0.69" in found.sentence
    assert found.against_experts.difference == pytest.approx(bowl(0.75) - bowl(1), abs=0.01)


def test_a_monotone_curve_is_a_contradiction():
    found = optimum(curve(lambda ratio: -0.2 * ratio))
    assert found.outcome == "contradicted"
    assert found.parity is None and "no ratio beats 1" in found.parity_note


def test_a_flat_curve_is_not_supported():
    outcomes = [optimum(curve(lambda _: 0.0, seed=seed)).outcome for seed in range(10)]
    assert outcomes.count("supported") <= 2  # the best of four is chosen on the same documents


def test_a_curve_bent_the_other_way_has_its_minimum_at_an_end():
    found = optimum(curve(lambda ratio: -0.3 * (ratio - 0.4) ** 2))
    assert found.ratio == 1.0
    assert found.interior_share < 0.05
    assert "no minimum between 0 and 1" in found.sentence


def test_parity_is_where_the_curve_comes_back_to_the_loss_of_experts_alone():
    assert optimum(curve(bowl, noise=0.0)).parity == pytest.approx(0.423, abs=0.001)


def test_a_parity_that_is_not_reached_is_said_so():
    found = optimum(curve(lambda ratio: 0.3 * (ratio - 0.4) ** 2, noise=0.0))
    assert found.parity is None
    assert "parity not reached: ratio 0 still beats 1" in found.sentence


def test_without_both_ends_nothing_is_supported():
    found = optimum(curve(bowl, ratios=(0.25, 0.5, 0.75, 1.0)))
    assert found.against_memory is None
    assert found.outcome == "undecided"
    assert "ratio 0 was not measured" in found.sentence


def test_three_ratios_are_fitted_with_their_ends():
    found = optimum(curve(bowl, ratios=(0.0, 0.75, 1.0), noise=0.0))
    assert found.ratio == pytest.approx(0.7)
    assert np.isnan(found.cubic_ratio)


def test_curves_are_fitted_at_realised_ratios():
    frame = curve(bowl, noise=0.0)
    shifted = frame.assign(realised_ratio=frame["allocation_ratio"] * 0.8)
    assert optimum(shifted).ratio == pytest.approx(0.56)
    assert optimum(shifted).best_ratio == 0.75


def test_more_documents_make_the_interval_narrower():
    few, many = (optimum(curve(bowl, documents=n)) for n in (20, 500))
    assert many.high - many.low < 0.5 * (few.high - few.low)


@pytest.mark.parametrize("ratios", [(0.5, 1.0), (0.0, 1.0)])
def test_too_few_ratios_are_refused(ratios):
    with pytest.raises(ValueError, match="at least three ratios"):
        optimum(curve(bowl, ratios=ratios))


def test_optimum_frame_has_one_curve_a_row():
    frames = [curve(bowl).assign(static_share=share) for share in (0.2, 0.8)]
    table = optimum_frame(pd.concat(frames), "static_share", bootstrap=Bootstrap(resamples=200))
    assert table["static_share"].tolist() == [0.2, 0.8]
    assert {"ratio", "low", "high", "outcome", "sentence"} <= set(table)
