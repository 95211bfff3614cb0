"""HSIC of linear kernels from sums over samples: products of features, never a kernel of them all.

With rows x_i and y_i, K = X Xᵀ, L = Y Yᵀ and r_i = |x_i|², s_i = |y_i|², every term of the unbiased
estimator follows from sums to which samples add, in whatever groups:

    tr(K~ L~)  = |Xᵀ Y|² - Σ r_i s_i            (K~, L~: diagonals set to zero)
    1ᵀ K~ 1    = |Σ x_i|² - Σ r_i
    1ᵀ K~ L~ 1 = Σ_i (x_i · Σ x - r_i) (y_i · Σ y - s_i)

The kernels of one small batch, in contrast, are cheaper than its products, and each layer's serves
for all its pairs: `batch_hsic`.
"""

from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Float64
from torch import Tensor

Estimator = Literal["debiased", "biased", "minibatch"]
ESTIMATORS = ("debiased", "biased", "minibatch")
LEAST_SAMPLES = 4  # of the unbiased estimator
SUMMANDS = 2**13  # of squares in float32, before the sum goes on in float64


def extended(x: Float[Tensor, "*rest hidden"]) -> Float[Tensor, "*rest extended"]:
    """Features, a one, and their squared length: their products hold every sum that HSIC needs."""
    squares = x.square().sum(dim=-1, keepdim=True)
    return torch.cat([x, torch.ones_like(squares), squares], dim=-1)


