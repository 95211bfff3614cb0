"""A layer brought to a common scale, which no CKA depends on, and what keeps it from having one."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-12}  # of HSIC, against (mean |x|²)²


class Scale:
    """Moves and scales one layer by its first samples, so that no digit is lost.

    Args:
        dtype: what the scaled features are in.
    """

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype
        self.samples = 0

    def __call__(self, x: Float[Tensor, "sample hidden"]) -> Float[Tensor, "sample hidden"]:
        """The samples at mean 0 and root mean square 1, as far as the first ones tell.

        Values that are not finite become 0, and are remembered.
        """
        finite = torch.isfinite(x)
        all_finite = bool(finite.all())
        x = (x if all_finite else torch.where(finite, x, 0)).double()
        if self.samples == 0:
            self._start(x)
        self.samples += len(x)
        self.finite &= all_finite
        self.varies = self.varies or bool((x != self.first).any())
        x = (x - self.shift).mul_(self.scale).to(self.dtype)
        self.sum_squares += float(torch.linalg.vector_norm(x)) ** 2
        return x

    def fault(self, within: float) -> str:
        """What keeps the layer from a CKA, or "".

        Args:
            within: its HSIC with itself.
        """
        if not self.finite:
            return "holds values that are not finite"
        if not self.varies:
            return "is the same at every sample"
        smallest = ROUNDING[self.dtype] * (self.sum_squares / self.samples) ** 2
        return "" if within > smallest else "has a similarity of 0 with itself"

    def _start(self, x: Float64[Tensor, "sample hidden"]) -> None:
        self.first, self.shift = x[:1].clone(), x.mean(dim=0)
        self.finite, self.varies = True, bool((x != self.first).any())
        spread = x.var(dim=0, correction=0).mean().sqrt()
        self.scale = 1 / spread if self.varies else torch.ones_like(spread)
        self.sum_squares = 0.0


def faults(
    scales: Sequence[Scale],
    within: Float64[np.ndarray, "layer"],
    side: str,
    layers: Sequence[int],
) -> list[str]:
    """What keeps each layer of a model from a CKA, by name, or ""."""
    found = [scale.fault(itself) for scale, itself in zip(scales, within, strict=True)]
    return [
        f"layer {layer} of {side} {fault}" if fault else ""
        for layer, fault in zip(layers, found, strict=True)
    ]


def common_dtype(x: Tensor, y: Tensor) -> torch.dtype:
    """Float64 where both are, else float32."""
    return torch.float64 if x.dtype == y.dtype == torch.float64 else torch.float32
