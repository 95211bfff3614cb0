"""What a lens says in a number or a curve: how far from the end, and from where on near it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

MEANS = ("kl_nats", "reverse_kl_nats", "entropy_nats", "agreement")


def layer_means(frame: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Means over positions, layer by layer.

    Args:
        frame: rows of `probes.lens.logit_lens`, of one or several runs.
        by: columns that tell the runs apart, for instance arm and seed, or token_class.

    Returns:
        Columns `by`, layer, kl_nats, reverse_kl_nats, entropy_nats, agreement (share of positions
        where the top token is already that of the frame's last layer) and positions.

    Raises:
        ValueError: if columns are missing, or a run has two rows for one layer and position, so
            that `by` must name more.
    """
    by = list(by)
    place = [name for name in ("document", "sequence", "position") if name in frame]
    _require(frame, [*by, "layer", "position", "kl_nats", "top_token"])
    run = [name for name in [*by, *place] if name in frame]
    run = list(dict.fromkeys(run))
    if frame.duplicated([*run, "layer"]).any():
        raise ValueError(
            f"each run must have one row per layer and position; with by={by} some have more. Name "
            "the columns that tell runs apart: by=('arm', 'seed')."
        )
    last = frame.groupby(run, dropna=False)["layer"].transform("max")
    ends = frame.loc[frame["layer"] == last, [*run, "top_token"]]
    joined = frame.merge(ends.rename(columns={"top_token": "_end"}), on=run)
    joined["agreement"] = (joined["top_token"] == joined["_end"]).astype(float)
    grouped = joined.groupby([*by, "layer"], dropna=False, sort=True)
    means = [name for name in MEANS if name in joined]
    curve = grouped[means].mean()
    return curve.assign(positions=grouped.size()).reset_index()


def lens_summary(frame: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """One row per run: how much divergence there is over the depth, and where it has halved.

    Areas are taken over the relative depth, 0 before the first block and 1 after the last, so that
    models of different depth compare.

    Args:
        frame: rows of `probes.lens.logit_lens`, of one or several runs.
        by: columns that tell the runs apart.

    Returns:
        Columns `by`, layers (the last layer's number), kl_area_nats (area under the mean KL),
        agreement_area (area under the share of top tokens that agree with the last layer's),
        half_layer (the first whose mean KL is below half of layer 0's; NaN if layer 0 has none) and
        half_depth (half_layer over layers).

    Raises:
        ValueError: as `layer_means`.

    Source: experiment catalogue, E5.
    """
    by = list(by)
    curve = layer_means(frame, by)
    runs = curve.groupby(by, dropna=False, sort=True) if by else [((), curve)]
    rows = []
    for key, run in runs:
        key = key if isinstance(key, tuple) else (key,)
        rows.append(dict(zip(by, key, strict=True)) | _summary(run.sort_values("layer")))
    return pd.DataFrame(rows)


def _summary(run: pd.DataFrame) -> dict[str, float | int]:
    layers, kl = int(run["layer"].max()), run["kl_nats"].to_numpy(float)
    depth = run["layer"].to_numpy(float) / max(layers, 1)
    halved = run.loc[kl < 0.5 * kl[0], "layer"]
    half = float(halved.iloc[0]) if len(halved) else float("nan")
    return {
        "layers": layers,
        "kl_area_nats": float(np.trapezoid(kl, depth)),
        "agreement_area": float(np.trapezoid(run["agreement"].to_numpy(float), depth)),
        "half_layer": half,
        "half_depth": half / max(layers, 1),
    }


def _require(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [name for name in columns if name not in frame]
    if missing or frame.empty:
        raise ValueError(
            f"a lens curve needs columns {', '.join(columns)} and a row; missing: "
            f"{', '.join(missing) or 'rows'}. probes.lens.logit_lens() makes such a frame."
        )
