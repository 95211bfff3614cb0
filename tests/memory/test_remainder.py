"""Remainders without division are exact for every number below 2^63."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram_lab.memory.primes import next_prime
from engram_lab.memory.remainder import Divisors

LENGTHS = [2, 3, 5, 61, 5_003, 65_521, 65_537, 646_403, 16_000_057, 20_000_003, 2**28 - 57]
LARGE = [2**28 + 3, 2**31 - 1, next_prime(2**40)]
EDGES = [0, 1, 2, 2**16 - 1, 2**16, 2**31, 2**32 - 1, 2**52, 2**53 + 1, 2**62, 2**63 - 2, 2**63 - 1]


def check(numbers: list[int], lengths: list[int]) -> None:
    found = Divisors(torch.tensor([lengths])).remainders(torch.tensor(numbers)[:, None])
    assert found.tolist() == [[number % length for length in lengths] for number in numbers]


@pytest.mark.parametrize("lengths", [LENGTHS, LARGE, LENGTHS + LARGE], ids=["fast", "slow", "both"])
def test_edges_are_exact(lengths):
    check(EDGES, lengths)


def test_neighbours_of_multiples_are_exact():
    numbers = [
        number
        for length in LENGTHS
        for factor in (1, 2, 3, (2**63 - 2) // length, (2**62) // length)
        for number in (factor * length - 1, factor * length, factor * length + 1)
    ]
    check(numbers, LENGTHS)


@given(
    numbers=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=50),
    length=st.integers(1, 2**28 - 60),
)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_any_number_by_any_prime(numbers, length):
    check(numbers, [next_prime(length), 7])


def test_every_order_has_primes_of_its_own_across_chunks():
    primes = torch.tensor([[5_003, 5_009], [16_000_057, 3]])
    numbers = torch.randint(0, 2**63 - 1, (20_000, 2), generator=torch.Generator().manual_seed(0))
    found = Divisors(primes).remainders(numbers)
    expected = torch.remainder(numbers[:, :, None], primes).flatten(1)
    assert Divisors(primes).fast
    assert torch.equal(found, expected)


def test_long_tables_fall_back_to_division():
    assert not Divisors(torch.tensor(LARGE)[None]).fast
