"""CKA of samples that come in pieces: sums grow, nothing grows with the number of samples."""

from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from engram_lab.probes.cka_map import GROUPS, CKAMap, half_draws, map_of_draws
from engram_lab.probes.cka_scale import Scale, common_dtype, faults
from engram_lab.probes.cka_sums import (
    ESTIMATORS,
    LEAST_SAMPLES,
    BatchSums,
    Estimator,
    GroupSums,
    extended,
)

LARGEST_SUMS = 8 * 2**30  # bytes


class CKAStream:
    """Accumulates samples of two models' layers, then tells the CKA of every pair of layers.

    Three estimators, from one pass:

    - "debiased": unbiased HSIC over all samples. Around 0 for independent layers, so half of those
      estimates are negative; that is no fault, and nothing is clipped.
    - "biased": the familiar one. Too high when samples are not many more than features.
    - "minibatch": unbiased HSIC within batches, each of the three summed over batches before the
      division; the published form.

    Samples are regrouped into blocks as they come, so it does not matter in which pieces. Blocks
    are dealt to 16 groups, halves of which give the intervals; samples that depend on each other,
    as those of one text do, should therefore follow each other.

    Args:
        block_size: samples that are always drawn together; fewer than 8 blocks give no interval.
        batch_size: samples in a batch of "minibatch", at least 4; a block ends its last batch.
        exact: False keeps no products of features (64 bytes times both widths for every pair of
            layers); only "minibatch" is known then.

    Raises:
        ValueError: if the batch is too small or larger than the block.

    Source: Engram paper, section 6.1; Nguyen, Raghu, Kornblith 2021 (arXiv:2010.15327).
    """

    def __init__(self, *, block_size: int = 256, batch_size: int = 32, exact: bool = True):
        if not LEAST_SAMPLES <= batch_size <= block_size:
            raise ValueError(
                f"CKAStream.batch_size must lie in {LEAST_SAMPLES}..{block_size} (block_size), "
                f"since unbiased HSIC needs {LEAST_SAMPLES} samples; got {batch_size}"
            )
        self.block_size, self.batch_size, self.exact = block_size, batch_size, exact
        self.samples = 0
        self._blocks = 0
        self._rest: tuple[Tensor, Tensor] | None = None
        self._closed = False

    def update(
        self,
        x: Float[Tensor, "layer_a sample hidden_a"],
        y: Float[Tensor, "layer_b sample hidden_b"],
    ) -> None:
        """Take more samples; sample i of x and of y are the same position of a text.

        Raises:
            ValueError: if their numbers differ, layers or widths are not those of earlier ones, or
                the products of features would take more than 8 GiB.
            RuntimeError: if a result was asked for already.
        """
        if self._closed:
            raise RuntimeError("a CKAStream takes no samples after its result; make a new one")
        check_samples(x, y)
        x, y = x.detach(), y.detach().to(x.device)
        if self._rest is None:
            self._start(x, y)
        if (tuple(x.shape[::2]), tuple(y.shape[::2])) != self._shapes:
            raise ValueError(
                f"layers and widths must stay {self._shapes[0]} of x and {self._shapes[1]} of y; "
                f"got {tuple(x.shape[::2])} and {tuple(y.shape[::2])}"
            )
        self.samples += x.shape[1]
        x, y = torch.cat([self._rest[0], x], dim=1), torch.cat([self._rest[1], y], dim=1)
        done = x.shape[1] // self.block_size * self.block_size
        for start in range(0, done, self.block_size):
            self._add(*(side[:, start : start + self.block_size] for side in (x, y)))
        self._rest = x[:, done:].clone(), y[:, done:].clone()

    def result(
        self,
        estimator: Estimator = "debiased",
        *,
        layers_a: tuple[int, ...] | None = None,
        layers_b: tuple[int, ...] | None = None,
        seed: int = 0,
    ) -> CKAMap:
        """CKA of every pair of layers; may be asked for several estimators, not added to any more.

        Args:
            layers_a: names of x's layers; counted from 0 by default.
            layers_b: names of y's layers; counted from 0 by default.
            seed: of the halves; streams of as many samples draw the same.

        Raises:
            ValueError: if there are fewer than 4 samples or the estimator is unknown or not kept.
        """
        check_estimator(estimator, self.samples)
        if estimator != "minibatch" and not self.exact:
            raise ValueError(
                f'a CKAStream with exact=False knows only "minibatch"; got {estimator!r}'
            )
        self._close()
        groups = min(GROUPS, self._blocks)
        draws = torch.from_numpy(half_draws(groups, seed))
        hsic = self._hsic(estimator, draws)
        layers_a = layers_a or tuple(range(self._shapes[0][0]))
        layers_b = layers_b or tuple(range(self._shapes[1][0]))
        return map_of_draws(
            hsic,
            faults=(
                faults(self._scales[0], hsic[1][0], "a", layers_a),
                faults(self._scales[1], hsic[2][0], "b", layers_b),
            ),
            groups=groups,
            layers_a=layers_a,
            layers_b=layers_b,
            estimator=estimator,
            samples=self.samples,
        )

    def _start(self, x: Tensor, y: Tensor) -> None:
        self._shapes = tuple(x.shape[::2]), tuple(y.shape[::2])
        (layers_a, width_a), (layers_b, width_b) = self._shapes
        pairs = list(product(range(layers_a), range(layers_b)))
        dtype = common_dtype(x, y)
        if self.exact:
            size = dtype.itemsize * GROUPS * width_a * width_b * len(pairs)
            if size > LARGEST_SUMS:
                raise ValueError(
                    f"products of features may take {LARGEST_SUMS / 2**30:.0f} GiB; {layers_a} x "
                    f"{layers_b} layers of width {width_a} and {width_b} need {size / 2**30:.1f}. "
                    "Compare fewer layers, or take exact=False and the minibatch estimator."
                )
        self._scales = [[Scale(dtype) for _ in side] for side in (x, y)]
        like = [extended(side[:, :0].to(dtype)) for side in (x, y)]
        self._sums = {pair: GroupSums(GROUPS, *like) for pair in pairs if self.exact}
        self._within = [
            [GroupSums(GROUPS, side, side) for _ in range(len(side) if self.exact else 0)]
            for side in like
        ]
        self._batches = BatchSums(GROUPS, (layers_a, layers_b), self.batch_size)
        self._rest = x[:, :0], y[:, :0]

    def _add(self, x: Tensor, y: Tensor) -> None:
        """Count one block."""
        group = self._blocks % GROUPS
        self._blocks += 1
        x, y = (
            torch.stack([scale(layer) for scale, layer in zip(scales, side, strict=True)])
            for scales, side in zip(self._scales, (x, y), strict=True)
        )
        self._batches.add(group, x, y)
        x, y = extended(x), extended(y)
        for (i, j), sums in self._sums.items():
            sums.add(group, x[i], y[j])
        for side, within in zip((x, y), self._within, strict=True):
            for layer, sums in zip(side, within, strict=False):
                sums.add(group, layer, layer)

    def _close(self) -> None:
        if not self._closed and self._rest[0].shape[1]:
            self._add(*self._rest)
        self._rest, self._closed = None, True

    def _hsic(self, estimator: str, draws: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """HSIC between and within, for every draw of groups."""
        draws = torch.nn.functional.pad(draws, (0, GROUPS - draws.shape[1]))
        if estimator == "minibatch":
            return tuple(part.numpy() for part in self._batches.hsic(draws))
        between, within_a, within_b = (
            [sums.hsic(draws, debiased=estimator == "debiased") for sums in part]
            for part in (self._sums.values(), *self._within)
        )
        layers = len(within_a), len(within_b)
        return (
            torch.stack(between, dim=1).unflatten(1, layers).cpu().numpy(),
            torch.stack(within_a, dim=1).cpu().numpy(),
            torch.stack(within_b, dim=1).cpu().numpy(),
        )


def check_samples(x: Tensor, y: Tensor) -> None:
    """Refuse stacks of features of different samples."""
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"CKA compares the same samples; got {x.shape[1]} of x and {y.shape[1]} of y"
        )


def check_estimator(estimator: str, samples: int) -> None:
    """Refuse unknown estimators, and samples too few for any of them."""
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}; got {estimator!r}")
    if samples < LEAST_SAMPLES:
        raise ValueError(
            f"CKA needs at least {LEAST_SAMPLES} samples, since unbiased HSIC divides by n (n - 3);"
            f" got n = {samples}. Compare more positions."
        )
