"""The packed rows of released tables: 8-bit floats with one power-of-two scale per block.

Reading is exact. Writing follows the rule the release uses for activations; that its tables were
written by the same rule is not confirmed.
"""

import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

BLOCK = 32
"""Consecutive numbers of a row that share a scale."""

_LARGEST = 448.0  # of float8 e4m3fn
_LEAST = 1e-4  # blocks of smaller numbers are scaled as if they held this one
_BIAS = 127  # of the exponent of float32, and so of a scale's byte


def pack_rows(
    rows: Float32[Tensor, "*axes row"],
) -> tuple[UInt8[Tensor, "*axes row"], UInt8[Tensor, "*axes block"]]:
    """Bytes of the numbers (float8 e4m3fn) and of the scales (2^(byte - 127), one per block).

    Raises:
        ValueError: if the row width is not a multiple of 32.

    Source: DeepSeek-V4.1-Flash inference/kernel.py.
    """
    if rows.shape[-1] % BLOCK:
        raise ValueError(f"row width must be a multiple of {BLOCK}; got {rows.shape[-1]}")
    blocks = rows.unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1).clamp_min(_LEAST)
    mantissa, exponent = torch.frexp(largest / _LARGEST)  # mantissa in [0.5, 1)
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)  # a power of two is its own
    scaled = torch.ldexp(blocks, -exponent[..., None]).clamp(-_LARGEST, _LARGEST)
    payload = scaled.to(torch.float8_e4m3fn).view(torch.uint8).flatten(-2)
    return payload, (exponent + _BIAS).to(torch.uint8)


def unpack_rows(
    payload: UInt8[Tensor, "*axes row"],
    scales: UInt8[Tensor, "*axes block"],
    *,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "*axes row"]:
    """Rows out of their bytes: number times scale in float32, then rounded to `dtype`.

    Raises:
        ValueError: if there is not one scale per 32 numbers.

    Source: DeepSeek-V4.1-Flash inference/engram.py.
    """
    if payload.shape[-1] != BLOCK * scales.shape[-1]:
        raise ValueError(
            f"{payload.shape[-1]} numbers need {payload.shape[-1] / BLOCK:g} scales, "
            f"one per {BLOCK}; got {scales.shape[-1]}"
        )
    numbers = payload.view(torch.float8_e4m3fn).float().unflatten(-1, (-1, BLOCK))
    factors = (scales.int() << 23).view(torch.float32)  # a byte is the exponent field of a float32
    return (numbers * factors[..., None]).flatten(-2).to(dtype)
