"""Checks of learners' functions: right ones pass, wrong ones are told where and by how much."""

import numpy as np

from engram_lab.draft.schedule import PrefixScheduler, Threshold
from engram_lab.probes.lossless import accept_chance, residual_law
from engram_lab.probes.lossless_games import appendix_costs, random_game
from engram_lab.workshop.checks import check_accept, check_length_rule, check_residual


def early_stop(confidences: np.ndarray) -> int:
    return int(PrefixScheduler(costs=appendix_costs())(confidences[None])[0])


def search(confidences: np.ndarray) -> int:
    gained = 1 + np.concatenate([[0.0], np.cumprod(confidences).cumsum()])
    return int(np.argmax(gained / appendix_costs().at(np.arange(1, len(gained) + 1))))


def test_the_librarys_own_functions_pass():
    assert check_accept(accept_chance).passed
    assert check_residual(residual_law).passed
    assert check_length_rule(early_stop).passed
    assert check_length_rule(lambda c: int(Threshold(threshold=0.5)(c[None])[0])).passed


def test_functions_of_ones_own_pass_too_where_the_cases_that_never_come_differ():
    assert check_accept(
        lambda p, q: [min(1, a / b) if b else 0 for a, b in zip(p, q, strict=True)]
    ).passed

    def residual(p, q):
        left = np.clip(p - q, 0, None)
        return left / left.sum() if left.sum() else left

    assert check_residual(residual).passed


def test_a_wrong_function_is_told_the_input_and_the_difference():
    upside_down = check_accept(lambda p, q: np.minimum(1, q / np.maximum(p, 1e-9)))
    assert not upside_down.passed
    assert "target (0.7, 0.3) and drafter (0.5, 0.5)" in upside_down.finding
    assert "gives (0.714, 1), should be (1, 0.6)" in upside_down.finding
    assert "differs by 0.3: " in check_residual(lambda p, q: p).finding


def test_a_function_that_is_not_written_yet_is_no_error():
    def mine(p, q):
        pass

    assert repr(check_accept(mine)) == "not yet: mine returns nothing yet"
    assert "returns nothing yet" in repr(check_residual(lambda p, q: ...))
    assert "returns nothing yet" in check_length_rule(lambda confidences: None).finding
    assert "raised ZeroDivisionError" in check_accept(lambda p, q: 1 / 0).finding
    assert "shape () for laws of 2 tokens" in check_accept(lambda p, q: 0.5).finding
    assert not check_accept(lambda p, q: p * np.nan).passed


def test_a_rule_that_looks_back_is_told_the_two_blocks_that_give_it_away():
    report = check_length_rule(search)
    assert not report.passed
    assert report.function == "search"
    assert "whether draft 1 is verified hangs on what is said about later ones" in report.finding


def test_a_rule_that_wants_more_than_there_is_is_refused():
    assert "chose 3 of 2 drafts" in check_length_rule(lambda confidences: 3).finding


def test_rules_can_be_checked_on_other_games():
    game = random_game(3, 3)
    assert check_length_rule(lambda c: int((c > 0.3).cumprod().sum()), game).passed
    assert not check_length_rule(lambda c: int((c > 0.3).sum()), game).passed
