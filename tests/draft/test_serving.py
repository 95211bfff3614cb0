"""Serving under load: laws of throughput, conservation of tokens, waiting, records and policies."""

import builtins
import itertools

import numpy as np
import pandas as pd
import pytest

from engram_lab.draft.costs import affine as affine_costs
from engram_lab.draft.costs import staircase
from engram_lab.draft.oracle import GlobalSearch
from engram_lab.draft.schedule import FixedLength, PrefixScheduler, TopK
from engram_lab.draft.serving import Engine, Load, simulate
from engram_lab.draft.serving_policies import Policy, standard_policies
from engram_lab.draft.serving_records import AcceptanceRecords, records_from
from tests.draft.synthetic_rounds import as_frame, constant, made_up

BLOCK = 5


def fixed(length: int, **options) -> Policy:
    return Policy(name=f"{length}", rule=FixedLength(length=length), **options)


PLAIN = fixed(0, drafts=False)


def affine(tokens: int) -> float:
    return 0.010 + 0.001 * tokens


def flat(tokens: int) -> float:
    return 0.010


@pytest.mark.parametrize("users", [1, 7])
def test_without_speculation_throughput_is_requests_times_steps_per_second(users):
    load = Load(users=users, rounds=200 * users, warmup=0)
    served = simulate(made_up(100), PLAIN, Engine(verify_seconds=affine), load)
    assert served.tokens == served.rounds
    assert served.tokens_per_s == pytest.approx(users / affine(users))
    assert served.tokens_per_s_user == pytest.approx(1 / affine(users))
    assert served.draft_share == 0 and served.verified_tokens == served.accepted_length == 1


def test_a_perfect_drafter_on_a_flat_cost_is_block_plus_one_times_as_fast():
    load = Load(users=4, output_tokens=60, same_length=True, rounds=400, warmup=0)
    engine = Engine(verify_seconds=flat)
    plain, perfect = (simulate(constant(BLOCK), p, engine, load) for p in (PLAIN, fixed(BLOCK)))
    assert perfect.tokens_per_s == pytest.approx((BLOCK + 1) * plain.tokens_per_s)


def test_drafts_that_always_fail_leave_one_token_a_step():
    load = Load(users=4, rounds=400, warmup=0)
    served = simulate(constant(0), fixed(BLOCK), Engine(verify_seconds=flat), load)
    assert served.accepted_length == 1 and served.verified_tokens == BLOCK + 1
    assert served.tokens_per_s == pytest.approx(4 / flat(1))


@pytest.mark.parametrize("load", [{"users": 9}, {"rate_per_s": 30.0}])
def test_no_token_is_lost_or_made_up(load):
    engine = Engine(verify_seconds=affine, draft_seconds=lambda n: 0.002, max_running=6)
    load = Load(**load, output_tokens=20, rounds=3_000, warmup=100)
    served = simulate(made_up(500), fixed(3), engine, load)
    assert served.tokens == served.finished_tokens + served.carried_tokens
    assert served.finished > 100
    assert served.verified == 4 * served.rounds


