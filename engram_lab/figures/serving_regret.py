"""What a policy gives away under load, against knowing what will be accepted."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import panel_title
from engram_lab.figures.policies import (
    COLUMNS,
    MADE_BY,
    listed,
    panels_by,
    provenance_of_serving,
)
from engram_lab.figures.style import AMOUNTS, Room, require, titled


def regret_bars(
    frame: pd.DataFrame, *, by: str = "costs", concurrencies: Sequence[int | float] = ()
) -> go.Figure:
    """Throughput that every policy gives away against knowing what will be accepted.

    Args:
        frame: rows of `probes.serving.serving_frame` for closed loops, of one domain.
        by: column with a panel for each value, if the frame has it.
        concurrencies: which ones get a bar; by default the least, the middle and the most.

    Raises:
        ValueError: if columns are missing, the frame mixes domains, or lacks a concurrency.
    """
    require(frame, *COLUMNS, "regret", made_by=MADE_BY)
    panels, shown = panels_by(frame, by), _chosen(frame, concurrencies)
    figure = make_subplots(rows=1, cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03)
    for col, (title, part) in enumerate(panels.items(), 1):
        for number, users in enumerate(shown):
            shade = AMOUNTS[number % len(AMOUNTS)]
            rows = part[(part["concurrency"] == users) & (part["policy"] != "oracle")]
            trace = _bars(
                rows, f"{users:g} users" if users != 1 else "1 user", shade, first=col == 1
            )
            figure.add_trace(trace, row=1, col=col)
        panel_title(figure, title, row=1, col=col, above=6)
    order = [name for name in listed(frame) if name != "oracle"]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], showgrid=False, ticks="")
    figure.update_xaxes(tickformat=".0%", title_text="throughput given away")
    figure.update_layout(
        barmode="group", legend={"orientation": "h", "x": 0, "y": 1.08, "yanchor": "bottom"}
    )
    return titled(
        figure,
        title="What a policy gives away",
        note=f"{provenance_of_serving(frame)} Against an oracle that knows what will be accepted. "
        "'unrestricted' has the same confidences as 'early stop' and looks past a fall: what lies "
        "between the two is the price of losslessness. Below 0: not drafting at all is better.",
        room=Room(height=40 + 52 * len(order), left=130, head=84),
    )


def _bars(rows: pd.DataFrame, name: str, shade: str, *, first: bool) -> go.Bar:
    """Mean regret of every policy at one concurrency, with the range over seeds."""
    regret = rows.groupby("policy", sort=False)["regret"].agg(["mean", "min", "max"])
    return go.Bar(
        x=regret["mean"],
        y=regret.index,
        orientation="h",
        marker={"color": shade},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": regret["max"] - regret["mean"],
            "arrayminus": regret["mean"] - regret["min"],
            "thickness": 1,
            "width": 2,
        },
        hovertemplate="%{y}: %{x:.1%}<extra>" + name + "</extra>",
        name=name,
        legendgroup=name,
        offsetgroup=name,
        showlegend=first,
    )


def _chosen(frame: pd.DataFrame, concurrencies: Sequence[int | float]) -> list[int | float]:
    known = sorted(map(float, frame["concurrency"].unique()))
    absent = [users for users in concurrencies if users not in known]
    if absent:
        raise ValueError(f"the frame has no rows for concurrency {absent}; it has {known}")
    thirds = sorted({known[0], known[len(known) // 2], known[-1]})
    return list(concurrencies) or thirds
