"""Remainders of 64-bit numbers by many primes at once, exact, without an integer division.

A number x leaves the remainder r = p * frac(x / p). Write 2x + 1 in four limbs of 16 bits: up to
whole numbers, (x + 1/2) / p is the sum of limb_i * ((2^16i mod 2p) / 2p). For all primes at once
that is one small float64 matrix product, which processors do faster than 64-bit divisions.

Why it is exact: the sum stays below 2^18, so its rounding error stays below 2^-31. The half keeps
(x + 1/2) / p at least 1 / 2p away from every whole number, so for p below 2^28 the fraction belongs
to the right quotient, and p times it misses r + 1/2 by less than 1/8.
"""

import torch
from jaxtyping import Int64
from torch import Tensor

_LIMB_BITS = 16
_LIMBS = 64 // _LIMB_BITS
_LARGEST = 2**28
_CHUNK = 2**15  # remainders at a time: 256 KiB of float64, which stays in a processor's cache
_MANTISSA = 2**52  # float64 numbers from here to its double are whole; their low 52 bits count on


class Divisors:
    """The primes of all orders, ready to divide by."""

    def __init__(self, primes: Int64[Tensor, "order head"]):
        """Prepare `primes`, which may lie on any device."""
        self.primes = primes
        self.fast = primes.device.type == "cpu" and int(primes.max()) < _LARGEST
        if self.fast:
            self.factors = _limb_factors(primes.tolist())
            self.lengths = primes.flatten().double()

    def remainders(self, numbers: Int64[Tensor, "token order"]) -> Int64[Tensor, "token table"]:
        """Remainders of non-negative numbers by every prime of their order, order-major."""
        if not self.fast:
            return torch.remainder(numbers[..., None], self.primes).flatten(1)
        tokens, tables = len(numbers), len(self.lengths)
        limbs = ((numbers << 1) | 1).view(torch.uint16).double()
        result = numbers.new_empty(tokens, tables)
        step = max(1, _CHUNK // tables)
        for first in range(0, tokens, step):
            quotients = limbs[first : first + step] @ self.factors
            rounded = quotients.frac_().mul_(self.lengths).add_(_MANTISSA - 0.5)
            torch.bitwise_and(
                rounded.view(torch.int64), _MANTISSA - 1, out=result[first : first + step]
            )
        return result


def _limb_factors(primes: list[list[int]]) -> Tensor:
    """Block matrix `[order * limb, order * head]` of (2^16i mod 2p) / 2p."""
    orders, heads = len(primes), len(primes[0])
    factors = torch.zeros(orders, _LIMBS, orders, heads, dtype=torch.float64, device="cpu")
    for order, lengths in enumerate(primes):
        for limb in range(_LIMBS):
            shares = [(1 << _LIMB_BITS * limb) % (2 * prime) / (2 * prime) for prime in lengths]
            factors[order, limb, order] = torch.tensor(shares, dtype=torch.float64, device="cpu")
    return factors.flatten(2).flatten(0, 1)
