"""Serving under load: throughput against the speed of a user, tokens verified against load."""

import math
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import panel_title
from engram_lab.figures.policies import (
    COLUMNS,
    MADE_BY,
    POLICIES,
    listed,
    panels_by,
    provenance_of_serving,
)
from engram_lab.figures.style import (
    COLOURS,
    SOFT_INK,
    Room,
    colour,
    require,
    symbol,
    titled,
    translucent,
)

DASHED = {"stale capacity": "dot"}  # it often lies on the line of "early stop"
MARKS = {"V4-Flash": "diamond", "V4-Pro": "square"}


def serving_pareto(
    frame: pd.DataFrame, *, by: str = "costs", verdict: str | Sequence[str] = ""
) -> go.Figure:
    """Throughput against the speed of a user, a line a policy and a point a concurrency.

    In a closed loop throughput is users times speed, so points of one concurrency lie on a line
    through all policies; these lines carry the numbers.

    Args:
        frame: rows of `probes.serving.serving_frame` for closed loops, of one domain.
        by: column with a panel for each value, if the frame has it.
        verdict: sentences for the subtitle.

    Raises:
        ValueError: if columns are missing, or the frame mixes domains.
    """
    require(frame, *COLUMNS, "tokens_per_s", "tokens_per_s_user", made_by=MADE_BY)
    panels = panels_by(frame, by)
    figure = make_subplots(rows=1, cols=len(panels), horizontal_spacing=0.07)
    for col, (title, part) in enumerate(panels.items(), 1):
        _rays(figure, part, col)
        for policy in listed(part):
            rows = _means(part[part["policy"] == policy])
            trace = _line(policy, rows, "tokens_per_s_user", "tokens_per_s", first=col == 1)
            figure.add_trace(trace, row=1, col=col)
            figure.data[-1].update(
                customdata=rows["concurrency"],
                hovertemplate="%{customdata:.0f} users: %{y:,.0f} tokens/s, %{x:.1f} each"
                f"<extra>{policy}</extra>",
            )
        panel_title(figure, title, row=1, col=col, above=6)
    figure.update_xaxes(rangemode="tozero", title_text="tokens per second of a user")
    figure.update_yaxes(type="log", showgrid=False, **_decades(frame["tokens_per_s"]))
    figure.update_yaxes(title_text="tokens per second of all users", col=1)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.09, "yanchor": "bottom"})
    return titled(
        figure,
        title="Throughput against the speed that a user sees",
        subtitle=_sentences(verdict),
        note=provenance_of_serving(frame)
        + " Thin lines: equal numbers of users. Dashed: bounds that look at what "
        "no lossless engine may use.",
        room=Room(height=420, left=88, right=40, head=84),
    )


def budget_curve(
    frame: pd.DataFrame,
    *,
    by: str = "costs",
    published: pd.DataFrame | None = None,
    verdict: str | Sequence[str] = "",
) -> go.Figure:
    """Tokens verified for a request in a step, its anchor included, against concurrency.

    Args:
        frame: rows of `probes.serving.serving_frame`, of one domain.
        by: column with a panel for each value, if the frame has it.
        published: the table `dspark_fig8_budget`; drawn in every panel.
        verdict: sentences for the subtitle.

    Raises:
        ValueError: if columns are missing, or the frame mixes domains.
    """
    require(frame, *COLUMNS, "verified_tokens", made_by=MADE_BY)
    panels = panels_by(frame, by)
    figure = make_subplots(rows=1, cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03)
    for col, (title, part) in enumerate(panels.items(), 1):
        if published is not None:
            _published_budget(figure, published, col)
        for policy in listed(part[part["causal"]]):
            rows = _means(part[part["policy"] == policy])
            trace = _line(policy, rows, "concurrency", "verified_tokens", first=col == 1)
            figure.add_trace(trace, row=1, col=col)
        panel_title(figure, title, row=1, col=col, above=6)
    ticks = sorted(frame["concurrency"].unique())
    figure.update_xaxes(type="log", tickvals=ticks, tickformat="~g", title_text="requests at once")
    figure.update_yaxes(rangemode="tozero").update_yaxes(
        title_text="tokens verified per request and step", col=1
    )
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.09, "yanchor": "bottom"})
    note = provenance_of_serving(frame)
    if published is not None:
        note += (
            " Grey: published (arXiv:2607.05147, figure 8), hollow where read off a line, of "
            "another engine and hardware: shapes compare, places do not."
        )
    return titled(
        figure,
        title="Tokens verified under load",
        subtitle=_sentences(verdict),
        note=note,
        room=Room(height=360, head=100),
    )


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds at every concurrency."""
    return rows.groupby("concurrency", as_index=False).mean(numeric_only=True)


def _line(policy: str, rows: pd.DataFrame, x: str, y: str, *, first: bool) -> go.Scatter:
    shade = POLICIES.get(policy, colour(policy))
    bound = not rows["causal"].all()
    dash = "dash" if bound else DASHED.get(policy, "solid")
    return go.Scatter(
        x=rows[x],
        y=rows[y],
        mode="lines" if bound else "lines+markers",
        line={"color": shade, "width": 2, "dash": dash},
        marker={"size": 7, "color": shade, "line": {"color": "white", "width": 1}},
        name=policy,
        legendgroup=policy,
        showlegend=first,
    )


def _decades(values: pd.Series) -> dict[str, object]:
    """Ticks at 1, 2 and 5 of every decade that the values span."""
    low, high = float(values.min()), float(values.max())
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in (1, 2, 5)]
    return {"tickvals": [tick for tick in ticks if low / 2 < tick < 2 * high], "tickformat": ",~r"}


def _rays(figure: go.Figure, part: pd.DataFrame, col: int) -> None:
    """A thin line through the points of each concurrency, with its number at the fast end."""
    for users, rows in part.groupby("concurrency"):
        ordered = rows.sort_values("tokens_per_s_user")
        figure.add_scatter(
            x=ordered["tokens_per_s_user"],
            y=ordered["tokens_per_s"],
            mode="lines+text",
            line={"color": translucent(SOFT_INK, 0.3), "width": 1},
            text=[""] * (len(ordered) - 1) + [f"{users:g}"],
            textposition="top right",
            textfont={"size": 10, "color": SOFT_INK},
            hoverinfo="skip",
            showlegend=False,
            cliponaxis=False,
            name=f"{users:g} users",
            row=1,
            col=col,
        )


def _published_budget(figure: go.Figure, published: pd.DataFrame, col: int) -> None:
    for model, rows in published.groupby("model", sort=False):
        name = f"{model}, published ({rows['kind'].iloc[0]})"
        shared = {"legendgroup": name, "name": name, "showlegend": col == 1, "row": 1, "col": col}
        grey, kind = COLOURS["published"], rows["kind"].iloc[0]
        places = pd.to_numeric(rows["concurrency"], errors="coerce")
        if places.isna().any():
            continue  # the same at any concurrency: measured here by definition
        figure.add_scatter(
            x=places,
            y=rows["verification_budget_tokens"],
            mode="lines+markers",
            line={"color": grey, "width": 1, "dash": "dot"},
            marker={"symbol": symbol(kind, MARKS.get(model, "circle")), "size": 9, "color": grey},
            hovertemplate="published: %{y} at %{x}<extra></extra>",
            **shared,
        )


def _sentences(verdict: str | Sequence[str]) -> str:
    return verdict if isinstance(verdict, str) else "\n".join(verdict)
