"""CKA of two stacks of features, pair of layers by pair of layers."""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from engram_lab.probes.cka_map import GROUPS, CKAMap, half_draws, map_of_draws
from engram_lab.probes.cka_scale import Scale, common_dtype, faults
from engram_lab.probes.cka_stream import CKAStream, check_estimator, check_samples
from engram_lab.probes.cka_sums import Estimator, GroupSums, extended

BATCH, LONGEST_BLOCK = 32, 1024  # samples


def layer_similarity(
    x: Float[Tensor, "layer_a sample hidden_a"],
    y: Float[Tensor, "layer_b sample hidden_b"],
    *,
    estimator: Estimator = "debiased",
    remove_top: int = 0,
    layers_a: tuple[int, ...] | None = None,
    layers_b: tuple[int, ...] | None = None,
) -> CKAMap:
    """CKA of every layer of x with every layer of y, with intervals.

    Products of features are kept for one pair of layers at a time. The samples are cut into 16
    blocks, or blocks of 8 where there are few; intervals come from halves of the blocks.

    Args:
        x: features of the same samples at all layers of one model; samples of one text together.
        y: of another model, in the same order.
        estimator: "debiased", "biased" or "minibatch", as `CKAStream` describes them.
        remove_top: directions of most variance to take out of every layer first, since few of them
            may decide a CKA.
        layers_a: depths of x's layers; counted from 0 by default.
        layers_b: depths of y's layers; counted from 0 by default.

    Raises:
        ValueError: with fewer than 4 samples, or unequal numbers of them.
    """
    check_samples(x, y)
    check_estimator(estimator, x.shape[1])
    if remove_top:
        x = without(x, top_directions([x], remove_top))
        y = without(y, top_directions([y], remove_top))
    names = {
        "layers_a": layers_a or tuple(range(len(x))),
        "layers_b": layers_b or tuple(range(len(y))),
    }
    if estimator == "minibatch":
        stream = new_stream(x.shape[1], exact=False)
        stream.update(x, y)
        return stream.result(estimator, **names)
    return _pair_by_pair(x, y.to(x.device), estimator, **names)


def top_directions(parts: Iterable[Tensor], count: int) -> Float[Tensor, "layer hidden direction"]:
    """Orthonormal directions of most variance of every layer, from samples in pieces.

    Args:
        parts: features, layer sample hidden.
        count: how many, fewer than the width.
    """
    samples, total, square = 0, 0.0, 0.0
    for part in parts:
        part = part.double()
        samples += part.shape[1]
        total = total + part.sum(dim=1)
        square = square + part.mT @ part
    width = square.shape[1]
    if not 0 < count < width:
        raise ValueError(f"directions to remove must lie in 1..{width - 1}; got {count}")
    mean = total / samples
    covariance = square / samples - mean[:, :, None] * mean[:, None, :]
    return torch.linalg.eigh(covariance).eigenvectors[:, :, -count:]


def without(
    x: Float[Tensor, "layer sample hidden"],
    directions: Float[Tensor, "layer hidden direction"] | None,
) -> Float[Tensor, "layer sample hidden"]:
    """Features without their components along orthonormal directions, where there are any."""
    if directions is None:
        return x
    directions = directions.to(x)
    return x - (x @ directions) @ directions.mT


def new_stream(samples: int, *, exact: bool) -> CKAStream:
    """A stream whose blocks are a sixteenth of the samples, and no longer than fits its work."""
    block = min(LONGEST_BLOCK, _block_size(samples))
    return CKAStream(block_size=block, batch_size=min(BATCH, block), exact=exact)


def _block_size(samples: int) -> int:
    """A sixteenth of the samples, at least 8 of them."""
    return max(8, -(-samples // GROUPS))


def _pair_by_pair(
    x: Float[Tensor, "layer_a sample hidden_a"],
    y: Float[Tensor, "layer_b sample hidden_b"],
    estimator: Estimator,
    **names: tuple[int, ...],
) -> CKAMap:
    """Every pair of layers by itself, which keeps the products of one pair in memory."""
    samples = x.shape[1]
    block = _block_size(samples)
    groups = -(-samples // block)
    draws = torch.from_numpy(half_draws(groups))

    def hsic(one: Tensor, other: Tensor) -> np.ndarray:
        sums = GroupSums(groups, one, other)
        for group, pieces in enumerate(zip(one.split(block), other.split(block), strict=True)):
            sums.add(group, *pieces)
        return sums.hsic(draws, debiased=estimator == "debiased").cpu().numpy()

    scales = [[Scale(common_dtype(x, y)) for _ in side] for side in (x, y)]
    others = [extended(scale(layer)) for scale, layer in zip(scales[1], y, strict=True)]
    between = np.empty((len(draws), len(x), len(y)))
    within_a = np.empty((len(draws), len(x)))
    for i, (scale, layer) in enumerate(zip(scales[0], x, strict=True)):
        one = extended(scale(layer))
        within_a[:, i] = hsic(one, one)
        for j, other in enumerate(others):
            between[:, i, j] = hsic(one, other)
    within_b = np.stack([hsic(other, other) for other in others], axis=1)
    return map_of_draws(
        (between, within_a, within_b),
        faults=(
            faults(scales[0], within_a[0], "a", names["layers_a"]),
            faults(scales[1], within_b[0], "b", names["layers_b"]),
        ),
        groups=groups,
        estimator=estimator,
        samples=samples,
        **names,
    )
