"""Claims about drafters on counts that are known."""

import pandas as pd
import pytest

from engram_lab.experiments.draft_claims import (
    decay_claims,
    expected_lengths,
    length_claims,
    mode_claims,
)


def lengths(gain: int) -> pd.DataFrame:
    rows = [
        {
            "drafter": drafter,
            "seed": seed,
            "domain": "code",
            "temperature": 1.0,
            "sequence": sequence,
            "rounds": 10 + sequence % 3,
            "emitted": 20 + 2 * (sequence % 3) + seed + (gain if drafter == "dspark" else 0),
        }
        for drafter in ("dspark", "parallel")
        for seed in range(3)
        for sequence in range(12)
    ]
    return pd.DataFrame(rows)


def test_a_drafter_that_gains_more_in_every_seed_is_supported() -> None:
    (verdict,) = length_claims(lengths(5), "dspark", "parallel")
    assert verdict.outcome == "supported"
    assert verdict.difference == pytest.approx(-60 / 132)
    (other,) = length_claims(lengths(5), "parallel", "dspark")
    assert other.outcome == "contradicted"


def test_equal_drafters_are_undecided() -> None:
    (verdict,) = length_claims(lengths(0), "dspark", "parallel")
    assert verdict.outcome == "undecided"
    assert verdict.difference == 0


def test_drafters_with_other_seeds_or_prompts_are_refused() -> None:
    frame = lengths(5)
    with pytest.raises(ValueError, match="same seeds"):
        length_claims(
            frame[(frame["seed"] < 2) | (frame["drafter"] == "dspark")], "dspark", "parallel"
        )
    with pytest.raises(ValueError, match="same prompts"):
        fewer = frame[(frame["sequence"] < 11) | (frame["drafter"] == "dspark")]
        length_claims(fewer, "dspark", "parallel")


def test_a_flat_drafter_falls_less_than_one_that_decays() -> None:
    rows = [
        {
            "drafter": drafter,
            "seed": seed,
            "domain": "code",
            "temperature": 1.0,
            "position": position,
            "offered": 100,
            "reached": 100 // position,
            "conditional_rate": 0.8 - fall * (position - 1) + 0.001 * seed,
        }
        for drafter, fall in (("dspark", 0.0), ("parallel", 0.1))
        for seed in range(3)
        for position in range(1, 5)
    ]
    (verdict,) = decay_claims(pd.DataFrame(rows), "dspark", "parallel")
    assert verdict.outcome == "supported"
    with pytest.raises(ValueError, match="eagle3"):
        decay_claims(pd.DataFrame(rows), "eagle3", "parallel")


def test_heads_that_see_the_mode_keep_it() -> None:
    kept = {"parallel_same": (0.5, 0.5), "dspark": (1.0, 0.5), "dspark_rnn": (1.0, 0.95)}
    rows = [
        {
            "drafter": drafter,
            "modes": 2,
            "seed": seed,
            "kind": kind,
            "position": position,
            "acceptance": values[kind == "tell"] + 0.001 * ((seed * position) % 3),
            "blocks": 100,
        }
        for drafter, values in kept.items()
        for seed in range(3)
        for kind, position in (("ask", 2), ("tell", 3))
    ]
    outcomes = [verdict.outcome for verdict in mode_claims(pd.DataFrame(rows))]
    assert outcomes == ["supported", "undecided", "supported"]
    with pytest.raises(ValueError, match="same seeds"):
        mode_claims(pd.DataFrame(rows[:-1]))


def test_expected_length_multiplies_chances_along_the_block() -> None:
    frame = lengths(0).query("drafter == 'dspark' and seed == 0")
    rounds = int(frame["rounds"].sum())
    kept = rounds // 2
    block = {
        "position": [1, 2, 3],
        "reached": [rounds, kept, 0],
        "accepted": [kept, 0, 0],
        "expected_rate": [0.5, 0.25, float("nan")],
    }
    point = {"drafter": "dspark", "seed": 0, "domain": "code", "temperature": 1.0}
    row = expected_lengths(pd.DataFrame(block).assign(**point), frame).iloc[0]
    assert row["analytic"] == pytest.approx(1 + 0.5 + 0.5 * 0.25)
    assert row["sampled"] == pytest.approx(frame["emitted"].sum() / rounds)


def test_rounds_without_a_draft_gain_one_token() -> None:
    frame = lengths(0).query("drafter == 'dspark' and seed == 0")
    point = {"drafter": "dspark", "seed": 0, "domain": "code", "temperature": 1.0, "position": 1}
    found = {"reached": frame["rounds"].sum() // 4, "accepted": 3, "expected_rate": 0.5}
    quarter = found["reached"] / frame["rounds"].sum()
    row = expected_lengths(pd.DataFrame([point | found]), frame).iloc[0]
    assert row["analytic"] == pytest.approx(1 + quarter * 0.5)
    nothing = {"reached": 0, "accepted": 0, "expected_rate": float("nan")}
    assert expected_lengths(pd.DataFrame([point | nothing]), frame).iloc[0]["analytic"] == 1
    with pytest.raises(ValueError, match="2 are in one frame alone"):
        expected_lengths(pd.DataFrame([point | found]).assign(seed=1), frame)