class GroupSums:
    """Sums over the samples of each group, for one pair of layers, and HSIC of chosen groups.

    Args:
        groups: how many.
        x: extended features in dtype, width and place like those to come.
        y: the same.
    """

    def __init__(self, groups: int, x: Float[Tensor, "... a"], y: Float[Tensor, "... b"]):
        self.sums = x.new_zeros(groups, x.shape[-1], y.shape[-1])

    def add(self, group: int, x: Float[Tensor, "sample a"], y: Float[Tensor, "sample b"]) -> None:
        """Count more samples of a group, given by their `extended` features."""
        self.sums[group] += x.T @ y

    def hsic(
        self, draws: Float64[Tensor, "draw group"], *, debiased: bool
    ) -> Float64[Tensor, "draw"]:
        """HSIC of the samples of the groups that each draw marks with 1.

        Args:
            draws: ones and zeros; a sample counted twice would be like itself.
            debiased: the unbiased estimator, which may be negative; else the usual one.

        Source: Engram paper, section 6.1 (unbiased); Gretton et al. 2005 (biased).
        """
        draws = draws.to(self.sums.device)
        product, x, xs = self.sums[:, :-2, :-2], self.sums[:, :-2, -2], self.sums[:, :-2, -1]
        y, yr = self.sums[:, -2, :-2], self.sums[:, -1, :-2]
        n, r, s, rs = (
            draws @ self.sums[:, i, j].double() for i, j in ((-2, -2), (-1, -2), (-2, -1), (-1, -1))
        )
        squares_x, squares_y = _quadratic(x, x, draws), _quadratic(y, y, draws)
        pieces = product.split(max(1, SUMMANDS // len(y.T)), dim=1)
        squares_c = sum(_quadratic(part, part, draws) for part in pieces)
        mixed = _cubic(x, product, y, draws)
        if not debiased:
            centred = squares_c - 2 * mixed / n + squares_x * squares_y / n**2
            return centred / (n - 1) ** 2
        sum_kl = mixed - _quadratic(x, xs, draws) - _quadratic(y, yr, draws) + rs
        sums = (squares_x - r) * (squares_y - s) / ((n - 1) * (n - 2))
        return (squares_c - rs + sums - 2 * sum_kl / (n - 2)) / (n * (n - 3))


def _quadratic(
    one: Float[Tensor, "group *entry"],
    other: Float[Tensor, "group *entry"],
    draws: Float64[Tensor, "draw group"],
) -> Float64[Tensor, "draw"]:
    """Inner product of two sums over the groups of each draw."""
    between = (one.flatten(1) @ other.flatten(1).T).double()
    return ((draws @ between) * draws).sum(dim=1)


def _cubic(
    x: Float[Tensor, "group a"],
    product: Float[Tensor, "group a b"],
    y: Float[Tensor, "group b"],
    draws: Float64[Tensor, "draw group"],
) -> Float64[Tensor, "draw"]:
    """Sum x times sum product times sum y over the groups of each draw."""
    between = (x @ product @ y.T).double()  # group group_x group_y
    between = einsum(draws, between, "draw group, group one other -> draw one other")
    return einsum(draws, between, draws, "draw one, draw one other, draw other -> draw")


class BatchSums:
    """Sums over the batches of each group of their unbiased HSIC, for all pairs of layers at once.

    Batches weigh as many samples as they have. Samples too few for a batch are left out.

    Args:
        groups: how many.
        layers: of x and of y.
        batch_size: samples in a batch; the last of each call to `add` may have fewer, at least 4.
    """

    def __init__(self, groups: int, layers: tuple[int, int], batch_size: int):
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(groups, *shape, dtype=torch.float64)

        self.batch_size = batch_size
        self.samples = zeros()
        self.between, self.within_x, self.within_y = (
            zeros(*layers),
            zeros(layers[0]),
            zeros(layers[1]),
        )

    def add(
        self,
        group: int,
        x: Float[Tensor, "layer_a sample hidden_a"],
        y: Float[Tensor, "layer_b sample hidden_b"],
    ) -> None:
        """Count more samples of a group, in batches from the first on."""
        samples = x.shape[1]
        whole = samples // self.batch_size * self.batch_size
        for start, stop in ((0, whole), (whole, samples)):
            size = min(self.batch_size, stop - start)
            if size < LEAST_SAMPLES:
                continue
            batches = [side[:, start:stop].unflatten(1, (-1, size)) for side in (x, y)]
            between, within_x, within_y = batch_hsic(*batches)
            self.samples[group] += stop - start
            self.between[group] += size * between.cpu()
            self.within_x[group] += size * within_x.cpu()
            self.within_y[group] += size * within_y.cpu()

    def hsic(
        self, draws: Float64[Tensor, "draw group"]
    ) -> tuple[
        Float64[Tensor, "draw layer_a layer_b"],
        Float64[Tensor, "draw layer_a"],
        Float64[Tensor, "draw layer_b"],
    ]:
        """Mean HSIC over the batches of the groups of each draw."""
        samples = draws @ self.samples
        sums = (self.between, self.within_x, self.within_y)
        return tuple(torch.tensordot(draws / samples[:, None], part, dims=1) for part in sums)


def batch_hsic(
    x: Float[Tensor, "layer_a batch sample hidden_a"],
    y: Float[Tensor, "layer_b batch sample hidden_b"],
) -> tuple[
    Float64[Tensor, "layer_a layer_b"], Float64[Tensor, "layer_a"], Float64[Tensor, "layer_b"]
]:
    """Unbiased HSIC within batches, summed: of x with y, of x with itself, of y with itself.

    It is the inner product of U-centred kernels over n (n - 3).

    Source: Nguyen, Raghu, Kornblith 2021 (arXiv:2010.15327), equation 3.
    """
    n = x.shape[2]
    kernels_x, kernels_y = u_centred_kernels(x), u_centred_kernels(y)
    scale = n * (n - 3)
    return (
        kernels_x @ kernels_y.T / scale,
        kernels_x.square().sum(dim=1) / scale,
        kernels_y.square().sum(dim=1) / scale,
    )


def u_centred_kernels(
    x: Float[Tensor, "layer batch sample hidden"],
) -> Float64[Tensor, "layer entry"]:
    """Linear kernels of the batches, U-centred, end to end; their rows and columns sum to 0.

    Source: Székely, Rizzo 2014 (arXiv:1310.2926), definition 2.
    """
    n = x.shape[2]
    x = x - x.mean(dim=2, keepdim=True)  # no change in exact numbers, fewer lost digits
    diagonal = torch.eye(n, dtype=torch.bool, device=x.device)
    kernels = (x @ x.mT).double().masked_fill(diagonal, 0)
    rows = kernels.sum(dim=3, keepdim=True) / (n - 2)
    total = kernels.sum(dim=(2, 3), keepdim=True) / ((n - 1) * (n - 2))
    centred = (kernels - rows - rows.mT + total).masked_fill(diagonal, 0)
    return rearrange(centred, "layer batch one other -> layer (batch one other)")
