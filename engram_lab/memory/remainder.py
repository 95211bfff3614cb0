"""Remainders of 64-bit numbers by many primes at once, exact, without an integer division.

A number x leaves the remainder r = p * frac(x / p). Write 2x + 1 in four limbs of 16 bits: up to
whole numbers, (x + 1/2) / p is the sum of limb_i * ((2^16i mod 2p) / 2p). For all primes at once
that is one small float64 matrix product, which processors do faster than 64-bit divisions.

Why it is exact: the sum stays below 2^18, so its rounding error stays below 2^-31. The half keeps
(x + 1/2) / p at least 1 / 2p away from every whole number, so for p below 2^28 the fraction belongs
to the right quotient, and p times it misses r + 1/2 by less than 1/8.
"""

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

_LIMB_BITS = 16
_LIMBS = 64 // _LIMB_BITS
_LARGEST = 2**28
_CHUNK = 2**15  # remainders at a time: 256 KiB of float64, which stays in a processor's cache
_TILE = 8  # tokens side by side, so that inner loops over tables are long enough
_MANTISSA = 2**52  # float64 numbers from here to its double are whole; their low 52 bits count on


class Divisors:
    """The primes of all orders, ready to divide by.

    On a CPU the arithmetic is NumPy's: its calls cost less than torch's on arrays of this size, and
    so does its product of a long and a very narrow matrix.
    """

    def __init__(self, primes: Int64[Tensor, "order head"]):
        """Prepare `primes`, which may lie on any device."""
        self.primes = primes
        self.fast = primes.device.type == "cpu" and int(primes.max()) < _LARGEST
        if self.fast:
            lengths = primes.tolist()
            self._factors = _limb_factors(lengths)
            self._lengths = np.tile(np.array(lengths, dtype=np.float64).ravel(), _TILE)

    def remainders(self, numbers: Int64[Tensor, "token order"]) -> Int64[Tensor, "token table"]:
        """Remainders of non-negative numbers by every prime of their order, order-major."""
        if self.fast:
            return torch.from_numpy(self.of_array(numbers.numpy()))
        return torch.remainder(numbers[..., None], self.primes).flatten(1)

    def of_array(self, numbers: np.ndarray) -> np.ndarray:
        """The same for int64 `[token, order]` in NumPy; only where `fast`."""
        tokens, tables = len(numbers), self._factors.shape[1]
        padded = -(-tokens // _TILE) * _TILE
        result = np.empty((padded, tables), dtype=np.float64)
        result[tokens:] = 0  # chance contents of the padding could warn
        step = max(1, min(_CHUNK // tables, padded) // _TILE) * _TILE
        whole = np.empty((step, tables), dtype=np.float64)
        for first in range(0, tokens, step):
            limbs = ((numbers[first : first + step] << 1) | 1).view(np.uint16)
            quotients = result[first : first + step]
            np.matmul(limbs.astype(np.float64), self._factors, out=quotients[: len(limbs)])
            self._to_remainders(quotients, whole[: len(quotients)])
        return result[:tokens].view(np.int64)

    def _to_remainders(self, quotients: np.ndarray, whole: np.ndarray) -> None:
        """Turn quotients (x + 1/2) / p into the bits of the remainders x mod p, in place."""
        quotients -= np.floor(quotients, out=whole)
        tiled = quotients.reshape(-1, len(self._lengths))
        tiled *= self._lengths
        tiled += _MANTISSA - 0.5
        bits = tiled.view(np.int64)
        bits &= _MANTISSA - 1


def _limb_factors(primes: list[list[int]]) -> np.ndarray:
    """Block matrix `[order * limb, order * head]` of (2^16i mod 2p) / 2p."""
    orders, heads = len(primes), len(primes[0])
    factors = np.zeros((orders, _LIMBS, orders, heads))
    for order, lengths in enumerate(primes):
        for limb in range(_LIMBS):
            power = 1 << _LIMB_BITS * limb
            factors[order, limb, order] = [power % (2 * p) / (2 * p) for p in lengths]
    return factors.reshape(orders * _LIMBS, orders * heads)
