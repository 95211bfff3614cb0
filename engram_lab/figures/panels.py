"""What several figures draw alike: seeds with their mean and range, the title of a panel."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.losses import over_seeds
from engram_lab.figures.style import COLOURS, INK, translucent

NAMES = {
    "dense": "dense",
    "experts": "experts only",
    "engram": "hybrid",
    "engram_3x": "hybrid, three times the rows",
    "neighbour": "hybrid, neighbour's addresses",
    "wide_ffn": "no memory, wider shared FFN",
    "deeper": "experts, one more block",
}
"""Arms as figures call them, in the order in which they are listed."""

HOVERS = {
    "delta_nats": ("mean %{x:+.4f} nats", "seed %{customdata}: %{x:+.4f} nats"),
    "accepted_length": ("mean %{x:.3f} tokens a round", "seed %{customdata}: %{x:.3f}"),
}
"""Columns that `bar_and_seeds` draws, with what the bar and its points say of themselves."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """How one series looks.

    Attributes:
        name: its legend entry.
        colour: `#rrggbb`.
        symbol: marker of the mean and, smaller, of the seeds.
        dash: of the line through the means.
        legend: which legend names it ("legend", "legend2"), or "" for none.
    """

    name: str
    colour: str
    symbol: str = "circle"
    dash: str = "solid"
    legend: str = "legend"


def seeds_and_mean(
    figure: go.Figure, deltas: pd.DataFrame, line: Line, *, row: int, col: int
) -> pd.DataFrame:
    """Draw every seed as a point, the mean as a line and the range over seeds as a band.

    Args:
        deltas: columns x, seed and delta_nats.

    Returns:
        What was drawn: columns x, mean, low, high and seeds.
    """
    summary = over_seeds(deltas, ["x"])
    place = {"row": row, "col": col}
    shown = {"legendgroup": line.name, "legend": line.legend or None}
    if summary["seeds"].max() > 1:
        figure.add_trace(_band(summary, line).update(**shown), **place)
    figure.add_scatter(
        x=deltas["x"],
        y=deltas["delta_nats"],
        customdata=deltas["seed"],
        mode="markers",
        marker={"color": translucent(line.colour, 0.55), "size": 5, "symbol": line.symbol},
        hovertemplate="seed %{customdata}: %{y:+.4f} nats at %{x:.3f}<extra></extra>",
        name=f"{line.name}, seeds",
        showlegend=False,
        **shown,
        **place,
    )
    figure.add_scatter(
        x=summary["x"],
        y=summary["mean"],
        mode="lines+markers",
        line={"color": line.colour, "width": 2, "dash": line.dash},
        marker={"size": 8, "symbol": line.symbol, "line": {"color": "white", "width": 1}},
        hovertemplate="mean %{y:+.4f} nats at %{x:.3f}<extra></extra>",
        name=line.name,
        showlegend=bool(line.legend),
        **shown,
        **place,
    )
    return summary


def _band(summary: pd.DataFrame, line: Line) -> go.Scatter:
    """From the lowest to the highest seed."""
    return go.Scatter(
        x=[*summary["x"], *summary["x"][::-1]],
        y=[*summary["high"], *summary["low"][::-1]],
        fill="toself",
        fillcolor=translucent(line.colour, 0.13),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        name=f"{line.name}, range over seeds",
        showlegend=False,
    )


def panel_title(figure: go.Figure, text: str, *, row: int, col: int, above: int = 22) -> None:
    """Bold text so many pixels above a panel; the default leaves room for a legend."""
    figure.add_annotation(
        text=f"<b>{text}</b>",
        x=0,
        xref="x domain",
        xanchor="left",
        y=1,
        yref="y domain",
        yanchor="bottom",
        yshift=above,
        font={"size": 13, "color": INK},
        showarrow=False,
        row=row,
        col=col,
    )


def legend_above(figure: go.Figure, *, row: int, col: int) -> dict[str, object]:
    """Layout of a horizontal legend just above a panel."""
    subplot = figure.get_subplot(row, col)
    x_axis = subplot.xaxis if hasattr(subplot, "xaxis") else subplot[0].xaxis
    y_axis = subplot.yaxis if hasattr(subplot, "yaxis") else subplot[0].yaxis
    return {
        "orientation": "h",
        "x": x_axis.domain[0],
        "xanchor": "left",
        "y": y_axis.domain[1],
        "yanchor": "bottom",
    }


def legend_beside(figure: go.Figure, *, row: int, col: int) -> dict[str, object]:
    """Layout of a legend right of a panel, for many or long names; it needs room there."""
    above = legend_above(figure, row=row, col=col)
    x_axis = figure.get_subplot(row, col).xaxis
    return above | {"orientation": "v", "x": x_axis.domain[1] + 0.01, "yanchor": "top"}


def bar_and_seeds(
    figure: go.Figure,
    rows: pd.DataFrame,
    line: Line,
    *,
    label: str,
    width: float,
    col: int,
    column: str = "delta_nats",
) -> float:
    """Draw a bar to the mean of the seeds, with a point for each; returns the mean.

    Args:
        figure: drawn on, in its first row.
        rows: a row a seed, with columns seed and `column`.
        line: name of the traces and their colour.
        label: place on the axis of bars.
        width: of the bar, in places.
        col: column of the panel, from 1.
        column: what is drawn, a key of `HOVERS`.
    """
    place = {"row": 1, "col": col}
    mean = float(rows[column].mean())
    of_mean, of_seed = HOVERS[column]
    figure.add_bar(
        x=[mean],
        y=[label],
        orientation="h",
        width=width,
        marker={
            "color": translucent(line.colour, 0.35),
            "line": {"color": line.colour, "width": 1},
        },
        hovertemplate=f"{of_mean}<extra></extra>",
        name=line.name,
        showlegend=False,
        **place,
    )
    figure.add_scatter(
        x=rows[column],
        y=[label] * len(rows),
        customdata=rows["seed"],
        mode="markers",
        marker={"color": line.colour, "size": 7, "line": {"color": "white", "width": 1}},
        hovertemplate=f"{of_seed}<extra></extra>",
        name=f"{line.name}, seeds",
        showlegend=False,
        **place,
    )
    return mean


def memory_blocks(figure: go.Figure, layers: Sequence[int], *, col: int) -> None:
    """Shade the step over every block that reads a memory: from the stream before to that behind.

    Args:
        figure: drawn on, in its first row; its x axis counts layers.
        layers: the blocks, counted from 0.
        col: column of the panel, from 1.
    """
    for layer in layers:
        figure.add_vrect(
            x0=layer,
            x1=layer + 1,
            fillcolor=translucent(COLOURS["engram"], 0.09),
            line_width=0,
            layer="below",
            row=1,
            col=col,
        )
