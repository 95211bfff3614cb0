"""Which layer resembles which: linear CKA of two matrices, of two stacks, of two models.

A negative debiased estimate is no fault: the estimator is unbiased, so it scatters around 0 where
nothing is alike, and no value is clipped.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pandas as pd
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from engram_lab.model.residual import residual_stream
from engram_lab.probes.cka_layers import layer_similarity, new_stream, top_directions, without
from engram_lab.probes.cka_map import CKAMap
from engram_lab.probes.cka_stream import check_estimator
from engram_lab.probes.cka_sums import Estimator

TOKENS_AT_A_TIME = 4096
GATHERED = 2**15  # positions up to which features are kept, beyond which their sums

Pass = tuple[tuple[int, ...], Float[Tensor, "layer sample hidden"]]
"""Depths, and features of the positions kept, of a few sequences."""


def linear_cka(
    x: Float[Tensor, "sample a"], y: Float[Tensor, "sample b"], *, estimator: Estimator = "debiased"
) -> float:
    """Similarity of two representations of the same samples; 1 where one is the other turned.

    It stays the same when either is rotated, scaled or moved. It compares relations between
    samples, so the widths may differ.

    Args:
        x: one row per sample, at least 4.
        y: the same samples, elsewhere.
        estimator: "debiased", around 0 (and below as often as above) for unrelated x and y;
            "biased", above 0 for those, the more so the fewer samples there are; "minibatch", the
            debiased one within batches.

    Returns:
        A number from -1 to 1; NaN, with a warning that says why, where x or y is the same at every
        sample or is alike to nothing, itself included.

    Raises:
        ValueError: with fewer than 4 samples.

    Source: Kornblith et al. 2019 (arXiv:1905.00414); Engram paper, section 6.1.
    """
    found = layer_similarity(x.double()[None], y.double()[None], estimator=estimator)
    why = found.reasons[0][0].replace("layer 0 of a", "x").replace("layer 0 of b", "y")
    if why:
        warnings.warn(f"no CKA: {why}", stacklevel=2)
    return float(found.values[0, 0])


def cka_frame(
    model_a: nn.Module,
    model_b: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    *,
    keep: Tensor | None = None,
    estimator: Estimator = "debiased",
    layers: Sequence[int] | None = None,
    remove_top: int = 0,
) -> pd.DataFrame:
    """The frame of `compare_models`: columns layer_a, layer_b, estimator, cka, low, high, reason.

    See `compare_models` for arguments and errors, and `CKAMap.frame` for the columns.
    """
    return compare_models(
        model_a,
        model_b,
        token_ids,
        keep=keep,
        estimator=estimator,
        layers=layers,
        remove_top=remove_top,
    ).frame()


def compare_models(
    model_a: nn.Module,
    model_b: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    *,
    keep: Tensor | None = None,
    estimator: Estimator = "debiased",
    layers: Sequence[int] | None = None,
    remove_top: int = 0,
) -> CKAMap:
    """CKA of the residual streams of two models that read the same ids.

    The models read a few sequences at a time, so memory does not grow with the number of ids.

    Args:
        model_a: the plain one, by convention; left as it was.
        model_b: the one with memory, or another seed of the plain one; left as it was.
        token_ids: what both read, for instance documents cut to one length.
        keep: positions to compare, True or 1, for instance last tokens of names or one token class,
            batch seq; all by default. Positions of padding belong out of it; pad on the right.
        estimator: as in `CKAStream`.
        layers: depths to compare: 0 is the stream before the first block, l after l blocks, -1
            after the last. All by default.
        remove_top: directions of most variance to take out of every layer first; the models then
            read twice.

    Raises:
        ValueError: if `keep` has another shape than the ids or leaves fewer than 4 positions.
        IndexError: if a model has no such depth.
    """
    keep = _filter(keep, token_ids)
    models, samples = (model_a, model_b), int(keep.sum())
    check_estimator(estimator, samples)
    read = [partial(_passes, model, token_ids, keep, layers) for model in models]
    if samples <= GATHERED:
        parts = [list(passes()) for passes in read]
        features = [torch.cat([part for _, part in side], dim=1) for side in parts]
        layers_a, layers_b = (side[0][0] for side in parts)
        return layer_similarity(
            *features,
            estimator=estimator,
            remove_top=remove_top,
            layers_a=layers_a,
            layers_b=layers_b,
        )
    return _streamed(read, samples, estimator, remove_top)


def layer_features(
    model: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    *,
    keep: Tensor | None = None,
) -> Float[Tensor, "layer sample hidden"]:
    """Residual stream at chosen positions and every depth, for `layer_similarity`.

    Args:
        model: left as it was.
        token_ids: what it reads.
        keep: positions to keep, text by text; all by default.
    """
    keep = _filter(keep, token_ids)
    return torch.cat([part for _, part in _passes(model, token_ids, keep, None)], dim=1)


def _streamed(
    read: Sequence[Callable[[], Iterator[Pass]]],
    samples: int,
    estimator: Estimator,
    remove_top: int,
) -> CKAMap:
    """CKA of what two models read pass by pass, without keeping features."""
    directions = [
        top_directions((part for _, part in passes()), remove_top) if remove_top else None
        for passes in read
    ]
    stream = new_stream(samples, exact=estimator != "minibatch")
    depths: list[tuple[int, ...]] = []
    for parts in zip(*(passes() for passes in read), strict=True):
        depths = [names for names, _ in parts]
        stream.update(
            *(without(part, top) for (_, part), top in zip(parts, directions, strict=True))
        )
    return stream.result(estimator, layers_a=depths[0], layers_b=depths[1])


def _filter(
    keep: Tensor | None, token_ids: Int64[Tensor, "batch seq"]
) -> Bool[Tensor, "batch seq"]:
    """The positions to compare as booleans, all where none are named."""
    if keep is None:
        return torch.ones_like(token_ids, dtype=torch.bool)
    if keep.shape != token_ids.shape:
        raise ValueError(
            f"keep must have the shape of the ids, {tuple(token_ids.shape)}; got "
            f"{tuple(keep.shape)}"
        )
    return keep.bool()


def _passes(
    model: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    keep: Bool[Tensor, "batch seq"],
    layers: Sequence[int] | None,
) -> Iterator[Pass]:
    """Depths, and features of the positions kept, a few sequences at a time."""
    batch, seq = token_ids.shape
    rows = max(1, TOKENS_AT_A_TIME // max(seq, 1))
    for start in range(0, max(batch, 1), rows):
        kept = keep[start : start + rows]
        stream = residual_stream(model, token_ids[start : start + rows])
        depths = range(len(stream))
        chosen = tuple(depths) if layers is None else tuple(depths[layer] for layer in layers)
        flat = rearrange(stream[list(chosen)], "layer batch seq hidden -> layer (batch seq) hidden")
        yield chosen, flat[:, kept.flatten().to(flat.device)]
