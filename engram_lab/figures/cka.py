"""Which layer of the plain model each layer resembles: a map, with the alignment as its ridge."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import NAMES, panel_title
from engram_lab.figures.style import (
    AMOUNTS,
    COLOURS,
    INK,
    Room,
    colour,
    require,
    symbol,
    titled,
)

MADE_BY = "probes.cka.cka_frame"
ALIGNED_BY = "probes.cka_alignment.alignment_frame"
PUBLISHED_BLOCKS = 30  # of Engram-27B and MoE-27B, arXiv:2601.07372, table 5
PANEL = 330  # pixels
NULL = "experts of another seed (null)"
EXPLAINED = {
    "debiased": "debiased: around 0 for layers that share nothing, so half of those are negative",
    "biased": "biased: above 0 even for layers that share nothing",
    "minibatch": "debiased within batches, summed over them before the division",
}


def cka_heatmap(
    frame: pd.DataFrame,
    *,
    alignment: pd.DataFrame | None = None,
    published: pd.DataFrame | None = None,
) -> go.Figure:
    """CKA of every pair of layers, one panel per comparison, with the alignment as a white ridge.

    The plain model is down, the other across; equal depth is the grey diagonal. Without a map of
    two seeds of the plain model beside it, the figure proves little: nearby layers of any two
    models are alike.

    Args:
        frame: rows of `probes.cka.cka_frame` for one estimator; where they come from several pairs
            of models, a column comparison names the pair.
        alignment: rows of `probes.cka_alignment.alignment_frame`, with the same column.
        published: the table `engram_fig4_alignment`, drawn by share of depth in the first panel.

    Raises:
        ValueError: if columns are missing or there are several estimators.
    """
    require(frame, "layer_a", "layer_b", "estimator", "cka", "reason", made_by=MADE_BY)
    one_estimator(frame)
    parts, ridges = by_comparison(frame), _ridges(alignment)
    figure = make_subplots(rows=1, cols=len(parts), horizontal_spacing=0.1 / len(parts))
    for col, (name, part) in enumerate(parts.items(), start=1):
        figure.add_trace(_cells(part), row=1, col=col)
        _diagonal(figure, part, col)
        if name in ridges:
            _ridge(figure, ridges[name], col)
        if published is not None and col == 1:
            _published(figure, published, part, col)
        if name:
            panel_title(figure, compared(name)[0], row=1, col=col, above=6)
        figure.update_xaxes(title_text="layer of the other model", row=1, col=col)
    figure.update_yaxes(title_text="layer of the plain model", row=1, col=1)
    figure.update_xaxes(showline=False, dtick=tick_step(frame["layer_b"]), constrain="domain")
    figure.update_yaxes(
        showline=False, showgrid=False, dtick=tick_step(frame["layer_a"]), constrain="domain"
    )
    figure.update_layout(coloraxis=_colours(frame), legend=legend_on_top())
    return titled(
        figure,
        title="Which layer resembles which",
        note=footnote(frame, alignment, published),
        room=_room(len(parts)),
    )


def compared(comparison: str) -> tuple[str, str]:
    """How a model compared with the plain one is called, and its colour."""
    if comparison == "seed":
        return NULL, COLOURS["experts"]
    return NAMES.get(comparison, comparison), colour(comparison)


def by_comparison(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows of each pair of models by its name, in order of appearance; "" where there is one."""
    if "comparison" not in frame:
        return {"": frame}
    return {name: frame[frame["comparison"] == name] for name in frame["comparison"].unique()}


