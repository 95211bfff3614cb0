"""How far attention reaches: its mass on the newest tokens, by layer."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import NAMES, panel_title
from engram_lab.figures.style import COLOURS, SYMBOLS, Room, colour, require, titled, translucent

MADE_BY = "probes.attention.attention_mass"


def attention_curves(frame: pd.DataFrame) -> go.Figure:
    """Attention mass within each window by layer: a panel a window, a line an arm, a point a seed.

    A line further down looks further back.

    Args:
        frame: rows of `probes.attention.attention_mass`; where they come from several arms, a
            column arm names them.

    Raises:
        ValueError: if columns are missing.
    """
    require(frame, "layer", "seed", "window", "mass", made_by=MADE_BY)
    arms = list(frame["arm"].unique()) if "arm" in frame else [""]
    windows = sorted(frame["window"].unique())
    figure = make_subplots(rows=1, cols=len(windows), shared_yaxes=True, horizontal_spacing=0.03)
    for col, window in enumerate(windows, start=1):
        part = frame[frame["window"] == window]
        for place, arm in enumerate(arms):
            rows = part[part["arm"] == arm] if arm else part
            _arm(figure, rows, arm, SYMBOLS[place % len(SYMBOLS)], col)
        panel_title(figure, f"newest {window} tokens", row=1, col=col, above=6)
        figure.update_xaxes(title_text="layer", row=1, col=col)
    figure.update_xaxes(dtick=1 if frame["layer"].nunique() <= 16 else 4)
    figure.update_yaxes(range=[0, 1.03])
    figure.update_yaxes(title_text="share of attention", row=1, col=1)
    figure.update_layout(
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "yref": "paper"}
    )
    figure.update_layout(legend_y=1.09)
    return titled(
        figure,
        title="How far attention reaches",
        note=_note(frame),
        room=Room(width=max(520, 100 + 290 * len(windows)), height=300, head=62),
    )


def _arm(figure: go.Figure, rows: pd.DataFrame, arm: str, mark: str, col: int) -> None:
    """Points of seeds, a line through their mean, a band from the lowest to the highest."""
    shade = colour(arm) if arm else COLOURS["experts"]
    name = NAMES.get(arm, arm) or "mean over seeds"
    over = rows.groupby("layer")["mass"].agg(["mean", "min", "max"])
    shared = {"legendgroup": name, "row": 1, "col": col}
    if rows["seed"].nunique() > 1:
        figure.add_scatter(
            x=[*over.index, *over.index[::-1]],
            y=[*over["max"], *over["min"][::-1]],
            fill="toself",
            fillcolor=translucent(shade, 0.13),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name=f"{name}, range over seeds",
            showlegend=False,
            **shared,
        )
    figure.add_scatter(
        x=rows["layer"],
        y=rows["mass"],
        customdata=rows["seed"],
        mode="markers",
        marker={"color": translucent(shade, 0.55), "size": 5, "symbol": mark},
        hovertemplate="seed %{customdata}: %{y:.3f} at layer %{x}<extra></extra>",
        name=f"{name}, seeds",
        showlegend=False,
        **shared,
    )
    figure.add_scatter(
        x=over.index,
        y=over["mean"],
        mode="lines+markers",
        line={"color": shade, "width": 2},
        marker={"size": 8, "symbol": mark, "line": {"color": "white", "width": 1}},
        hovertemplate="mean %{y:.3f} at layer %{x}<extra></extra>",
        name=name,
        showlegend=col == 1,
        **shared,
    )


def _note(frame: pd.DataFrame) -> str:
    text = (
        "Share of attention on the newest tokens, the query's own among them; mean over heads, "
        "queries and texts, the same queries in every panel. "
    )
    if "queries" in frame:
        text += f"{frame['queries'].max():,} queries per model. "
    return text + "Points: seeds; line: their mean; band: their range.\n" + provenance(frame)
