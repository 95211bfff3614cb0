"""Primes against trial division, and the composites that fool weaker tests."""

import pytest

from engram_lab.memory.primes import is_prime, next_prime


def test_small_numbers_agree_with_trial_division():
    slow = [n for n in range(2, 3000) if all(n % d for d in range(2, int(n**0.5) + 1))]
    assert [n for n in range(-3, 3000) if is_prime(n)] == slow


@pytest.mark.parametrize(
    "composite",
    [561, 1_373_653, 25_326_001, 3_215_031_751, 3_825_123_056_546_413_051, 10_007 * 16_000_057],
)
def test_strong_pseudoprimes_are_composite(composite):
    assert not is_prime(composite)


def test_a_large_prime_is_prime():
    assert is_prime(2**61 - 1)


def test_next_prime_is_above():
    assert [next_prime(n) for n in (-5, 0, 1, 2, 3, 7, 13, 16_000_000)] == [
        *(2, 2, 2, 3, 5, 11, 17),
        16_000_057,
    ]
