"""The short causal convolution behind the gate: depthwise, dilated by the longest n-gram."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def rms_norm(
    values: Float[Tensor, "*axes hidden"], gain: Float[Tensor, "*gains hidden"], *, eps: float
) -> Float[Tensor, "*axes hidden"]:
    """Values over their root mean square along the last axis, times a gain; computed in float32."""
    wide = values if values.dtype == torch.float64 else values.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (normed * gain).to(values.dtype)


def short_conv(
    window: Float[Tensor, "batch window branch hidden"],
    weight: Float[Tensor, "branch hidden kernel"],
    *,
    dilation: int,
    segments: Int64[Tensor, "batch window"] | None = None,
) -> Float[Tensor, "batch seq branch hidden"]:
    """Causal depthwise convolution of the end of `window`; the last tap is the position itself.

    Args:
        window: inputs, the first `(kernel - 1) * dilation` of which precede the chunk (0 before the
            sequence).
        dilation: positions between taps.
        segments: number of each position's segment; taps from other segments count as 0.

    Source: Engram paper, equation 5; deepseek-ai/Engram engram_demo_v1.py.
    """
    kernel = weight.shape[-1]
    reach = (kernel - 1) * dilation
    seq = window.shape[1] - reach
    total = window[:, reach:] * weight[..., -1]
    for tap in range(kernel - 1):
        first = tap * dilation
        value = window[:, first : first + seq]
        if segments is not None:
            other = segments[:, first : first + seq] != segments[:, reach:]
            value = value.masked_fill(other[..., None, None], 0)
        total = total + value * weight[..., tap]
    return total
