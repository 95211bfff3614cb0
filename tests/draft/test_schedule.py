"""Length rules: golden decisions and traces, causality, costs that must be there."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from engram_lab.draft.admission import (
    admission_walk,
    draft_capacity,
    expected_throughput,
    survival_of,
    top_drafts,
)
from engram_lab.draft.costs import (
    CostTable,
    affine,
    from_steps_per_second,
    roofline,
    staircase,
)
from engram_lab.draft.oracle import BruteForce, GlobalSearch
from engram_lab.draft.schedule import (
    FixedLength,
    LengthRule,
    PrefixScheduler,
    Threshold,
    TopK,
    require_causal,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "dspark_scheduler.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["cases"] if case["confidences"]}
COSTS = affine(base=1.0, per_token=0.1)
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def block(rows: list[list[float]]) -> np.ndarray:
    """Confidences of a batch, NaN where a row is shorter than the longest."""
    width = max(map(len, rows))
    return np.array([row + [np.nan] * (width - len(row)) for row in rows])


def table(case: dict) -> CostTable:
    return from_steps_per_second({int(size): rate for size, rate in case["sps_table"].items()})


def walk_of(case: dict):
    return admission_walk(block(case["confidences"]), table(case))


def random_confidences(requests: int, positions: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.3, 1.0, (requests, positions))


def quiet(rule: type, **fields) -> LengthRule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rule(**fields)


@each_case
def test_early_stop_decides_as_in_the_golden_file(case: dict):
    expected, walk = case["early_stop"], walk_of(case)
    lengths = quiet(PrefixScheduler, costs=table(case))(block(case["confidences"]))
    assert lengths.tolist() == expected["lengths"]
    assert walk.tokens[walk.stop] == expected["B"]
    assert walk.expected[walk.stop] == pytest.approx(expected["tau"], rel=1e-6)
    assert walk.tokens_per_s[walk.stop] == pytest.approx(expected["theta"], rel=1e-6)
    survival = survival_of(block(case["confidences"]))
    for row, golden in zip(survival, expected["survival"], strict=True):
        assert row[: len(golden)] == pytest.approx(golden, rel=1e-6)


@each_case
def test_the_walk_is_the_golden_trace(case: dict):
    trace = walk_of(case).frame().query("examined and drafts > 0")
    golden = case["early_stop"]["trace"]
    for column, key in {"request": "req", "position": "pos", "tokens": "B"}.items():
        assert trace[column].tolist() == [step[key] for step in golden]
    for column, key in {"survival": "a", "expected_tokens": "tau", "tokens_per_s": "theta"}.items():
        assert trace[column].to_numpy() == pytest.approx([step[key] for step in golden], rel=1e-6)
    assert trace["admitted"].tolist() == [step["admitted"] for step in golden]


@each_case
def test_the_global_search_is_the_golden_one_and_as_good_as_brute_force(case: dict):
    confidences, walk = block(case["confidences"]), walk_of(case)
    expected = case["global_search"]
    assert quiet(GlobalSearch, costs=table(case))(confidences).tolist() == expected["lengths"]
    assert walk.tokens[walk.best] == expected["B"]
    assert walk.tokens_per_s[walk.best] == pytest.approx(expected["theta"], rel=1e-6)
    lengths = quiet(BruteForce, costs=table(case))(confidences)
    best = expected_throughput(confidences, lengths, table(case))
    assert best == pytest.approx(case["brute_force"]["theta"], rel=1e-6)


def test_an_empty_batch_has_no_lengths():
    nobody = np.zeros((0, 3))
    for rule in (FixedLength(length=2), PrefixScheduler(costs=COSTS), TopK(costs=COSTS)):
        assert rule(nobody).tolist() == []
    assert admission_walk(np.zeros((0, 0)), COSTS).tokens_per_s.tolist() == [0]


@pytest.mark.parametrize("row", GOLDEN["load_sweep"]["rows"], ids=lambda row: f"R{row['R']}")
@pytest.mark.parametrize("shape", ["roofline", "affine"])
def test_lengths_shrink_under_load_as_in_the_golden_sweep(row: dict, shape: str):
    costs = {
        "roofline": roofline(base=1.0, free_tokens=32),
        "affine": affine(base=1.0, per_token=1 / 48),
    }[shape]
    profiles, golden = np.array(GOLDEN["load_sweep"]["profiles_cycled"]), row[shape]
    confidences = profiles[np.arange(row["R"]) % 4]
    lengths = PrefixScheduler(costs=costs)(confidences)
    walk = admission_walk(confidences, costs)
    assert lengths[:4].tolist()[: len(golden["lengths_first4"])] == golden["lengths_first4"]
    assert row["R"] + lengths.sum() == golden["B"]
    assert 1 + lengths.mean() == pytest.approx(golden["mean_verify_len_incl_anchor"], rel=1e-6)
    per_request = walk.expected[walk.stop] / row["R"]
    assert per_request == pytest.approx(golden["tau_per_request"], rel=1e-6)
    assert expected_throughput(confidences, lengths, costs) == pytest.approx(
        golden["theta"], rel=1e-6
    )


def test_the_capacity_comes_from_confidences_two_calls_old():
    golden = GOLDEN["async_topk"]
    stale = np.array(golden["stale_confidences_two_steps_ago"])
    current = np.array(golden["current_confidences"])
    assert draft_capacity(stale, COSTS) == golden["capacity_K_from_stale_global_search"]
    assert top_drafts(current, 5).tolist() == golden["lengths_by_topK_on_current"]
    assert top_drafts(current, 0).tolist() == golden["lengths_K0"]
    assert top_drafts(current, 6).tolist() == golden["lengths_K_all"]
    rule = TopK(costs=COSTS)
    rule(stale)
    rule(current)
    assert rule(current).tolist() == golden["lengths_by_topK_on_current"]


def test_ties_never_admit_more_than_there_is_room_for():
    golden = GOLDEN["async_topk"]["tie_case"]
    assert top_drafts(np.array(golden["confidences"]), golden["K"]).tolist() == golden["lengths"]


def test_a_newcomer_counts_as_certain_and_others_are_remembered_by_name():
    steep = affine(base=0.1, per_token=1.0)
    rule = TopK(costs=steep)
    hopeless = np.full((2, 3), 0.01)
    rule(hopeless, requests=[7, 8])
    rule(hopeless, requests=[7, 8])
    both_known = rule(np.ones((2, 3)), requests=[8, 7])
    assert both_known.sum() == draft_capacity(hopeless, steep) == 0
    one_new = rule(np.ones((2, 3)), requests=[8, 9])
    assert one_new.sum() == draft_capacity(np.array([[0.01] * 3, [1.0] * 3]), steep)
    rule.reset()
    assert rule(hopeless).sum() == draft_capacity(np.ones((2, 3)), steep)


def test_the_stale_search_equals_brute_force_on_a_staircase():
    stairs = staircase(base=1.0, rise=0.4, width=4)
    for seed in range(20):
        stale = random_confidences(3, 3, seed)
        best = BruteForce(costs=stairs)(stale)
        found = top_drafts(stale, draft_capacity(stale, stairs))
        assert expected_throughput(stale, found, stairs) == pytest.approx(
            expected_throughput(stale, best, stairs)
        )


def test_early_stop_may_lose_on_a_staircase_and_its_regret_can_be_told():
    case = CASES["staircase_not_unimodal"]
    confidences, costs = block(case["confidences"]), table(case)
    stopped, bound = PrefixScheduler(costs=costs), GlobalSearch(costs=costs)
    ratio = expected_throughput(confidences, stopped(confidences), costs) / expected_throughput(
        confidences, bound(confidences), costs
    )
    assert 1 - ratio == pytest.approx(1 - 2.0 / 3.543929, rel=1e-6)


def test_costs_in_proportion_to_tokens_admit_nothing_at_even_odds():
    linear = affine(base=0.0, per_token=1.0)
    for rule in (PrefixScheduler(costs=linear), GlobalSearch(costs=linear)):
        assert rule(np.full((1, 5), 0.5)).tolist() == [0]
        assert rule(np.full((9, 5), 0.5)).tolist() == [0] * 9


def test_the_time_of_drafting_makes_longer_lengths_worth_it():
    confidences, slow = np.full((1, 4), 0.7), affine(base=5.0, per_token=1e-6)
    costs = affine(base=0.2, per_token=1.0)
    alone = PrefixScheduler(costs=costs)(confidences)
    assert PrefixScheduler(costs=costs, draft_costs=slow)(confidences) > alone
    assert BruteForce(costs=costs, draft_costs=slow)(confidences) > alone


@pytest.mark.parametrize("rule", [PrefixScheduler, GlobalSearch, BruteForce, TopK])
def test_a_rule_that_trims_needs_a_cost_table_and_warns_of_a_flat_one(rule: type):
    with pytest.raises(ValueError, match=f"{rule.__name__} trims drafts .* needs costs="):
        rule()
    flat = CostTable(sizes=(1, 8), seconds=(0.1, 0.1))
    with pytest.warns(UserWarning, match="optimum is to verify everything"):
        everything = rule(costs=flat)
    assert everything(np.full((2, 3), 0.4)).tolist() == [3, 3]


def test_only_causal_rules_may_generate():
    causal = FixedLength(length=3), Threshold(threshold=0.5), PrefixScheduler(costs=COSTS)
    for rule in (*causal, TopK(costs=COSTS)):
        assert isinstance(rule, LengthRule)
        require_causal(rule)
    for rule in (GlobalSearch(costs=COSTS), BruteForce(costs=COSTS)):
        with pytest.raises(ValueError, match=f"rule '{rule.name}' looks at .* later drafts"):
            require_causal(rule)


@pytest.mark.parametrize("costs", [COSTS, staircase(base=1.0, rise=0.5, width=4)])
def test_no_later_confidence_changes_whether_an_earlier_draft_is_verified(costs: CostTable):
    rules = (FixedLength(length=2), Threshold(threshold=0.6), PrefixScheduler(costs=costs))
    for seed in range(30):
        confidences = random_confidences(3, 4, seed)
        for rule in (*rules, TopK(costs=costs)):
            before = rule(confidences)
            for position in range(1, 4):
                other = confidences.copy()
                other[0, position:] = random_confidences(1, 4, seed + 99)[0, position:]
                again = type(rule)(costs=costs) if isinstance(rule, TopK) else rule
                after = again(other)
                # draft number `position` is drawn before its successor's confidence is known
                assert (before[0] >= position) == (after[0] >= position)


def test_a_search_past_the_fall_is_moved_by_later_confidences():
    case = CASES["appendix_A_case1_high_c2"]
    bound = GlobalSearch(costs=table(case))
    assert bound(np.array([[0.8, 0.9]])) == [2] and bound(np.array([[0.8, 0.0]])) == [0]


def test_a_threshold_stops_at_the_first_that_is_below():
    confidences = np.array([[0.8, 0.9, 0.1, 0.9], [0.2, 0.9, 0.9, 0.9], [0.5, 0.5, np.nan, np.nan]])
    assert Threshold(threshold=0.5)(confidences).tolist() == [2, 0, 2]
    assert Threshold(threshold=0.0)(confidences * 0).tolist() == [4, 4, 2]


def test_a_fixed_length_is_the_same_for_all_but_cut_blocks():
    confidences = torch.tensor([[0.1, 0.1, 0.1], [0.9, float("nan"), float("nan")]])
    assert FixedLength(length=2)(confidences).tolist() == [2, 1]
    with pytest.raises(ValueError, match="block size 3.*got 4"):
        FixedLength(length=4)(confidences)


def test_tensors_in_low_precision_are_taken():
    confidences = torch.full((2, 3), 0.75, dtype=torch.bfloat16, requires_grad=True)
    assert PrefixScheduler(costs=COSTS)(confidences).tolist() == [3, 3]


def test_misuse_is_named():
    with pytest.raises(ValueError, match="probabilities in 0..1 .* got -0.3 to 2.5"):
        PrefixScheduler(costs=COSTS)(np.array([[2.5, -0.3]]))
    with pytest.raises(ValueError, match="at least 0; got -1"):
        FixedLength(length=-1)
    with pytest.raises(ValueError, match="in 0..1; got 1.2"):
        Threshold(threshold=1.2)
    with pytest.raises(ValueError, match="at least 1 to be causal; got 0"):
        TopK(costs=COSTS, delay=0)
    with pytest.raises(ValueError, match="all different"):
        TopK(costs=COSTS)(np.ones((2, 2)), requests=[3, 3])
    with pytest.raises(ValueError, match="at most 1,000,000 length vectors"):
        BruteForce(costs=COSTS)(np.full((10, 7), 0.9))


def test_equal_confidences_are_shared_by_position_then_request():
    trace = admission_walk(np.full((2, 2), 0.5), COSTS).frame()
    assert trace["position"].tolist() == [0, 1, 1, 2, 2]
    assert trace["request"].tolist() == [-1, 0, 1, 0, 1]
