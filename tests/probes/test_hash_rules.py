"""A hash as plain numbers: exact at the size of V4.1, and spoilt only where it is asked for."""

import numpy as np
import pytest

from engram_lab.memory.config import v41
from engram_lab.memory.keys import KeyCodec, KeyCounts
from engram_lab.probes.hash_rules import HashRule

V41_IDS = 99_092


@pytest.fixture
def rule() -> HashRule:
    return HashRule.from_config(v41(), 1, canonical_vocab_size=V41_IDS)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_numbers_are_those_of_python_integers_up_to_the_largest_id(rule, order):
    columns = np.random.default_rng(0).integers(0, V41_IDS, size=(order, 200))
    columns[:, 0] = V41_IDS - 1  # the largest product there can be
    codec = KeyCodec(order=order, vocab_size=V41_IDS)
    words = tuple(codec.pack(list(columns)))
    with np.errstate(all="raise"):
        numbers = rule.numbers(KeyCounts(codec=codec, words=words, counts=np.ones(200, np.int64)))
    expected = [0] * 200
    for factor, column in zip(rule.multipliers, columns.tolist(), strict=False):
        expected = [mixed ^ factor * token for mixed, token in zip(expected, column, strict=True)]
    assert numbers.tolist() == expected
    assert max((V41_IDS - 1) * factor for factor in rule.multipliers) < 2**63


def test_a_choice_changes_one_part_and_leaves_the_other(rule):
    even = rule.spoilt(multipliers="even")
    assert all(factor % 2 == 0 for factor in even.multipliers) and even.lengths == rule.lengths
    alike = rule.spoilt(lengths="equal")
    assert all(len(set(order)) == 1 for order in alike.lengths)
    assert alike.multipliers == rule.multipliers and rule.spoilt() == rule
    powers = {length for order in rule.spoilt(lengths="power_of_two").lengths for length in order}
    assert powers == {2**24}
