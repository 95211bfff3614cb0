"""What CKA and depth gain come to where memory plays no part: samples shuffled, another seed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from engram_lab.probes.cka_alignment import default_topk, gain_replicates
from engram_lab.probes.cka_layers import layer_similarity
from engram_lab.probes.cka_map import CKAMap, interval
from engram_lab.probes.cka_sums import Estimator


def permutation_null(
    x: Float[Tensor, "layer_a sample hidden_a"],
    y: Float[Tensor, "layer_b sample hidden_b"],
    *,
    estimator: Estimator = "debiased",
    permutations: int = 100,
    seed: int = 0,
) -> pd.DataFrame:
    """CKA after the samples of y are shuffled, so that no sample meets itself.

    What is left is chance, and bias: about 0 for "debiased" and "minibatch". It takes as long as so
    many maps. Nearby layers of any two models lie far above it; see `seed_null`.

    Args:
        x: features of the same samples at all layers of one model.
        y: of another.
        estimator: as in `CKAStream`.
        permutations: shuffles, at least 20.
        seed: of the shuffles.

    Returns:
        The columns of `CKAMap.frame`: cka is the mean over the shuffles, low and high bound 95 % of
        them.

    Raises:
        ValueError: with fewer than 20 permutations, or as `layer_similarity`.
    """
    if permutations < 20:
        raise ValueError(f"95 % of the permutations need at least 20 of them; got {permutations}")
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(permutations):
        order = torch.randperm(y.shape[1], generator=generator).to(y.device)
        found.append(layer_similarity(x, y[:, order], estimator=estimator))
    values = np.stack([cka.values for cka in found])
    low, high = interval(values)
    return (
        found[0]
        .frame()
        .assign(
            cka=values.mean(axis=0).flatten(),
            low=low.flatten(),
            high=high.flatten(),
            reason=[reason for row in found[0].reasons for reason in row],
        )
    )


def seed_null(
    seeds: Sequence[Float[Tensor, "layer sample hidden"]], *, estimator: Estimator = "debiased"
) -> dict[str, CKAMap]:
    """CKA of every seed of one plain model with every later one.

    Args:
        seeds: features of the same samples, as `layer_features` gives them, of at least two seeds.
        estimator: as in `CKAStream`.

    Returns:
        Maps by name, "seed 0 and 1", for `depth_gains` and `gain_over_null`; their frames are the
        panels to show beside the map with memory.

    Raises:
        ValueError: with fewer than two seeds, or as `layer_similarity`.
    """
    if len(seeds) < 2:
        raise ValueError(f"a null from seeds compares at least two of them; got {len(seeds)}")
    return {
        f"seed {one} and {other}": layer_similarity(seeds[one], seeds[other], estimator=estimator)
        for one in range(len(seeds))
        for other in range(one + 1, len(seeds))
    }


def gain_over_null(
    cka: CKAMap, nulls: Sequence[CKAMap], *, topk: int | None = None
) -> pd.DataFrame:
    """Depth gain with memory minus that between seeds of the plain model.

    Both are taken over the same halves of the samples, so the texts' share of the noise cancels.
    The seeds' share shows only in the range over the nulls.

    Args:
        cka: plain model against the one with memory.
        nulls: plain model against other seeds of itself, of the same samples.
        topk: as in `alignment_frame`.

    Returns:
        One row: estimator, gain, null_gain (mean over the nulls), null_low and null_high (least and
        greatest of them), difference, low and high (95 % of the replicates of the difference),
        reason and samples. `low` above 0 and `gain` above `null_high` speak for memory.

    Raises:
        ValueError: without nulls, or if they are of other layers or numbers of samples.
    """
    shape = (cka.layers_a, len(cka.layers_b), cka.samples, cka.estimator)
    others = [(null.layers_a, len(null.layers_b), null.samples, null.estimator) for null in nulls]
    if not others or any(other != shape for other in others):
        raise ValueError(
            "gain_over_null needs nulls with the layers, samples and estimator of the map, "
            f"{shape}; got {others}"
        )
    topk = default_topk(len(cka.layers_a)) if topk is None else topk
    gain, replicates = gain_replicates(cka, topk)
    pairs = [gain_replicates(null, topk) for null in nulls]
    null_gains = np.array([null_gain for null_gain, _ in pairs])
    low, high = interval(replicates - np.mean([draws for _, draws in pairs], axis=0))
    difference = gain - null_gains.mean()
    missing = "a layer of the first half has no alignment, see alignment_frame"
    row = {
        "estimator": cka.estimator,
        "gain": gain,
        "null_gain": null_gains.mean(),
        "null_low": null_gains.min(),
        "null_high": null_gains.max(),
        "difference": difference,
        "low": float(low),
        "high": float(high),
        "reason": missing if np.isnan(difference) else cka.note,
        "samples": cka.samples,
    }
    return pd.DataFrame([row])