def test_the_same_seed_gives_the_same_run_and_another_does_not():
    load = Load(rate_per_s=20.0, output_tokens=20, rounds=1_000, warmup=50)
    engine = Engine(verify_seconds=affine)
    first, again, other = (
        simulate(made_up(500), fixed(2), engine, load, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_what_is_accepted_behind_a_cut_is_the_smaller_of_both():
    records = made_up(4_000)
    load = Load(users=100, output_tokens=10_000, rounds=30_000, warmup=0)
    for length in (1, 3, BLOCK):
        served = simulate(records.of("code"), fixed(length), Engine(verify_seconds=flat), load)
        expected = 1 + np.minimum(records.of("code").accepted, length).mean()
        assert served.accepted_length == pytest.approx(expected, abs=0.05)  # 5 standard errors


def test_mtp_1_always_verifies_two_tokens():
    load = Load(users=5, rounds=500, warmup=0)
    served = simulate(made_up(500), fixed(1), Engine(verify_seconds=affine), load)
    assert served.verified_tokens == 2 and 1 < served.accepted_length < 2


def test_drafting_takes_its_share_of_the_time_and_plain_decoding_pays_none():
    engine = Engine(verify_seconds=flat, draft_seconds=lambda n: 0.0025)
    load = Load(users=5, rounds=500, warmup=0)
    assert simulate(made_up(500), fixed(1), engine, load).draft_share == pytest.approx(0.2)
    assert simulate(made_up(500), PLAIN, engine, load).draft_share == 0


def test_a_user_beyond_the_cap_waits_and_sees_a_lower_speed():
    load = Load(users=12, output_tokens=50, same_length=True, rounds=6_000, warmup=600)
    full, half = (
        simulate(made_up(500), PLAIN, Engine(verify_seconds=flat, max_running=cap), load)
        for cap in (12, 6)
    )
    assert full.mean_wait_s == 0
    assert half.mean_wait_s == pytest.approx(50 * flat(1), rel=0.1)  # one answer of another
    assert half.tokens_per_s_user == pytest.approx(full.tokens_per_s_user / 2, rel=0.02)


def test_a_slow_trickle_of_requests_leaves_the_engine_idle_and_nobody_waits_for_a_place():
    load = Load(rate_per_s=1.0, output_tokens=10, rounds=500, warmup=0)
    served = simulate(made_up(500), PLAIN, Engine(verify_seconds=flat), load)
    assert served.busy_s / served.seconds == pytest.approx(1.0 * 10 * flat(1), rel=0.4)
    assert served.mean_wait_s < flat(1)  # who comes during a step waits for its end


def test_arrivals_are_served_as_fast_as_they_come_while_there_is_room():
    load = Load(rate_per_s=50.0, output_tokens=20, rounds=8_000, warmup=500)
    served = simulate(made_up(500), fixed(2), Engine(verify_seconds=flat), load)
    assert served.tokens_per_s == pytest.approx(50 * 20, rel=0.2)  # 160 answers: 8 %


class Spy:
    """A rule that gives one length to all, and writes down who it is asked about."""

    causal, name = True, "spy"

    def __init__(self, length: int = 0):
        self.length, self.calls = length, []

    def __call__(self, confidences, *, requests=None):
        self.calls.append(list(requests))
        return np.full(len(confidences), self.length)


def test_rules_are_told_who_the_rows_are_and_a_leaver_gives_up_the_place():
    spy = Spy()
    load = Load(users=3, output_tokens=4, rounds=60, warmup=0)
    simulate(made_up(50), Policy(name="spy", rule=spy), Engine(verify_seconds=flat), load)
    assert all(len(set(names)) == 3 for names in spy.calls)
    assert spy.calls[0] == [0, 1, 2] and max(spy.calls[-1]) > 5
    stays = [set(a) & set(b) for a, b in itertools.pairwise(spy.calls)]
    assert any(len(both) == 2 for both in stays)


def test_an_oracle_verifies_what_will_be_accepted_where_more_costs_time():
    records, costs = made_up(2_000), affine_costs(base=1.0, per_token=1e-6)
    oracle = standard_policies(costs, block_size=BLOCK)[-1]
    lengths = oracle.lengths(records.confidences, records.accepted, np.arange(2_000))
    assert (lengths == records.accepted).all() and not oracle.causal
    served = simulate(records, oracle, Engine(verify_seconds=costs), Load(users=3, rounds=300))
    assert served.verified_tokens == served.accepted_length


def test_all_but_the_two_bounds_are_causal_and_only_plain_decoding_drafts_nothing():
    policies = standard_policies(affine_costs(base=1.0, per_token=0.1), block_size=BLOCK)
    assert [p.name for p in policies if not p.causal] == ["unrestricted", "oracle"]
    assert [p.name for p in policies if not p.drafts] == ["plain decoding"]


@pytest.mark.parametrize("users", [8, 40])
@pytest.mark.parametrize("rule", [PrefixScheduler, TopK])
def test_with_honest_confidences_a_scheduler_never_does_worse_than_plain_decoding(rule, users):
    records = made_up(2_000, mean=0.5)
    costs = affine_costs(base=0.010, per_token=0.001)
    load = Load(users=users, output_tokens=400, rounds=4_000)
    scheduled = Policy(name="scheduled", rule=rule(costs=costs))
    served, plain = (
        simulate(records, policy, Engine(verify_seconds=costs), load)
        for policy in (scheduled, PLAIN)
    )
    # plain decoding is exact here, the other a mean of some thousand rounds
    assert served.tokens_per_s > 0.99 * plain.tokens_per_s


def test_a_cost_linear_in_tokens_and_even_chances_leave_at_most_one_draft():
    """Every fixed length loses here; the scheduler must see that (it once cost a third)."""
    records = AcceptanceRecords(
        confidences=np.full((4_000, BLOCK), 0.5),
        accepted=np.random.default_rng(0).geometric(0.5, 4_000).clip(max=BLOCK + 1) - 1,
        domain=np.full(4_000, "chat"),
    )
    costs = affine_costs(base=1e-4, per_token=0.001)
    load, engine = Load(users=8, rounds=4_000), Engine(verify_seconds=costs)
    scheduled = simulate(
        records, Policy(name="early stop", rule=PrefixScheduler(costs=costs)), engine, load
    )
    plain, whole = (simulate(records, policy, engine, load) for policy in (PLAIN, fixed(BLOCK)))
    assert scheduled.verified_tokens <= 2
    assert whole.tokens_per_s < 0.7 * plain.tokens_per_s
    assert scheduled.tokens_per_s >= 0.999 * plain.tokens_per_s


def test_on_a_staircase_stopping_early_costs_something_and_the_capacity_search_less():
    records = made_up(4_000)
    costs = staircase(base=0.010, rise=0.004, width=16)
    load, engine = Load(users=14, output_tokens=400, rounds=7_000), Engine(verify_seconds=costs)
    early, capacity, search = (
        simulate(records, Policy(name="rule", rule=rule(costs=costs)), engine, load).tokens_per_s
        for rule in (PrefixScheduler, TopK, GlobalSearch)
    )
    assert early < 0.95 * capacity < search


def test_a_rule_with_a_memory_begins_every_run_afresh():
    costs = affine_costs(base=0.01, per_token=0.001)
    policy = Policy(name="stale", rule=TopK(costs=costs))
    load = Load(users=3, rounds=100, warmup=0)
    engine = Engine(verify_seconds=costs)
    first, again = (simulate(made_up(200), policy, engine, load) for _ in range(2))
    assert first == again


def test_records_come_back_from_their_frame():
    records = made_up(200)
    back = records_from(as_frame(records))
    order = np.argsort(records.domain.astype(str), kind="stable")
    assert np.allclose(back.confidences, records.confidences[order], atol=1e-8)
    assert (back.accepted == records.accepted[order]).all()
    assert back.domains == ["chat", "code"] and back.block_size == BLOCK
    assert len(back.of("code").accepted) == 100


def test_calibrated_confidences_take_the_place_of_raw_ones():
    frame = as_frame(made_up(50))
    halved = records_from(frame, calibrate=lambda logits: np.full(logits.shape, 0.5))
    assert (halved.confidences == 0.5).all()


def test_rounds_that_end_inside_the_block_are_left_out():
    frame = as_frame(made_up(50))
    short = frame["round"].eq(3) & frame["position"].gt(2)
    silent = frame["round"].eq(4) & frame["position"].eq(5)
    frame = frame[~short].assign(logit=frame["logit"].mask(silent))
    assert len(records_from(frame).accepted) == 48


def test_frames_that_hold_no_records_are_refused():
    frame = as_frame(made_up(10))
    with pytest.raises(ValueError, match="missing: logit"):
        records_from(frame.drop(columns="logit"))
    with pytest.raises(ValueError, match="more than once. Keep the rows of one drafter"):
        records_from(pd.concat([frame, frame]))
    with pytest.raises(ValueError, match="accepted is a prefix length"):
        records_from(frame.assign(accepted=frame["position"] % 3))
    with pytest.raises(ValueError, match="no round has a logit at each of the 5"):
        records_from(frame[frame["position"] != frame["round"] % 5 + 1])
    with pytest.raises(ValueError, match=r"accepted of records must lie in 0..5.*got 0 to 9"):
        AcceptanceRecords(
            confidences=np.ones((2, 5)), accepted=np.array([0, 9]), domain=np.array(["a", "a"])
        )
    with pytest.raises(ValueError, match="none of .'prose'."):
        made_up(10).of("prose")


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="either users .a closed loop. or rate_per_s"):
        Load(users=3, rate_per_s=2.0)
    with pytest.raises(ValueError, match="max_running must be at least 1; got 0"):
        Engine(verify_seconds=flat, max_running=0)
    load = Load(users=2, rounds=10, warmup=0)
    spoilt = Policy(name="spoilt", rule=Spy(-1))
    with pytest.raises(ValueError, match="'spoilt' must give each of 2 requests a length in 0..5"):
        simulate(made_up(10), spoilt, Engine(verify_seconds=flat), load)
    with pytest.raises(ValueError, match="2 requests and 2 tokens needs a positive time; got 0.0"):
        simulate(made_up(10), PLAIN, Engine(verify_seconds=lambda tokens: 0.0), load)


def test_without_simpy_the_error_says_what_to_install(monkeypatch):
    load, imported = Load(users=2, rounds=10), builtins.__import__

    def refuse(name, *rest, **options):
        if name == "simpy":
            raise ImportError(name)
        return imported(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="pip install simpy"):
        simulate(made_up(10), PLAIN, Engine(verify_seconds=flat), load)
