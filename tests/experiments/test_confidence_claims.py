"""Claims on confidence, on planted errors and areas."""

import itertools

import numpy as np
import pandas as pd
import pytest

from engram_lab.experiments.confidence_claims import (
    calibration_claims,
    method_claims,
    ranking_claims,
    threshold_claims,
)

ERRORS = {"raw": 0.08, "sequential": 0.03, "online": 0.05}
SEED = {0: 0.0, 1: 0.001, 2: -0.002}


def planted(errors: dict[str, float] = ERRORS, *, area: float = 0.85) -> pd.DataFrame:
    grid = itertools.product(("code", "prose"), SEED, errors, range(1, 8))
    return pd.DataFrame(
        [
            {"domain": domain, "seed": seed, "method": method, "position": position}
            | {"ece": errors[method] + SEED[seed], "auc": area + SEED[seed], "rounds": 100 + seed}
            for domain, seed, method, position in grid
        ]
    )


def test_ranking_is_claimed_at_every_published_position():
    verdicts = ranking_claims(planted())
    assert [v.outcome for v in verdicts] == ["supported"] * 8
    assert verdicts[1].claim.startswith("code, position 3: ") and verdicts[1].n_documents == 100
    assert verdicts[0].difference == pytest.approx(-0.1 + 0.001 / 3)
    assert {v.outcome for v in ranking_claims(planted(area=0.6))} == {"contradicted"}


def test_where_all_prefixes_agree_nothing_is_ranked():
    frame = planted()
    dead = (frame["position"] == 7) & (frame["domain"] == "prose") & (frame["seed"] == 1)
    verdicts = ranking_claims(frame.assign(auc=frame["auc"].mask(dead)))
    assert len(verdicts) == 7 and "prose, position 7" not in str(verdicts)


def test_an_error_must_fall_by_half():
    verdicts = calibration_claims(planted())
    assert [v.outcome for v in verdicts] == ["supported"] * 2
    assert verdicts[0].difference == pytest.approx(0.03 - 0.04, abs=1e-3)
    less = calibration_claims(planted(ERRORS | {"sequential": 0.06}))
    assert {v.outcome for v in less} == {"contradicted"}


def test_error_beyond_chance_is_a_claim_of_its_own():
    frame = planted().assign(excess=lambda rows: rows["ece"] - 0.029)
    verdicts = calibration_claims(frame, measure="excess")
    assert verdicts[0].outcome == "supported" and "error beyond chance" in verdicts[0].claim
    assert verdicts[0].difference == pytest.approx(0.001 - 0.0255, abs=1e-3)


def test_two_calibrations_are_compared_seed_by_seed():
    verdicts = method_claims(planted())
    assert [v.outcome for v in verdicts] == ["contradicted"] * 2
    assert verdicts[0].by_seed == pytest.approx((0.02,) * 3)
    with pytest.raises(ValueError, match="missing: isotonic"):
        method_claims(planted(), "isotonic")


def test_short_blocks_are_judged_at_the_positions_they_have():
    short = planted()[lambda rows: rows["position"] <= 4]
    assert len(ranking_claims(short)) == 4
    with pytest.raises(ValueError, match=r"positions \[9\]; missing: raw"):
        ranking_claims(short, positions=[9])


def thresholds(passed: float = 0.7) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A head whose drafts above 0.5 are kept in `passed`; first drafts in 0.5, all in 0.2."""
    drafts = {0.0: (7.0, 1.4), 0.5: (0.6, 0.6 * passed), 0.9: (0.0, 0.0)}
    frame = [
        {"domain": "code", "seed": seed, "threshold": threshold, "rounds": 100}
        | {"verified_tokens": 1 + verified, "accepted_tokens": 1 + kept * (1 + SEED[seed])}
        for seed, (threshold, (verified, kept)) in itertools.product(SEED, drafts.items())
    ]
    bins = [
        {"domain": "code", "seed": seed, "method": "raw", "position": 1, "bin": place}
        | {"observed": observed, "count": count}
        for seed, (place, observed, count) in itertools.product(SEED, [(3, 0.4, 30), (9, 0.8, 10)])
    ]
    return pd.DataFrame(frame), pd.DataFrame(bins)


def test_a_threshold_is_compared_with_whole_blocks_and_with_first_drafts():
    whole, first = threshold_claims(*thresholds())
    assert whole.outcome == first.outcome == "supported"
    assert whole.difference == pytest.approx(-0.5, abs=1e-3)
    assert first.difference == pytest.approx(-0.2, abs=1e-3)


def test_a_head_that_only_knows_positions_beats_whole_blocks_alone():
    outcomes = [verdict.outcome for verdict in threshold_claims(*thresholds(passed=0.45))]
    assert outcomes == ["supported", "contradicted"]


def test_a_threshold_that_no_draft_passes_claims_nothing():
    frame, bins = thresholds()
    assert threshold_claims(frame, bins, threshold=0.9) == []
    with pytest.raises(ValueError, match=r"missing: \[0.3\]"):
        threshold_claims(frame, bins, threshold=0.3)


def test_rows_of_several_drafters_or_without_seeds_are_refused():
    frame = planted()
    with pytest.raises(ValueError, match="missing: seed"):
        ranking_claims(frame.drop(columns="seed"))
    mixed = frame.assign(drafter=np.where(frame["seed"] > 0, "dspark", "parallel"))
    with pytest.raises(ValueError, match="several drafters"):
        calibration_claims(mixed)
