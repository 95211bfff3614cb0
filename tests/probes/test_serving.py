"""Frames of serving: a row for every policy and load, regret, and gains at matched points."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.draft.costs import roofline
from engram_lab.draft.serving import Engine, Load
from engram_lab.draft.serving_policies import standard_policies
from engram_lab.probes.serving import matched_gains, serving_frame
from tests.draft.synthetic_rounds import made_up

COSTS = roofline(base=0.02, free_tokens=48)
ENGINE = Engine(verify_seconds=COSTS)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    loads = [Load(users=users, rounds=2_000, warmup=200) for users in (8, 64)]
    return serving_frame(made_up(1_000), standard_policies(COSTS, block_size=5), ENGINE, loads)


def test_every_policy_has_a_row_for_every_load(frame):
    assert len(frame) == 8 * 2 and not frame.duplicated(["policy", "concurrency"]).any()
    assert set(frame["concurrency"]) == {8.0, 64.0} and frame["rate_per_s"].isna().all()
    assert frame.drop(columns="rate_per_s").notna().all(axis=None)


def test_budgets_shrink_with_load_and_fixed_ones_do_not(frame):
    verified = frame.pivot(index="policy", columns="concurrency", values="verified_tokens")
    assert (verified.loc["MTP-1"] == 2).all() and (verified.loc["whole block"] == 6).all()
    assert verified.loc["early stop", 64] < verified.loc["early stop", 8] - 1


def test_regret_is_what_is_lost_to_the_oracle(frame):
    regret = frame.pivot(index="policy", columns="concurrency", values="regret")
    assert (regret.loc["oracle"] == 0).all()
    assert regret.loc["whole block", 64] > 0.4 > 0.1 > regret.loc["early stop", 64]
    assert regret.loc["plain decoding", 8] > 0.5


def test_without_an_oracle_regret_counts_from_the_best():
    policies = standard_policies(COSTS, block_size=5)[:3]
    load = Load(users=64, rounds=640, warmup=0)
    regret = serving_frame(made_up(500), policies, ENGINE, [load]).set_index("policy")["regret"]
    assert regret.min() == 0 == regret["plain decoding"]


def test_an_open_loop_has_a_rate_and_no_regret():
    policies = standard_policies(COSTS, block_size=5)[:2]
    load = Load(rate_per_s=20.0, output_tokens=20, rounds=600, warmup=60)
    frame = serving_frame(made_up(500), policies, ENGINE, [load])
    assert (frame["rate_per_s"] == 20).all() and frame["regret"].isna().all()
    assert np.allclose(frame["concurrency"], frame["mean_running"])


def planted(**speeds: float) -> pd.DataFrame:
    """Policies whose throughput is 1000 x (1 - speed / top)."""
    rows = [
        {"policy": name, "concurrency": n, "tokens_per_s_user": top * (1 - share)}
        | {"tokens_per_s": 1_000 * share}
        for name, top in speeds.items()
        for n, share in enumerate((0.1, 0.3, 0.5, 0.7, 0.9), 1)
    ]
    return pd.DataFrame(rows)


def test_gains_are_read_at_equal_throughput_and_at_equal_speed():
    rows = planted(**{"MTP-1": 100.0, "early stop": 150.0})
    gains = matched_gains(rows).set_index("concurrency")
    assert np.allclose(gains["speed_gain"], 0.5)
    # at a speed of 50 the baseline gives 500 tokens a second, the other 1000 x (1 - 50 / 150)
    assert gains.loc[3, "throughput_gain"] == pytest.approx(2 / 3 / 0.5 - 1)
    # at a speed of 10 the other was not measured
    assert np.isnan(gains.loc[5, "throughput_gain"])


def test_points_that_another_beats_in_both_do_not_bend_the_frontier():
    rows = planted(**{"MTP-1": 100.0, "early stop": 150.0})
    late = {"policy": "early stop", "concurrency": 9, "tokens_per_s_user": 10, "tokens_per_s": 800}
    bent = pd.concat([rows, pd.DataFrame([late])])
    pd.testing.assert_frame_equal(matched_gains(bent), matched_gains(rows))


def test_curves_are_kept_apart_and_each_needs_its_baseline():
    rows = planted(**{"MTP-1": 100.0, "early stop": 150.0})
    two = pd.concat([rows.assign(seed=0), rows.assign(seed=1)])
    assert len(matched_gains(two, by=["seed"])) == 10
    with pytest.raises(ValueError, match="compares with 'MTP-3', which .* lacks"):
        matched_gains(rows, baseline="MTP-3")
    with pytest.raises(ValueError, match="missing: tokens_per_s_user"):
        matched_gains(rows.drop(columns="tokens_per_s_user"))


def test_nothing_to_serve_is_refused():
    load = Load(users=1, rounds=10)
    with pytest.raises(ValueError, match="policies with different names and a load; got .. and 1"):
        serving_frame(made_up(10), [], ENGINE, [load])
    policies = standard_policies(COSTS, block_size=5)
    with pytest.raises(ValueError, match="and 0 loads"):
        serving_frame(made_up(10), policies, ENGINE, [])
