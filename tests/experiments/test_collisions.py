"""The collision sweeps at tiny scale: what each varies, and what must come out of any text."""

import pytest

from engram_lab.experiments import catalog, run
from engram_lab.experiments.catalog.engram_collisions import ENGRAM_COLLISIONS_HEADS
from engram_lab.experiments.collision_claims import collision_claims
from engram_lab.memory.config import v41


def test_counts_agree_with_the_prediction_on_text():
    frame = run(catalog.ENGRAM_COLLISIONS)
    assert set(frame["order"]) == {2, 3} and frame["head"].nunique() == 8
    for claim in collision_claims(frame, where="text"):
        assert claim.outcome == "supported", claim


def test_v41_is_hashed_at_its_real_size(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    points = catalog.ENGRAM_COLLISIONS_V41.points()
    runs = [catalog.ENGRAM_COLLISIONS_V41.configure(**point) for point in points]
    assert {run.layer for run in runs} == {1, 14}
    assert all(run.memory == v41() and run.tokenizer == "deepseek_v4" for run in runs)


def test_all_ways_to_spend_a_table_have_its_parameters():
    points = ENGRAM_COLLISIONS_HEADS.points()
    for point in points:
        memory = ENGRAM_COLLISIONS_HEADS.configure(**point).memory
        rows = memory.engram_vocab_size[0]
        width = 1 if point["split"] == "rows" else 1 / memory.n_head_per_ngram
        assert rows * memory.n_head_per_ngram * width == pytest.approx(4_096)
    with pytest.raises(ValueError, match="split must be one of width, rows; got 'both'"):
        ENGRAM_COLLISIONS_HEADS.configure(split="both", heads=2)


def test_spoilt_hashes_are_found_out_and_sound_ones_are_not():
    frame = run(catalog.ENGRAM_COLLISIONS_LOADS)
    away = frame.groupby(["lengths", "multipliers"])["deviation"].apply(lambda x: x.abs().max())
    assert away["primes", "odd"] < 4 and away["power_of_two", "odd"] < 4
    assert away["power_of_two", "even"] > 10 and away["primes", "small"] > 10


def test_frequent_n_grams_suffer_less():
    frame = run(catalog.ENGRAM_COLLISIONS_FREQUENCY)
    one = frame[(frame["heads"] == 1) & (frame["order"] == 2)].sort_values("frequency")
    suffered = one["mean_interference"].to_numpy()
    assert suffered[0] > 0.3 and suffered[-1] < 0.1


def test_companions_are_strangers():
    frame = run(catalog.ENGRAM_COLLISIONS_PURITY)
    assert (frame["pairs"] > 0).all() and frame["cosine"].between(0, 1).all()


def test_heads_of_one_width_leave_less_company_and_shorter_tables_more():
    frame = run(catalog.ENGRAM_COLLISIONS_HEADS)
    share = frame[frame["order"] == 2].set_index(["split", "heads"])["collided_share"]
    assert share["width", 4] < share["width", 1] < share["rows", 4]
