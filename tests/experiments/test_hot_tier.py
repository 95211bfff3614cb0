"""The hot-tier sweep: what its arms hold equal, how its models begin, what its claims say."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from engram_lab.configs import fingerprint
from engram_lab.experiments import run
from engram_lab.experiments.catalog.engram_hot_tier import (
    ENGRAM_HOT_TIER,
    HOT_SHARE,
    HotTierRun,
    hot_tier_model,
    hot_tier_run,
)
from engram_lab.experiments.catalog.engram_hot_tier_coverage import ENGRAM_HOT_TIER_COVERAGE
from engram_lab.experiments.hot_tier_claims import hot_tier_claims, null_sentence
from engram_lab.experiments.verdict import Verdict
from engram_lab.memory.hot import HotHash, HotTable
from engram_lab.memory.keys import count_keys
from engram_lab.memory.layout import table_layout
from engram_lab.training.data import load_data
from tests.experiments.frames import loss_frame

ROWS = 400
HEADS = 2


def model_of(arm: str, seed: int = 0):
    config = hot_tier_run(ROWS, arm, seed)
    torch.manual_seed(config.run.seed)
    return hot_tier_model(config)


def order_rows(config) -> list[int]:
    """Hashed rows of every order, all heads together."""
    return [sum(primes) for primes in table_layout(config)[config.layer_ids[0]]]


def tables(model) -> set[int]:
    return {id(memory.table) for memory in model.memories.values()}


@pytest.mark.parametrize("scale", ["tiny", "workshop", "full"])
def test_arms_with_a_hot_tier_have_the_rows_of_hashing_alone(scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    for rows in {point["rows"] for point in ENGRAM_HOT_TIER.points()}:
        hash_run = hot_tier_run(rows, "hash", 0).run
        for arm in ("hot_cold", "random_keys"):
            config = hot_tier_run(rows, arm, 0)
            assert config.run.data == hash_run.data and config.run.train == hash_run.train
            whole, cold = order_rows(hash_run.model.engram), order_rows(config.run.model.engram)
            for before, hashed, hot in zip(whole, cold, config.hot_keys, strict=True):
                assert hashed + HEADS * hot == pytest.approx(before, abs=HEADS / 2)
                assert HEADS * hot == pytest.approx(HOT_SHARE * before, rel=0.1)


def test_points_are_different_runs_with_three_seeds_and_every_arm(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    points = ENGRAM_HOT_TIER.points()
    names = {fingerprint(ENGRAM_HOT_TIER.configure(**point)) for point in points}
    assert len(names) == len(points)
    frame = pd.DataFrame(points)
    assert (frame.groupby(["rows", "arm"])["seed"].nunique() == 3).all()
    assert {"hash", "hot_cold", "random_keys"} <= set(frame[frame["rows"] == 2_000]["arm"])
    assert {"smaller", "larger"} <= set(frame["arm"])


def test_all_but_the_rows_begins_alike_in_every_arm():
    first, *others = (model_of(arm) for arm in ("hash", "hot_cold", "random_keys", "larger"))
    start = {name: value for name, value in first.named_parameters() if "table" not in name}
    assert start
    for other in others:
        given = dict(other.named_parameters())
        for name, value in start.items():
            assert torch.equal(value, given[name]), name
    another = dict(model_of("hash", seed=1).named_parameters())
    assert any(not torch.equal(value, another[name]) for name, value in start.items())


def test_memories_share_one_table_and_hot_rows_are_part_of_it():
    hashed, hot = model_of("hash"), model_of("hot_cold")
    assert len(hashed.memories) == 2 and len(tables(hashed)) == len(tables(hot)) == 1
    memory = next(iter(hot.memories.values()))
    assert isinstance(memory.hash, HotHash) and isinstance(memory.table, HotTable)
    rows = [len(next(iter(model.memories.values())).table.weight) for model in (hashed, hot)]
    assert rows[0] == pytest.approx(rows[1], abs=2)  # half a row a head is rounded away


def test_hot_keys_are_the_most_frequent_ones_of_the_training_text():
    config = hot_tier_run(ROWS, "hot_cold", 0)
    model, data = model_of("hot_cold"), load_data(config.run)
    memory_hash = next(iter(model.memories.values())).hash
    for order, keys in count_keys(memory_hash, data.train, data.compression).items():
        index = memory_hash.indices[str(order)]
        found = index.find([torch.from_numpy(word) for word in keys.words]).numpy() >= 0
        assert found.sum() == index.size
        assert keys.counts[found].min() >= keys.counts[~found].max()
    by_chance = next(iter(model_of("random_keys").memories.values())).hash.indices["2"]
    assert by_chance.size == memory_hash.indices["2"].size


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="arm must be one of hash.*got 'warm'"):
        hot_tier_run(ROWS, "warm", 0)
    config = hot_tier_run(ROWS, "hot_cold", 0)
    with pytest.raises(ValueError, match="frequent or random; got 'best'"):
        HotTierRun(run=config.run, hot_keys=config.hot_keys, chosen="best")
    with pytest.raises(ValueError, match="keys must lie in"):
        hot_tier_model(replace(config, hot_keys=(10**6, 10**6)))


def test_claims_find_a_planted_gain_and_a_planted_null():
    arms = {"hash": 0.0, "hot_cold": -0.05, "random_keys": 0.02}
    losses = loss_frame(arms, noise=0.002).assign(rows=400)
    gain, control = hot_tier_claims(losses)
    assert gain.outcome == control.outcome == "supported"
    assert gain.difference == pytest.approx(-0.05, abs=0.003)
    assert "there is a difference" in null_sentence(gain)
    same = loss_frame(dict.fromkeys(arms, 0.0), noise=0.002).assign(rows=400)
    assert "no difference to speak of" in null_sentence(hot_tier_claims(same)[0])


def test_one_seed_decides_nothing():
    one = Verdict(claim="A", difference=0.0, low=-0.001, high=0.001, n_seeds=1, n_documents=9)
    assert "not decided" in null_sentence(one) and "one seed" in null_sentence(one)


def test_a_wide_interval_decides_nothing():
    wide = Verdict(claim="A", difference=0.0, low=-0.02, high=0.02, n_seeds=3, n_documents=9)
    assert "not decided" in null_sentence(wide)
    with pytest.raises(ValueError, match="positive width; got 0.0"):
        null_sentence(wide, width=0.0)


@pytest.mark.slow  # trains five tiny models
def test_the_sweep_runs_from_nothing_to_a_frame():
    frame = run(ENGRAM_HOT_TIER)
    assert set(frame["arm"]) == {"hash", "hot_cold", "random_keys", "smaller", "larger"}
    shares = frame.groupby("arm")["hot_share_2"].first()
    assert shares["hash"] == 0 < shares["random_keys"] < shares["hot_cold"]
    assert frame["loss_nats"].notna().all() and (frame["keys_2"] > ROWS).all()


def test_coverage_of_one_half_is_heard_by_the_other():
    frame = run(ENGRAM_HOT_TIER_COVERAGE)
    assert (frame["tokens"] + frame["heard_tokens"] == 20_000).all()
    known = frame[frame["hot_keys"] <= frame["keys"]]
    assert (known["heard_coverage"] <= known["coverage"] + 0.05).all()
    assert known.groupby("order")["coverage"].is_monotonic_increasing.all()
