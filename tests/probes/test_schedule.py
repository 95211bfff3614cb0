"""Replay of length rules: sums by hand, load, regret, the quality of confidences."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.draft.costs import affine, roofline
from engram_lab.draft.schedule import FixedLength, PrefixScheduler, TopK
from engram_lab.probes.confidence import records_of
from engram_lab.probes.schedule import (
    PLAIN,
    QUALITIES,
    Traces,
    batch_frame,
    default_rules,
    schedule_frame,
    traces_of,
    walk_frame,
)
from tests.probes.drafted_rounds import drafted

COSTS = roofline(base=0.02, free_tokens=32)


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return records_of(*drafted(800, positions=5))


@pytest.fixture(scope="module")
def traces(records) -> Traces:
    return traces_of(records)


@pytest.fixture(scope="module")
def frame(traces) -> pd.DataFrame:
    return schedule_frame(traces, COSTS, concurrency=(1, 8, 64), steps=32)


def of(frame: pd.DataFrame, policy: str, column: str) -> list[float]:
    return frame.loc[frame["policy"] == policy, column].tolist()


def test_the_second_half_is_replayed_with_a_fit_on_the_first(records, traces):
    _, accepted = drafted(800, positions=5)
    assert np.array_equal(traces.accepted, accepted[400:])
    raw = traces_of(records, quality="raw").confidences
    assert traces.confidences.mean() < raw.mean()


def test_the_mean_rate_says_the_same_of_every_request(records):
    confidences = traces_of(records, quality="mean").confidences
    _, accepted = drafted(800, positions=5)
    assert (confidences == confidences[0]).all()
    assert confidences[0, 0] == (accepted[:400] > 0).mean()


def test_sums_are_those_by_hand():
    traces = Traces(confidences=np.full((4, 3), 0.9), accepted=np.full(4, 2))
    costs = affine(base=1.0, per_token=0.5)
    frame = schedule_frame(
        traces,
        costs,
        draft_costs=affine(base=2.0, per_token=0.0001),
        rules=[FixedLength(length=3)],
        concurrency=(2,),
        steps=5,
    )
    fixed = frame[frame["policy"] == "fixed 3"].iloc[0]
    assert fixed["verified_tokens"] == 4 and fixed["accepted_length"] == 3
    assert fixed["tokens_per_s"] == pytest.approx(6 / (5 + 2.0002))
    assert fixed["tokens_per_s_user"] == fixed["tokens_per_s"] / 2
    plain = frame[frame["policy"] == PLAIN].iloc[0]
    assert plain["tokens_per_s"] == pytest.approx(2 / 2) and plain["verified_tokens"] == 1


def test_lengths_shrink_under_load_and_fixed_ones_do_not(frame):
    scheduled = of(frame, "early stop", "verified_tokens")
    assert scheduled[0] > 5 > scheduled[1] > scheduled[2] >= 1
    assert of(frame, "fixed 5", "verified_tokens") == [6, 6, 6]


def test_a_schedule_is_never_far_below_plain_decoding_where_a_whole_block_is(frame):
    plain, fixed, scheduled = (
        of(frame, policy, "tokens_per_s") for policy in (PLAIN, "fixed 5", "early stop")
    )
    assert fixed[2] < 0.7 * plain[2] and scheduled[2] >= 0.99 * plain[2]
    assert scheduled[0] > 2 * plain[0]


def test_regret_is_nothing_for_the_bound_and_never_negative(frame):
    assert np.allclose(of(frame, "unrestricted", "regret"), 0)
    assert (frame["regret"] > -1e-12).all()
    assert frame.loc[~frame["causal"], "policy"].unique().tolist() == ["unrestricted"]


def test_confidence_that_knows_the_request_beats_the_mean_rate(records):
    speeds = [
        of(
            schedule_frame(
                traces_of(records, quality=quality), COSTS, concurrency=(16,), steps=100
            ),
            "early stop",
            "tokens_per_s",
        )[0]
        for quality in ("mean", "sequential")
    ]
    assert speeds[0] < speeds[1]


@pytest.mark.parametrize("quality", QUALITIES)
def test_the_last_batch_is_what_the_rules_chose(records, quality: str):
    traces = traces_of(records, quality=quality)
    rules = default_rules(5, COSTS)
    batch = batch_frame(traces, rules, concurrency=8, steps=3)
    assert batch["policy"].nunique() == len(rules) and len(batch) == 8 * len(rules)
    assert (batch["kept"] == batch[["length", "accepted"]].min(axis=1)).all()
    walk = walk_frame(traces, COSTS, concurrency=8, steps=3)
    assert walk["admitted"].sum() - 1 == batch.loc[batch.policy == "early stop", "length"].sum()


def test_a_rule_that_remembers_starts_every_replay_afresh(traces):
    rules = [TopK(costs=COSTS)]
    first = batch_frame(traces, rules, concurrency=4, steps=1)
    schedule_frame(traces, COSTS, rules=rules, concurrency=(4,), steps=5)
    pd.testing.assert_frame_equal(first, batch_frame(traces, rules, concurrency=4, steps=1))


def test_domains_are_one_traffic():
    both = pd.concat(
        [
            records_of(*drafted(40, positions=2), domain="chat"),
            records_of(*drafted(40, positions=4, seed=1), domain="code"),
        ]
    )
    traces = traces_of(both, quality="raw")
    assert traces.confidences.shape == (40, 4)
    assert np.isnan(traces.confidences[:20, 2:]).all()
    rules = [PrefixScheduler(costs=COSTS)]
    assert len(schedule_frame(traces, COSTS, rules=rules, concurrency=(3,), steps=2)) == 2


def test_misuse_is_named(records, traces):
    with pytest.raises(ValueError, match="one of raw, .*, mean; got 'best'"):
        traces_of(records, quality="best")
    with pytest.raises(ValueError, match="at least 1 step"):
        schedule_frame(traces, COSTS, steps=0)
    with pytest.raises(ValueError, match="needs steps and requests"):
        batch_frame(traces, default_rules(5, COSTS), concurrency=0)
