"""Exact remainders of non-negative int64 numbers by many primes at once."""

import torch
from jaxtyping import Int64
from torch import Tensor


def remainders(
    numbers: Int64[Tensor, "order batch seq"], primes: Int64[Tensor, "order head"]
) -> Int64[Tensor, "batch seq table"]:
    """Remainder of every number by each prime of its order, tables order-major."""
    return (
        torch.remainder(numbers[..., None], primes[:, None, None, :]).permute(1, 2, 0, 3).flatten(2)
    )
