"""Whom collisions hurt: foreign traffic against the frequency of an n-gram."""

import math
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.footer import short_number
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import AMOUNTS, RULE, SOFT_INK, Room, require, titled

MADE_BY = "probes.interference.interference_frame"
NOTE = (
    "Lines: foreign share of the look-ups in the cleanest row of an n-gram, averaged over the "
    "n-grams of a class (powers of two); dotted: in an average row. Grey bars: share of all "
    "look-ups that the class makes."
)


def interference_by_frequency(frame: pd.DataFrame) -> go.Figure:
    """Foreign share of the look-ups in a key's rows, by its frequency; a line per number of heads.

    Args:
        frame: rows of `probes.interference.interference_frame`; a column row_budget gives every
            table size a row of panels.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("order", "heads", "frequency", "keys", "traffic_share")
    require(frame, *columns, "mean_interference", "cleanest_interference", made_by=MADE_BY)
    orders = sorted(frame["order"].unique())
    sizes = sorted(frame["row_budget"].unique()) if "row_budget" in frame else [None]
    figure = make_subplots(
        rows=len(sizes),
        cols=len(orders),
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.04,
        vertical_spacing=0.2 / len(sizes),
    )
    for row, size in enumerate(sizes, 1):
        for col, order in enumerate(orders, 1):
            part = frame[frame["order"] == order]
            title = f"{order}-grams"
            if size is not None:
                part = part[part["row_budget"] == size]
                title += f", {size:,} rows"
            first = row == col == 1
            _traffic(figure, part, row=row, col=col, legend=first)
            _lines(figure, part, row=row, col=col, legend=first)
            panel_title(figure, title, row=row, col=col, above=2)
    figure.update_xaxes(type="log", dtick=1, range=[-0.3, _most(frame)])
    figure.update_xaxes(title_text="occurrences of the n-gram", row=len(sizes))
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    figure.update_yaxes(title_text="foreign share", col=1)
    height = 60 + 220 * len(sizes)
    figure.update_layout(
        legend={"orientation": "h", "x": 0, "y": 1 + 24 / height, "yanchor": "bottom"}
        | {"title": {"text": "cleanest of ", "font": {"size": 12}}}
    )
    return titled(
        figure,
        title="Whom collisions hurt",
        note=f"{NOTE} {_text(frame)}",
        room=Room(height=height, head=56),
    )


def _lines(figure: go.Figure, part: pd.DataFrame, *, row: int, col: int, legend: bool) -> None:
    heads = sorted(part["heads"].unique())
    for number, shade in zip(heads, _shades(len(heads)), strict=True):
        rows = part[part["heads"] == number].sort_values("frequency")
        figure.add_scatter(
            x=rows["frequency"],
            y=rows["cleanest_interference"],
            customdata=rows[["keys", "traffic_share"]],
            mode="lines+markers",
            line={"color": shade, "width": 2},
            marker={"size": 5},
            hovertemplate=(
                "%{x} or more occurrences: %{y:.1%}<br>%{customdata[0]:,} n-grams, "
                "%{customdata[1]:.1%} of the look-ups<extra>" + f"{number} heads</extra>"
            ),
            name=f"{number} head{'s' if number > 1 else ''}",
            legendgroup=str(number),
            showlegend=legend,
            row=row,
            col=col,
        )
    last = part[part["heads"] == heads[-1]].sort_values("frequency")
    figure.add_scatter(
        x=last["frequency"],
        y=last["mean_interference"],
        mode="lines",
        line={"color": SOFT_INK, "width": 1.5, "dash": "dot"},
        hovertemplate="%{x} or more occurrences: %{y:.1%}<extra>average row</extra>",
        name="average row",
        legendgroup="mean",
        showlegend=legend,
        row=row,
        col=col,
    )


def _traffic(figure: go.Figure, part: pd.DataFrame, *, row: int, col: int, legend: bool) -> None:
    rows = part[part["heads"] == part["heads"].max()]
    figure.add_bar(
        x=rows["frequency"] * 2**0.5,
        y=rows["traffic_share"],
        width=rows["frequency"] * 0.9,
        marker={"color": RULE},
        hovertemplate="%{y:.1%} of the look-ups<extra></extra>",
        name="share of look-ups",
        legendgroup="traffic",
        showlegend=legend,
        row=row,
        col=col,
    )


def _shades(count: int) -> Sequence[str]:
    return [AMOUNTS[round(i * (len(AMOUNTS) - 1) / max(count - 1, 1))] for i in range(count)]


def _most(frame: pd.DataFrame) -> float:
    """Decimal logarithm of the right end of the axis."""
    return math.log10(2.2 * frame["frequency"].max())


def _text(frame: pd.DataFrame) -> str:
    if not {"tokens", "tokenizer"} <= set(frame):
        return ""
    first = frame.iloc[0]
    tokens = short_number(float(first["tokens"]))
    return f"{tokens} tokens of the bundle in the ids of {first['tokenizer']}."