def _ridges(alignment: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    if alignment is None:
        return {}
    require(alignment, "layer_b", "alignment", "low", "high", made_by=ALIGNED_BY)
    return by_comparison(alignment)


def one_estimator(frame: pd.DataFrame) -> None:
    """Refuse a frame of several estimators."""
    found = list(frame["estimator"].unique())
    if len(found) > 1:
        raise ValueError(
            f"a map shows one estimator; the frame has {', '.join(found)}. Choose one: "
            f'frame[frame["estimator"] == "{found[0]}"]'
        )


def _cells(part: pd.DataFrame) -> go.Heatmap:
    table = part.pivot(index="layer_a", columns="layer_b", values="cka")
    hints = part.assign(text=[_hint(row) for row in part.to_dict("records")])
    return go.Heatmap(
        x=table.columns,
        y=table.index,
        z=table.to_numpy(),
        text=hints.pivot(index="layer_a", columns="layer_b", values="text").to_numpy(),
        hovertemplate="plain %{y}, other %{x}<br>%{text}<extra></extra>",
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        name="CKA",
    )


def _hint(row: dict) -> str:
    if pd.isna(row["cka"]):
        return str(row["reason"])
    known = pd.notna(row.get("low")) and pd.notna(row.get("high"))
    bounds = f" ({row['low']:.3f} to {row['high']:.3f})" if known else ""
    return f"CKA {row['cka']:.3f}{bounds}"


def _diagonal(figure: go.Figure, part: pd.DataFrame, col: int) -> None:
    low = max(part["layer_a"].min(), part["layer_b"].min())
    high = min(part["layer_a"].max(), part["layer_b"].max())
    figure.add_scatter(
        x=[low, high],
        y=[low, high],
        mode="lines",
        line={"color": COLOURS["published"], "width": 2, "dash": "dot"},
        hoverinfo="skip",
        name="equal depth",
        legendgroup="diagonal",
        showlegend=col == 1,
        row=1,
        col=col,
    )


def _ridge(figure: go.Figure, part: pd.DataFrame, col: int) -> None:
    """White on dark and on light: each line and mark has a dark rim."""
    part = part.sort_values("layer_b")
    shown = {"x": part["layer_b"], "y": part["alignment"], "legendgroup": "ridge"}
    place = {"row": 1, "col": col}
    rim = {"color": INK, "width": 5}
    figure.add_scatter(
        **shown, mode="lines", line=rim, hoverinfo="skip", name="rim", showlegend=False, **place
    )
    figure.add_scatter(
        **shown,
        mode="lines+markers",
        line={"color": "white", "width": 2.5},
        marker={"color": "white", "size": 8, "line": {"color": INK, "width": 1.2}},
        customdata=part[["low", "high"]],
        hovertemplate=(
            "layer %{x} stands for %{y:.2f} (%{customdata[0]:.2f} to %{customdata[1]:.2f})"
            "<extra></extra>"
        ),
        name="soft alignment",
        showlegend=col == 1,
        **place,
    )


def published_depths(published: pd.DataFrame, layers: pd.Series) -> pd.DataFrame:
    """Published layers as shares of this model's depth."""
    columns = ("engram_layer", "soft_alignment_index", "kind")
    require(published, *columns, made_by="load_published('engram_fig4_alignment'), which")
    share = layers.max() / PUBLISHED_BLOCKS
    return published.assign(
        x=published["engram_layer"] * share, y=published["soft_alignment_index"] * share
    )


def _published(figure: go.Figure, published: pd.DataFrame, part: pd.DataFrame, col: int) -> None:
    published_point(
        figure,
        published_depths(published, part["layer_a"]),
        COLOURS["neighbour"],
        row=1,
        col=col,
    )


def published_point(figure: go.Figure, rows: pd.DataFrame, shade: str, **place: int) -> None:
    """Draw rows of `published_depths` at x and y."""
    figure.add_scatter(
        x=rows["x"],
        y=rows["y"],
        mode="markers",
        marker={
            "symbol": [symbol(kind, "diamond") for kind in rows["kind"]],
            "size": 12,
            "color": shade,
            "line": {"color": shade, "width": 2.5},
        },
        customdata=rows[["engram_layer", "soft_alignment_index", "kind"]],
        hovertemplate=(
            f"published: layer %{{customdata[0]}} of {PUBLISHED_BLOCKS} stands for "
            "%{customdata[1]} (%{customdata[2]})<extra></extra>"
        ),
        name="published, by share of depth",
        **place,
    )


def _colours(frame: pd.DataFrame) -> dict[str, object]:
    """White at 0 up to dark at 1; below 0, as far as there is anything, towards red."""
    lowest = min(0.0, float(frame["cka"].min())) if frame["cka"].notna().any() else 0.0
    zero = -lowest / (1 - lowest)
    shades = ("#FFFFFF", *AMOUNTS)
    scale = [(zero + (1 - zero) * i / len(AMOUNTS), shade) for i, shade in enumerate(shades)]
    bar = {"title": {"text": "CKA", "side": "right"}, "lenmode": "pixels", "len": 160}
    if lowest < 0:
        scale = [(0.0, "#F4A582"), *scale]
    return {"cmin": lowest, "cmax": 1, "colorscale": scale, "colorbar": bar | {"yanchor": "middle"}}


def legend_on_top() -> dict[str, object]:
    """Layout of a legend between title and panels."""
    return {"orientation": "h", "x": 0, "y": 1 + 26 / PANEL, "yanchor": "bottom"}


def _room(panels: int) -> Room:
    return Room(width=190 + (PANEL + 60) * panels, height=PANEL, right=90, head=58)


def tick_step(layers: pd.Series) -> int:
    """Layers from one tick to the next."""
    return 1 if layers.nunique() <= 16 else 5


def footnote(
    frame: pd.DataFrame, alignment: pd.DataFrame | None, published: pd.DataFrame | None
) -> str:
    """What the reader must know: estimator, samples, intervals, missing values, sources."""
    estimator = frame["estimator"].iloc[0]
    text = f"Linear CKA, {EXPLAINED.get(estimator, estimator)}; nothing is clipped. "
    if "samples" in frame:
        text += f"{frame['samples'].max():,} positions compared. "
    text += "Layer 0 is the stream before the first block, layer l that after l blocks."
    if alignment is not None:
        number = f"{alignment['topk'].max()} " if "topk" in alignment else ""
        text += (
            f" Alignment: centre of the {number}most similar plain layers, which "
            "cannot lie at either end; intervals hold 95 % of halves of the samples."
        )
    missing = [reason for reason in frame.loc[_missing(frame), "reason"].unique() if reason]
    if missing:
        text += f" Without a value ({int(_missing(frame).sum())}): {'; '.join(missing[:3])}."
    if published is not None:
        kinds = ", ".join(published["kind"].unique())
        text += f" Published (arXiv:2601.07372, figure 4): {kinds}, scaled to this depth."
    return text


def _missing(frame: pd.DataFrame) -> pd.Series:
    return frame["cka" if "cka" in frame else "alignment"].isna()
