"""Serving in the catalogue: configs, claims on planted frames, and the sweep at tiny scale."""

import itertools

import numpy as np
import pandas as pd
import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import run
from engram_lab.experiments.catalog import dspark_serving
from engram_lab.experiments.catalog.dspark_serving import DSPARK_SERVING, serving_run
from engram_lab.experiments.serving_claims import claim_by_curve, serving_claims

LEADS = {"stale capacity": 1.0, "MTP-1": 0.7, "whole block": 0.9, "threshold": 0.8}


def planted(leads: dict[str, float] = LEADS, *, shrink: float = 2.0) -> pd.DataFrame:
    """Throughput rises with the root of the users; seeds differ by a few per cent."""
    noise = np.random.default_rng(0)
    rows = [
        {
            "seed": seed,
            "policy": policy,
            "concurrency": float(users),
            "tokens_per_s": 100 * lead * users**0.5 * (1 + 0.01 * noise.standard_normal()),
            "verified_tokens": 6 - shrink * users / 64 if policy == "stale capacity" else 2.0,
        }
        for seed, (policy, lead), users in itertools.product(range(3), leads.items(), (1, 8, 64))
    ]
    frame = pd.DataFrame(rows)
    return frame.assign(tokens_per_s_user=frame["tokens_per_s"] / frame["concurrency"])


def test_every_point_is_a_run_of_its_own_with_all_three_seeds(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    points = pd.DataFrame(DSPARK_SERVING.points())
    assert (points.groupby(["domain", "costs"])["seed"].nunique() == 3).all()
    runs = {fingerprint(serving_run(**point)) for point in DSPARK_SERVING.points()}
    assert len(runs) == len(points) == 27


def test_points_of_a_seed_share_their_drafter():
    one, other = (serving_run(costs, "structured", 0) for costs in ("affine", "staircase"))
    assert one.drafter == other.drafter and one.costs != other.costs
    with pytest.raises(ValueError, match="costs must be one of affine, roofline, staircase and"):
        serving_run("free", "structured", 0)


def test_costs_double_where_large_batches_begin():
    for curve in dspark_serving.CURVES.values():
        assert curve(2_000) > 2 * curve(1) and curve(64) < 1.2 * curve(1)
    assert dspark_serving.DRAFTING(1) < 0.1 * dspark_serving.BASE


def test_claims_find_a_planted_lead_and_a_shrinking_budget():
    shrinks, *wins, speed = serving_claims(planted())
    assert shrinks.outcome == speed.outcome == "supported"
    assert shrinks.difference == pytest.approx(-2 * 63 / 64)
    assert [win.outcome for win in wins] == ["supported"] * 3
    assert wins[0].difference == pytest.approx(-0.3, abs=0.02)


def test_a_planted_loss_is_contradicted_and_no_difference_is_undecided():
    shrinks, win, _ = serving_claims(
        planted(LEADS | {"MTP-1": 1.2}, shrink=0.0), others=["MTP-1"], baseline="MTP-1"
    )
    assert win.outcome == "contradicted" and shrinks.outcome == "undecided"
    even = serving_claims(planted(LEADS | {"MTP-1": 1.0}), others=["MTP-1"])[1]
    assert even.outcome == "undecided"


def test_a_claim_on_several_curves_is_one_sentence():
    shrinks, win, *_ = serving_claims(planted())
    sentence = claim_by_curve({"affine": win, "staircase": win})
    assert sentence.count("supported (-0.3") == 2 and sentence.endswith("3 seeds.")
    assert sentence.startswith("stale capacity has more throughput than MTP-1, mean over loads: ")
    with pytest.raises(ValueError, match="needs verdicts on one claim"):
        claim_by_curve({"affine": win, "staircase": shrinks})


def test_claims_need_their_policies_and_two_loads():
    frame = planted()
    with pytest.raises(ValueError, match="missing: MTP-1"):
        serving_claims(frame[frame["policy"] != "MTP-1"])
    with pytest.raises(ValueError, match="missing: a second number of users"):
        serving_claims(frame[frame["concurrency"] == 8])


@pytest.mark.slow  # trains a tiny target and a tiny drafter
def test_the_sweep_runs_from_nothing_to_a_frame():
    frame = run(DSPARK_SERVING)
    assert set(frame["costs"]) == set(dspark_serving.CURVES) and len(frame) == 3 * 2 * 8
    verified = frame.groupby("policy")["verified_tokens"]
    assert (verified.get_group("MTP-1") == 2).all() and (frame["records"] > 5).all()
    assert (frame["accepted_length"] <= frame["verified_tokens"]).all()
