"""Agreement of counts with predictions: sound tables pass, a biased hash does not."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.experiments.collision_claims import agreement, collision_claims, head_claim


def tables(bias=0.0, number=60, seed=0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"keys": [10_000] * number, "predicted_share": 0.3})
    frame["share_error"], frame["traffic_error"] = 0.003, 0.02
    frame["collided_share"] = 0.3 + 0.003 * (draw.normal(size=number) + bias)
    frame["traffic_share"] = 0.3 + 0.02 * draw.normal(size=number)
    return frame


def test_sound_tables_are_supported_and_say_so():
    keys, look_ups = collision_claims(tables(), where="text")
    assert keys.outcome == look_ups.outcome == "supported"
    assert keys.tables == 60 and str(keys) == keys.sentence
    assert keys.sentence.startswith("text: the share of keys in company is the predicted one")


def test_a_small_bias_of_every_table_and_one_table_far_off_are_seen():
    assert collision_claims(tables(bias=1.0), where="text")[0].outcome == "contradicted"
    deviations = np.zeros(60)
    deviations[7] = 5.0
    assert agreement(deviations, claim="x").outcome == "contradicted"


def test_hardly_a_sound_hash_is_refused():
    draw = np.random.default_rng(1)
    passed = [agreement(draw.normal(size=40), claim="x").outcome for _ in range(300)]
    assert passed.count("contradicted") <= 15  # 2 % are expected: two tests at 1 % each


def test_tables_without_anybody_alone_are_left_out():
    full = tables().assign(predicted_share=1.0)
    with pytest.raises(ValueError, match="needs a table with 10 keys expected"):
        collision_claims(full, where="text")
    both = pd.concat([tables(), full])
    assert collision_claims(both, where="text")[0].tables == 60


def test_heads_are_judged_by_their_own_error():
    error = np.sqrt(0.3 * 0.7 / 10_000)
    draw = np.random.default_rng(0).normal(size=20)
    frame = pd.DataFrame({"keys": 10_000, "predicted_share": 0.3}, index=range(20))
    good = frame.assign(collided_share=0.3 + error * draw)
    assert head_claim(good, where="heads").outcome == "supported"
    assert head_claim(good.assign(collided_share=0.35), where="heads").outcome == "contradicted"
    with pytest.raises(ValueError, match="needs rows with 10 keys"):
        head_claim(good.assign(predicted_share=0.0), where="heads")


def test_no_deviation_is_refused():
    with pytest.raises(ValueError, match="at least one deviation"):
        agreement(np.zeros(0), claim="x")
