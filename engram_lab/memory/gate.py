"""The context gate: how far a residual stream agrees with the memory read at its position."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from engram_lab.memory.config import FLOAT32_EPS

LEAST_AGREEMENT = 1e-6
"""Agreements closer to 0 move here before the root, whose derivative is at most 500 there."""


def context_gate(
    hidden: Float[Tensor, "batch seq branch hidden"],
    key: Float[Tensor, "batch seq branch hidden"],
    *,
    gain: Float[Tensor, "branch hidden"] | None = None,
    transform: Literal["signed_sqrt", "identity"] = "signed_sqrt",
    zero_rule: Literal["sign", "copysign"] = "sign",
    eps: float = FLOAT32_EPS,
) -> Float[Tensor, "batch seq branch"]:
    """Agreement between the memory read at a position and its residual stream, in (0, 1).

    Both sides are RMS-normalised per token and branch, in float32 whatever the inputs are. The
    reference squashes the agreement by a signed square root before the sigmoid; the paper's formula
    does not.

    Args:
        gain: product of the query's and the key's norm gains (only the product matters); None for
            ones.
        transform: what happens to the agreement before the sigmoid.
        zero_rule: sign of the root at agreement 0.
        eps: epsilon under the roots of both norms.

    Source: Engram paper, equations 4 and 6; deepseek-ai/Engram engram_demo_v1.py.
    """
    return gate_of_agreement(
        agreement(hidden, key, gain=gain, eps=eps), transform=transform, zero_rule=zero_rule
    )


def agreement(
    hidden: Float[Tensor, "batch seq branch hidden"],
    key: Float[Tensor, "batch seq branch hidden"],
    *,
    gain: Float[Tensor, "branch hidden"] | None = None,
    eps: float = FLOAT32_EPS,
) -> Float[Tensor, "batch seq branch"]:
    """Scaled dot product of the normalised stream and key; at most sqrt(hidden) with gains of 1."""
    hidden, key = _wide(hidden), _wide(key)
    weighted = key if gain is None else key * _wide(gain)
    dot = (hidden * weighted).sum(-1)
    scale = torch.rsqrt(hidden.pow(2).mean(-1) + eps) * torch.rsqrt(key.pow(2).mean(-1) + eps)
    return dot * scale / math.sqrt(hidden.shape[-1])


def gate_of_agreement(
    score: Float[Tensor, "*axes"],
    *,
    transform: Literal["signed_sqrt", "identity"] = "signed_sqrt",
    zero_rule: Literal["sign", "copysign"] = "sign",
) -> Float[Tensor, "*axes"]:
    """Gate of an agreement.

    Raises:
        ValueError: if `transform` or `zero_rule` is not one of the two choices.
    """
    if transform == "identity":
        return torch.sigmoid(score)
    if transform != "signed_sqrt":
        raise ValueError(f"transform must be 'signed_sqrt' or 'identity'; got {transform!r}")
    root = score.abs().clamp_min(LEAST_AGREEMENT).sqrt()
    if zero_rule == "copysign":
        return torch.sigmoid(torch.copysign(root, score))
    if zero_rule != "sign":
        raise ValueError(f"zero_rule must be 'sign' or 'copysign'; got {zero_rule!r}")
    return torch.sigmoid(root * score.sign())


def _wide(values: Tensor) -> Tensor:
    """Values in float32, or in float64 if they are."""
    return values if values.dtype == torch.float64 else values.float()
