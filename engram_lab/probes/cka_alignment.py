"""Which plain layer a layer with memory stands for, and how much deeper that is than itself."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Float64

from engram_lab.probes.cka_map import CKAMap, interval

NO_WEIGHT = "one of the largest CKA is not positive, so they are no weights"


def soft_alignment(
    similarity: Float[np.ndarray, "*rest layer_a layer_b"],
    *,
    topk: int,
    depths: Sequence[int | float] | None = None,
) -> Float64[np.ndarray, "*rest layer_b"]:
    """Centre of the `topk` most similar layers a of every layer b, weighted by similarity.

    Args:
        similarity: CKA, of any number of maps.
        topk: layers to take; ties go to the shallower.
        depths: of the layers a; counted from 0 by default.

    Returns:
        A depth for every layer b; NaN where one of the `topk` similarities is missing or not
        positive.

    Raises:
        ValueError: if there are fewer layers than `topk`.

    Source: Engram paper, section 6.1 (there 5 of 30 layers).
    """
    layers = similarity.shape[-2]
    if not 1 <= topk <= layers:
        raise ValueError(f"topk must lie in 1..{layers}, the number of layers a; got {topk}")
    depths = np.arange(layers, dtype=float) if depths is None else np.asarray(depths, float)
    missing = np.isnan(similarity)
    order = np.argsort(np.where(missing, np.inf, -similarity), axis=-2, kind="stable")
    best = order[..., :topk, :]
    weights = np.take_along_axis(similarity, best, axis=-2)
    usable = (weights > 0).all(axis=-2)  # False where one is NaN
    total = np.where(usable, weights.sum(axis=-2), 1)
    return np.where(usable, (weights * depths[best]).sum(axis=-2) / total, np.nan)


def default_topk(layers: int) -> int:
    """A sixth of the layers, at least 3: more would pull every centre to the middle."""
    return min(layers, max(3, round(layers / 6)))


def alignment_frame(cka: CKAMap, *, topk: int | None = None) -> pd.DataFrame:
    """Soft alignment of every layer b, with intervals.

    The centre of a few layers cannot lie at either end, so read it against a map of two seeds.

    Args:
        cka: a map of two models, the plain one as a.
        topk: layers in each centre; by default a sixth of them, at least 3.

    Returns:
        Columns layer_b, estimator, alignment (in depths of a), low, high (95 % of the replicates),
        reason, topk and samples.

    Raises:
        ValueError: as `soft_alignment`.
    """
    topk = default_topk(len(cka.layers_a)) if topk is None else topk
    centres, replicates = (
        soft_alignment(part, topk=topk, depths=cka.layers_a)
        for part in (cka.values, cka.replicates)
    )
    low, high = interval(replicates)
    return pd.DataFrame(
        {
            "layer_b": cka.layers_b,
            "estimator": cka.estimator,
            "alignment": centres,
            "low": low,
            "high": high,
            "reason": [_reason(cka, place, centre) for place, centre in enumerate(centres)],
            "topk": topk,
            "samples": cka.samples,
        }
    )


def depth_gains(maps: Mapping[str, CKAMap], *, topk: int | None = None) -> pd.DataFrame:
    """How many layers deeper than itself a layer b stands for, averaged over the first half.

    Args:
        maps: by what is compared, for instance "memory" and "other seed".
        topk: as in `alignment_frame`.

    Returns:
        Columns comparison, estimator, gain (layers), low, high (95 % of the replicates), reason,
        layers (how many the mean is over), topk and samples.

    Raises:
        ValueError: as `soft_alignment`.
    """
    rows = []
    for name, cka in maps.items():
        chosen = default_topk(len(cka.layers_a)) if topk is None else topk
        gain, replicates = gain_replicates(cka, chosen)
        low, high = interval(replicates)
        frame = alignment_frame(cka, topk=chosen).head(_half(cka))
        rows.append(
            {
                "comparison": name,
                "estimator": cka.estimator,
                "gain": gain,
                "low": float(low),
                "high": float(high),
                "reason": "; ".join(dict.fromkeys(filter(None, frame["reason"]))),
                "layers": _half(cka),
                "topk": chosen,
                "samples": cka.samples,
            }
        )
    return pd.DataFrame(rows)


def gain_replicates(cka: CKAMap, topk: int) -> tuple[float, Float64[np.ndarray, "replicate"]]:
    """Depth gain, and the same for every replicate of the map."""
    half = _half(cka)
    depths = np.asarray(cka.layers_b[:half], float)
    gains = [
        (soft_alignment(part[..., :half], topk=topk, depths=cka.layers_a) - depths).mean(axis=-1)
        for part in (cka.values, cka.replicates)
    ]
    return float(gains[0]), gains[1]


def _half(cka: CKAMap) -> int:
    """How many of the layers b count as the first half."""
    return max(1, len(cka.layers_b) // 2)


def _reason(cka: CKAMap, place: int, centre: float) -> str:
    if not np.isnan(centre):
        return cka.note
    found = [row[place] for row in cka.reasons if row[place]]
    return "; ".join(dict.fromkeys(found)) or NO_WEIGHT
