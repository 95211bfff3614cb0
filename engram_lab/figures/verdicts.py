"""Verdicts side by side: every claim with its difference and interval."""

import textwrap

import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.style import SOFT_INK, Room, colour, require, titled

SYMBOL = {"supported": "circle", "contradicted": "x", "undecided": "square"}


def verdict_forest(frame: pd.DataFrame) -> go.Figure:
    """Difference and interval of every claim, a row each, coloured by outcome.

    Args:
        frame: columns claim, difference, low, high, outcome, n_seeds, n_documents and perhaps
            unit, as `experiments.verdict.verdict_frame` gives them.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("claim", "difference", "low", "high", "outcome", "n_seeds", "n_documents")
    require(frame, *columns, made_by="experiments.verdict.verdict_frame")
    rows = frame.reset_index(drop=True)
    figure = go.Figure()
    for outcome in SYMBOL:
        part = rows[rows["outcome"] == outcome]
        if not part.empty:
            figure.add_trace(_intervals(part, outcome))
    figure.add_vline(x=0, line={"color": SOFT_INK, "width": 1, "dash": "dot"}, layer="below")
    figure.update_yaxes(
        range=[len(rows) - 0.4, -0.6],
        tickvals=list(rows.index),
        ticktext=["<br>".join(textwrap.wrap(claim, 46)) for claim in rows["claim"]],
        showgrid=False,
        ticks="",
    )
    figure.update_xaxes(title_text=f"difference ({_units(rows)}; left favours the claim)")
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    return titled(
        figure,
        title="Verdicts",
        note=(
            "Mean over paired seeds of the difference on the same documents, with its bootstrap "
            f"interval; {_from_to(rows['n_seeds'])} seeds, {_from_to(rows['n_documents'])} "
            "documents. Supported: the interval lies left of 0, and where it speaks of documents "
            "alone no seed says otherwise; contradicted: the reverse; else undecided."
        ),
        room=Room(height=30 + 52 * len(rows), left=330, head=26),
    )


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
            "%{customdata[0]}<br>%{x:+.4f} nats (%{customdata[1]:+.4f} to "
            f"%{{customdata[2]:+.4f}})<extra>{outcome}</extra>"
        ),
        name=outcome,
    )


def _units(rows: pd.DataFrame) -> str:
    if "unit" not in rows:
        return "in loss, nats per token"
    units = list(dict.fromkeys(rows["unit"]))
    return f"in loss, {units[0]}" if units == ["nats per token"] else ", ".join(units)


def _from_to(counts: pd.Series) -> str:
    low, high = counts.min(), counts.max()
    return str(low) if low == high else f"{low} to {high}"
