"""How much deeper than itself each layer stands for, against two seeds of the plain model."""

import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.cka import (
    ALIGNED_BY,
    by_comparison,
    compared,
    footnote,
    legend_on_top,
    one_estimator,
    published_depths,
    published_point,
    tick_step,
)
from engram_lab.figures.style import COLOURS, SOFT_INK, Room, require, titled, translucent

APART = 0.07  # between the lines of neighbouring comparisons, in layers, or they hide each other


def alignment_curve(frame: pd.DataFrame, *, published: pd.DataFrame | None = None) -> go.Figure:
    """How much deeper than itself each layer stands for, one line per comparison.

    Args:
        frame: rows of `probes.cka_alignment.alignment_frame` for one estimator; where they come
            from several pairs of models, a column comparison names the pair.
        published: the table `engram_fig4_alignment`, drawn by share of depth.

    Raises:
        ValueError: if columns are missing or there are several estimators.
    """
    columns = ("layer_b", "estimator", "alignment", "low", "high", "reason")
    require(frame, *columns, made_by=ALIGNED_BY)
    one_estimator(frame)
    figure = go.Figure()
    parts = by_comparison(frame)
    for place, (comparison, part) in enumerate(parts.items()):
        name, shade = compared(comparison or "engram")
        beside = APART * (place - (len(parts) - 1) / 2)
        _gain_line(figure, part, name if comparison else "alignment", shade, beside)
    if published is not None:
        rows = published_depths(published, frame["layer_b"])
        published_point(figure, rows.assign(y=rows["y"] - rows["x"]), COLOURS["published"])
    figure.add_hline(y=0, line={"color": SOFT_INK, "width": 1, "dash": "dot"}, layer="below")
    half = frame["layer_b"].min() + max(1, frame["layer_b"].nunique() // 2) - 0.5
    figure.add_vrect(
        x0=frame["layer_b"].min() - 0.5, x1=half, fillcolor=SOFT_INK, opacity=0.07, line_width=0
    )
    figure.update_xaxes(title_text="layer", dtick=tick_step(frame["layer_b"]))
    figure.update_yaxes(title_text="resembles a layer deeper by (layers)")
    figure.update_layout(legend=legend_on_top())
    return titled(
        figure,
        title="How much deeper each layer stands for",
        note=footnote(frame, frame, published)
        + " Lines stand a little apart, for they lie on each other. Shaded: the first half of the "
        "layers, over which the depth gain is the mean.",
        room=Room(height=320, head=50),
    )


def _gain_line(figure: go.Figure, part: pd.DataFrame, name: str, shade: str, beside: float) -> None:
    part = part.sort_values("layer_b")
    known = part.dropna(subset=["low", "high"])
    low, high = known["low"] - known["layer_b"], known["high"] - known["layer_b"]
    if len(known):
        figure.add_scatter(
            x=[*(known["layer_b"] + beside), *(known["layer_b"] + beside)[::-1]],
            y=[*high, *low[::-1]],
            fill="toself",
            fillcolor=translucent(shade, 0.16),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name=f"{name}, 95 %",
            legendgroup=name,
            showlegend=False,
        )
    figure.add_scatter(
        x=part["layer_b"] + beside,
        y=part["alignment"] - part["layer_b"],
        customdata=part["layer_b"],
        mode="lines+markers",
        line={"color": shade, "width": 2},
        marker={"size": 7},
        hovertemplate="layer %{customdata}: %{y:+.2f} layers<extra>" + name + "</extra>",
        name=name,
        legendgroup=name,
    )
