"""Where n-grams land: shares of company against the load, predicted and counted."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.footer import short_number
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, SOFT_INK, Room, require, titled

MADE_BY = "probes.collisions.collisions_of_counts"
ORDER_COLOURS = {2: COLOURS["engram"], 3: COLOURS["static"], 4: COLOURS["wide_ffn"]}
ORDER_SYMBOLS = {2: "circle", 3: "square", 4: "diamond"}
LEAST = 10
"""Keys that must be expected alone, and in company, for a deviation to mean something."""
COLUMNS = ("order", "head", "keys", "rows", "load", "predicted_share", "collided_share")


def collision_curve(frame: pd.DataFrame, *, real: pd.DataFrame | None = None) -> go.Figure:
    """Share of n-grams in company, and of look-ups disturbed, against the keys per row.

    Args:
        frame: rows of `probes.collisions.collisions_of_counts` for tables of several sizes.
        real: the same for a released memory at its real size; drawn larger.

    Raises:
        ValueError: if columns are missing.
    """
    columns = (*COLUMNS, "share_error", "traffic_share", "interference")
    require(frame, *columns, made_by=MADE_BY)
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.09)
    everything = frame if real is None else pd.concat([frame, real], ignore_index=True)
    _prediction(figure, everything)
    for order, part in frame.groupby("order"):
        order = int(order)
        _points(figure, part, order, "collided_share", col=1, name=f"{order}-grams, counted")
        _points(figure, part, order, "interference", col=2, name=f"{order}-grams", legend="legend2")
        _points(
            figure, part, order, "traffic_share", col=2, name=f"{order}-grams, look-ups", open_=True
        )
    if real is not None:
        require(real, *columns, made_by=MADE_BY)
        for order, part in real.groupby("order"):
            order = int(order)
            name = f"V4.1, {order}-grams"
            for col, measure in ((1, "collided_share"), (2, "interference")):
                _points(figure, part, order, measure, col=col, name=name, size=13, legend="")
                figure.data[-1].update(mode="markers+text", textposition="middle right")
                figure.data[-1].text = [f"  {name}", *[""] * (len(part) - 1)]
    figure.update_xaxes(type="log", dtick=1, title_text="load (distinct n-grams per row)")
    figure.update_yaxes(range=[0, 1.03], tickformat=".0%")
    figure.update_yaxes(title_text="share of n-grams with company", row=1, col=1)
    figure.update_yaxes(title_text="share of look-ups", row=1, col=2)
    panel_title(figure, "n-grams that share their row", row=1, col=1)
    panel_title(figure, "look-ups: in company (hollow), disturbed (filled)", row=1, col=2)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    return titled(
        figure,
        title="Where n-grams land",
        note=_note(frame, real),
        room=Room(height=360, head=52),
    )


def heads_figure(frame: pd.DataFrame) -> go.Figure:
    """What 1 to 16 heads make of one table: company in all of them, and disturbed look-ups.

    Args:
        frame: columns split ("width" or "rows"), heads, order, keys, rows, predicted_share,
            collided_share, mean_interference and cleanest_interference.

    Raises:
        ValueError: if columns are missing.
    """
    measured = ("predicted_share", "collided_share", "mean_interference", "cleanest_interference")
    made_by = "experiments.catalog.engram_collisions.all_heads"
    require(frame, "split", "heads", "order", "keys", "rows", *measured, made_by=made_by)
    titles = {
        "width": "heads share the width: all tables as long",
        "rows": "heads share the rows: shorter tables",
    }
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.05)
    single = frame[frame["heads"] == 1]
    for col, (split, title) in enumerate(titles.items(), 1):
        part = pd.concat([single, frame[(frame["split"] == split) & (frame["heads"] > 1)]])
        for order, rows in part.groupby("order"):
            _head_lines(figure, rows.sort_values("heads"), int(order), col)
        panel_title(figure, title, row=1, col=col, above=60)
    ticks = sorted(frame["heads"].unique())
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=ticks, title_text="hash heads")
    figure.update_yaxes(range=[0, 1.03], tickformat=".0%")
    figure.update_yaxes(title_text="share", row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    one = single.iloc[0]
    return titled(
        figure,
        title="What several heads repair",
        note=(
            "Solid: n-grams that have company in every head; dotted: what the product over heads "
            "predicts. Dashed: foreign share of the traffic in a look-up's rows, on average; "
            f"dash-dotted: in its cleanest row. One head has {one['rows']:,} rows; the parameters "
            "of the table are the same everywhere."
        ),
        room=Room(height=340, head=92),
    )


def _prediction(figure: go.Figure, frame: pd.DataFrame) -> None:
    """The formula for many rows, through all loads, in both panels."""
    loads = np.geomspace(frame["load"].min(), frame["load"].max(), 60)
    for col in (1, 2):
        figure.add_scatter(
            x=loads,
            y=-np.expm1(-loads),
            mode="lines",
            line={"color": SOFT_INK, "width": 1.5, "dash": "dot"},
            hoverinfo="skip",
            name="even spreading predicts",
            showlegend=col == 1,
            row=1,
            col=col,
        )


def _points(
    figure: go.Figure,
    part: pd.DataFrame,
    order: int,
    measure: str,
    *,
    col: int,
    name: str,
    size: int = 7,
    legend: str = "legend",
    open_: bool = False,
) -> None:
    symbol = ORDER_SYMBOLS[order] + ("-open" if open_ else "")
    edge = {} if open_ else {"line": {"color": "white", "width": 0.5}}
    figure.add_scatter(
        x=part["load"],
        y=part[measure],
        customdata=part[["head", "keys", "rows"]],
        mode="markers",
        marker={"symbol": symbol, "size": size, "color": ORDER_COLOURS[order]} | edge,
        hovertemplate=(
            "head %{customdata[0]}: %{customdata[1]:,} n-grams, %{customdata[2]:,} rows<br>"
            "%{y:.2%}<extra>" + name + "</extra>"
        ),
        name=name,
        showlegend=legend == "legend" and col == 1,
        row=1,
        col=col,
    )


def _head_lines(figure: go.Figure, rows: pd.DataFrame, order: int, col: int) -> None:
    lines = {
        "collided_share": ("in company in every head", "solid", "lines+markers"),
        "predicted_share": ("predicted", "dot", "lines"),
        "mean_interference": ("disturbed, mean", "dash", "lines+markers"),
        "cleanest_interference": ("disturbed, cleanest row", "dashdot", "lines+markers"),
    }
    for measure, (name, dash, mode) in lines.items():
        figure.add_scatter(
            x=rows["heads"],
            y=rows[measure],
            mode=mode,
            line={"color": ORDER_COLOURS[order], "dash": dash, "width": 1.8},
            marker={"symbol": ORDER_SYMBOLS[order], "size": 7},
            hovertemplate="%{x} heads: %{y:.2%}<extra>" + f"{order}-grams, {name}</extra>",
            name=f"{order}-grams, {name}",
            legendgroup=f"{order} {measure}",
            showlegend=col == 1,
            row=1,
            col=col,
        )


def _note(frame: pd.DataFrame, real: pd.DataFrame | None) -> str:
    parts = frame if real is None else pd.concat([frame, real], ignore_index=True)
    share = parts["predicted_share"]
    judged = parts[parts["keys"] * np.minimum(share, 1 - share) >= LEAST]
    away = ((judged["collided_share"] - judged["predicted_share"]) / judged["share_error"]).abs()
    text = f"A point is a table ({len(parts)} of them). "
    if len(judged):
        text += (
            f"Counted and predicted shares differ by {away.max():.1f} standard deviations at most "
            f"in the {len(judged)} tables with {LEAST} or more n-grams expected on either side. "
        )
    text += "Disturbed: foreign share of the traffic in the row of a look-up."
    for name, one in (("Text", frame), ("V4.1", real)):
        if one is not None and {"tokens", "tokenizer"} <= set(one):
            first = one.iloc[0]
            tokens = short_number(float(first["tokens"]))
            text += f"\n{name}: {tokens} tokens of the bundle in the ids of {first['tokenizer']}."
    return text
