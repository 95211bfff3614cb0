"""Verdicts side by side: every claim with its difference and interval."""

import textwrap

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.style import SOFT_INK, Room, colour, require, titled

UNIT = "nats per token"
BETWEEN = 74  # pixels from panel to panel
SYMBOL = {"supported": "circle", "contradicted": "x", "undecided": "square"}


def verdict_forest(frame: pd.DataFrame) -> go.Figure:
    """Difference and interval of every claim, a row each, coloured by outcome; a panel a unit.

    Args:
        frame: columns claim, difference, low, high, outcome, n_seeds, n_documents and perhaps
            unit, as `experiments.verdict.verdict_frame` gives them.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("claim", "difference", "low", "high", "outcome", "n_seeds", "n_documents")
    require(frame, *columns, made_by="experiments.verdict.verdict_frame")
    frame = frame if "unit" in frame else frame.assign(unit=UNIT)
    parts = [part.reset_index(drop=True) for _, part in frame.groupby("unit", sort=False)]
    height = 30 + 52 * len(frame) + BETWEEN * (len(parts) - 1)
    figure = make_subplots(
        rows=len(parts),
        cols=1,
        row_heights=[len(part) for part in parts],
        vertical_spacing=BETWEEN / height if len(parts) > 1 else 0.0,
    )
    for row, part in enumerate(parts, start=1):
        _panel(figure, part, row)
    for outcome in [name for name in SYMBOL if name in set(frame["outcome"])]:
        mark = {"symbol": SYMBOL[outcome], "size": 10, "color": colour(outcome)}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=mark, name=outcome)
    legend = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}
    figure.update_layout(legend=legend, showlegend=True)
    return titled(
        figure,
        title="Verdicts",
        note=(
            "Mean over paired seeds of the difference on the same documents or other items, with "
            f"its interval; {_from_to(frame['n_seeds'])} seeds, {_from_to(frame['n_documents'])} "
            "items. Supported: the interval lies left of 0, and where it speaks of items alone no "
            "seed says otherwise; contradicted: the reverse; else undecided."
        ),
        room=Room(height=height, left=330, head=26),
    )


def _panel(figure: go.Figure, rows: pd.DataFrame, row: int) -> None:
    """Claims of one unit, on an axis of their own."""
    place = {"row": row, "col": 1}
    for outcome, part in rows.groupby("outcome", sort=False):
        figure.add_trace(_intervals(part, str(outcome)), **place)
    line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
    figure.add_vline(x=0, line=line, layer="below", **place)
    figure.update_yaxes(
        range=[len(rows) - 0.4, -0.6],
        tickvals=list(rows.index),
        ticktext=["<br>".join(textwrap.wrap(claim, 46)) for claim in rows["claim"]],
        showgrid=False,
        ticks="",
        **place,
    )
    unit = rows["unit"].iloc[0]
    what = f"in loss, {unit}" if unit == UNIT else unit
    figure.update_xaxes(title_text=f"difference ({what}; left favours the claim)", **place)


def _intervals(part: pd.DataFrame, outcome: str) -> go.Scatter:
    return go.Scatter(
        x=part["difference"],
        y=part.index,
        error_x={
            "type": "data",
            "symmetric": False,
            "array": part["high"] - part["difference"],
            "arrayminus": part["difference"] - part["low"],
            "thickness": 1.5,
            "width": 4,
        },
        mode="markers",
        marker={"symbol": SYMBOL[outcome], "size": 10, "color": colour(outcome)},
        customdata=part[["claim", "low", "high"]],
        hovertemplate=(
            "%{customdata[0]}<br>%{x:+.4f} (%{customdata[1]:+.4f} to "
            f"%{{customdata[2]:+.4f}})<extra>{outcome}</extra>"
        ),
        name=outcome,
        showlegend=False,
    )


def _from_to(counts: pd.Series) -> str:
    low, high = counts.min(), counts.max()
    return str(low) if low == high else f"{low} to {high}"
