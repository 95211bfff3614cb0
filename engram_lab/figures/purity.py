"""Semantic purity of rows: are the n-grams that share a row more alike than any two?"""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, RULE, SOFT_INK, Room, require, titled


def purity_figure(frame: pd.DataFrame) -> go.Figure:
    """Likeness of the next tokens of n-grams in one row, beside the same n-grams paired at random.

    Args:
        frame: rows of `probes.purity.purity_frame`; with a column row_budget a panel for each.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("order", "head", "pairs", "cosine", "chance_cosine", "error")
    require(frame, *columns, made_by="probes.purity.purity_frame")
    panels = list(frame.groupby("row_budget")) if "row_budget" in frame else [(None, frame)]
    figure = make_subplots(rows=1, cols=len(panels), shared_yaxes=True, horizontal_spacing=0.05)
    for col, (budget, rows) in enumerate(panels, start=1):
        for trace in _tables(rows):
            figure.add_trace(trace.update(showlegend=col == 1), row=1, col=col)
        if budget is not None:
            panel_title(figure, f"{budget:,} rows per table", row=1, col=col)
    figure.update_xaxes(rangemode="tozero", title_text="cosine of the next tokens' counts")
    figure.update_xaxes(showgrid=True, gridcolor=RULE)
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="", showline=False)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    tables = len(frame[["order", "head"]].drop_duplicates())
    return titled(
        figure,
        title="Do n-grams that share a row want the same of it?",
        note=(
            f"Mean over up to {frame['pairs'].max():,} pairs a table; bars are two standard errors "
            "of the difference to chance. Where they reach the hollow mark, a row holds n-grams "
            "that have no more in common than any two."
        ),
        room=Room(height=40 + 26 * tables, left=120, head=50),
    )


def _tables(rows: pd.DataFrame) -> list[go.Scatter]:
    labels = [
        f"order {order}, head {head}"
        for order, head in zip(rows["order"], rows["head"], strict=True)
    ]
    together = go.Scatter(
        x=rows["cosine"],
        y=labels,
        error_x={"type": "data", "array": 2 * rows["error"], "thickness": 1.5, "width": 4},
        customdata=rows["pairs"],
        mode="markers",
        marker={"size": 9, "color": COLOURS["engram"]},
        hovertemplate="%{x:.4f} over %{customdata} pairs<extra>one row</extra>",
        name="n-grams that share a row",
    )
    chance = go.Scatter(
        x=rows["chance_cosine"],
        y=labels,
        mode="markers",
        marker={"symbol": "circle-open", "size": 11, "color": SOFT_INK, "line": {"width": 2}},
        hovertemplate="%{x:.4f}<extra>paired at random</extra>",
        name="the same n-grams paired at random",
    )
    return [together, chance]
