"""Break-even: published and hand-made numbers, and loads at which speculation does not pay."""

import numpy as np
import pytest

from engram_lab.draft.breakeven import (
    best_plan,
    break_even_length,
    expected_accepted_length,
    length_table,
    speed_up,
)
from engram_lab.draft.costs import affine, roofline
from engram_lab.published import load_published

ROUND = {"plain": 20.0, "draft": 3.0, "verify": 21.0}


def test_speed_up_and_break_even_are_those_of_the_example():
    assert speed_up(4.2, **ROUND) == pytest.approx(3.5)
    assert break_even_length(**ROUND) == pytest.approx(1.2)
    assert speed_up(break_even_length(**ROUND), **ROUND) == 1


@pytest.mark.parametrize(
    "rate, drafts, accepted", [(0.6, 1, 1.6), (0.8, 5, 3.68928), (0.9, 7, 5.695328)]
)
def test_equal_rates_give_the_geometric_sum(rate: float, drafts: int, accepted: float):
    assert expected_accepted_length(np.full(drafts, rate)) == pytest.approx(accepted)


@pytest.mark.parametrize("domain, accepted", [("math", 5.561626), ("code", 5.166372)])
def test_published_conditional_rates_give_the_published_accepted_length(domain, accepted):
    rates = load_published("dspark_fig2_conditional_acceptance")
    name = rates["domain"].str.lower() == domain
    rows = rates[name & (rates["drafter"].str.lower() == "dspark")].sort_values("position")
    found = expected_accepted_length(rows["conditional_acceptance"].to_numpy())
    assert found == pytest.approx(accepted, abs=0.01)


def test_plain_decoding_is_a_row_that_pays_for_no_drafter():
    first = length_table(np.array([0.9]), affine(base=1.0, per_token=0.0001), draft=5.0).iloc[0]
    assert (first["length"], first["accepted_length"], first["speed_up"]) == (0, 1, 1)


def test_costs_in_proportion_to_length_and_even_odds_say_do_not_speculate():
    plan = best_plan(np.full(7, 0.5), affine(base=0.0, per_token=1.0))
    assert plan.length == 0 and plan.speed_up == 1 and not plan.speculate
    assert plan.answer.startswith("Do not speculate")


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("base", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("requests", [1, 32])
def test_the_plan_is_never_slower_than_plain_decoding(rate: float, base: float, requests: int):
    costs = affine(base=base, per_token=1.0)
    plan = best_plan(np.full(5, rate), costs, draft=0.3, requests=requests)
    assert plan.speed_up >= 1 and plan.speculate == (plan.speed_up > 1)
    assert plan.accepted_length >= plan.break_even


def test_even_odds_and_a_small_fixed_cost_allow_one_draft_at_most():
    assert best_plan(np.full(7, 0.5), affine(base=1.4, per_token=1.0)).length == 1
    assert best_plan(np.full(7, 0.5), affine(base=0.9, per_token=1.0)).length == 0


def test_the_best_length_falls_with_the_load():
    costs = roofline(base=1.0, free_tokens=32)
    lengths = [best_plan(np.full(7, 0.8), costs, requests=load).length for load in (1, 8, 16, 32)]
    assert lengths == [7, 3, 1, 0]


def test_a_sequential_drafter_is_worth_fewer_drafts_than_a_parallel_one():
    rates, costs = np.full(7, 0.8), roofline(base=1.0, free_tokens=64)
    parallel = best_plan(rates, costs, draft=0.2)
    sequential = best_plan(rates, costs, draft_per_token=0.2)
    assert sequential.length < parallel.length == 7
    assert f"{parallel.speed_up:.2f} times its speed" in parallel.answer


def test_misuse_is_named():
    costs = affine(base=1.0, per_token=1.0)
    with pytest.raises(ValueError, match="in 0..1; got"):
        expected_accepted_length(np.array([1.2]))
    with pytest.raises(ValueError, match="requests 0"):
        length_table(np.array([0.5]), costs, requests=0)
    with pytest.raises(ValueError, match="draft -1"):
        length_table(np.array([0.5]), costs, draft=-1.0)
    with pytest.raises(ValueError, match="plain 0"):
        break_even_length(plain=0.0, draft=1.0, verify=1.0)
