"""Does confidence mean it: reliability by position, calibration error and ranking."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.confidence_panels import (
    grid,
    legend_over,
    of_one_drafter,
    rounds_told,
    within,
)
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, SOFT_INK, Room, require, symbol, titled, translucent

MADE_BY = "probes.confidence.confidence_frame"
METHODS = {
    "raw": ("as the head says", COLOURS["static"], "circle"),
    "sequential": ("sequential temperatures", COLOURS["engram"], "square"),
    "isotonic": ("isotonic curves", COLOURS["wide_ffn"], "diamond"),
    "online": ("online temperatures", COLOURS["neighbour"], "triangle-up"),
}
MOST_PANELS = 4
LEAST = 10
"""Rounds in a bin for its rate to mean something; rarer bins are pale and off the line."""


def reliability_diagram(
    frame: pd.DataFrame,
    *,
    methods: Sequence[str] = ("raw", "sequential"),
    positions: Sequence[int] | None = None,
) -> go.Figure:
    """Observed against predicted survival of prefixes, a panel for each position.

    Args:
        frame: rows of `probes.confidence.confidence_frame` of one drafter; seeds are pooled, each
            domain has a row of panels.
        methods: drawn, before first.
        positions: drawn; up to four between the first and the last by default.

    Raises:
        ValueError: if columns, a method or a position are missing, or there are several drafters.
    """
    columns = ("method", "position", "bin", "predicted", "observed", "count")
    require(frame, *columns, made_by=MADE_BY)
    rows = of_one_drafter(frame)
    _known("method", methods, rows["method"])
    if positions is None:
        positions = _spread(sorted(map(int, rows["position"].unique())))
    _known("position", positions, rows["position"])
    domains = list(rows["domain"].unique())
    figure = grid(rows=len(domains), cols=len(positions))
    for row, domain in enumerate(domains, 1):
        for col, position in enumerate(positions, 1):
            figure.add_scatter(x=[0, 1], y=[0, 1], **_diagonal(), row=row, col=col)
            here = rows[(rows["domain"] == domain) & (rows["position"] == position)]
            for method in methods:
                bins = _pooled(here[here["method"] == method])
                _reliability(figure, bins, method, first=row == col == 1, row=row, col=col)
            title = f"first {position} accepted" if position > 1 else "first draft accepted"
            panel_title(figure, within(domain, title), row=row, col=col, above=6)
    figure.update_xaxes(range=[-0.02, 1.02], dtick=0.5, tickformat=".0%")
    figure.update_yaxes(range=[-0.02, 1.02], dtick=0.25, tickformat=".0%")
    figure.update_xaxes(title_text="predicted", row=len(domains))
    figure.update_yaxes(title_text="observed", col=1)
    figure.update_layout(legend=legend_over(height=230 * len(domains)))
    count = rounds_told(rows[rows["method"] == methods[0]])
    note = (
        f"{count}. A point is a bin of equal width, its size the share of the rounds in it, pale "
        f"where there are fewer than {LEAST}; on the dotted line confidence means what it says. "
        "Fitted on the other half of the rounds."
    )
    room = Room(height=230 * len(domains), head=60)
    return titled(figure, title="Does confidence mean it", note=note, room=room)


def calibration_by_position(
    summary: pd.DataFrame, *, published: pd.DataFrame | None = None
) -> go.Figure:
    """Calibration error and ranking of the survival of prefixes, by position.

    Args:
        summary: rows of `probes.confidence.confidence_summary` of one drafter; seeds are averaged,
            each domain has a column of panels.
        published: the table `dspark_fig6_calibration`.

    Raises:
        ValueError: if columns are missing or there are several drafters.
    """
    made_by = "probes.confidence.confidence_summary"
    require(summary, "method", "position", "ece", "auc", made_by=made_by)
    rows = of_one_drafter(summary)
    domains = list(rows["domain"].unique())
    figure = grid(rows=2, cols=len(domains))
    for col, domain in enumerate(domains, 1):
        here = rows[rows["domain"] == domain]
        if published is not None:
            _published(figure, published, first=col == 1, col=col)
        for method in [name for name in METHODS if name in set(here["method"])]:
            part = here[here["method"] == method]
            for row, measure in enumerate(("ece", "auc"), 1):
                _line(figure, part, measure, method, shown=row == col == 1, row=row, col=col)
        for row, name in enumerate(("calibration error", "ranking"), 1):
            panel_title(figure, within(domain, name), row=row, col=col, above=6)
    figure.update_yaxes(rangemode="tozero", tickformat=".0%", row=1)
    figure.update_yaxes(title_text="error", row=1, col=1)
    figure.update_yaxes(title_text="area under the ROC", row=2, col=1)
    figure.update_xaxes(dtick=1, tickformat="d")
    figure.update_xaxes(title_text="position in the block", row=2)
    figure.update_layout(legend=legend_over(height=440, lines=2))
    note = (
        f"{rounds_told(rows)}. Survival of the whole prefix up to a position; error over 20 bins."
    )
    if published is not None:
        note += " Grey: published, Qwen3-4B on Alpaca (arXiv:2607.05147, figure 6)."
    room = Room(width=max(620, 330 * len(domains)), height=440, head=82)
    return titled(figure, title="Calibration by position", note=note, room=room)


def _reliability(
    figure: go.Figure, bins: pd.DataFrame, method: str, *, first: bool, row: int, col: int
) -> None:
    """The bins of one method in one panel."""
    name, shade, marker = METHODS[method]
    often = bins["count"] >= LEAST
    for part, mode, label in (
        (bins[~often], "markers", "rare"),
        (bins[often], "lines+markers", ""),
    ):
        figure.add_scatter(
            x=part["predicted"],
            y=part["observed"],
            customdata=part["count"],
            mode=mode,
            line={"color": translucent(shade, 0.5), "width": 1.5},
            marker={
                "color": translucent(shade, 0.35) if label else shade,
                "symbol": marker,
                "size": 4 + 16 * np.sqrt(part["share"]),
                "line": {"color": "white", "width": 0.5},
            },
            hovertemplate="said %{x:.1%}, was %{y:.1%}<br>%{customdata:,} rounds<extra></extra>",
            name=f"{name}, rare" if label else name,
            legendgroup=method,
            showlegend=first and not label,
            row=row,
            col=col,
        )


def _line(
    figure: go.Figure,
    part: pd.DataFrame,
    measure: str,
    method: str,
    *,
    shown: bool,
    row: int,
    col: int,
) -> None:
    """One measure of one method in one panel: a point for each seed, a line through the means."""
    name, shade, marker = METHODS[method]
    place = {"legendgroup": method, "row": row, "col": col}
    hover = "position %{x}: %{y:.3f}<extra>" + name + "</extra>"
    if "seed" in part and part["seed"].nunique() > 1:
        figure.add_scatter(
            x=part["position"],
            y=part[measure],
            mode="markers",
            marker={"color": translucent(shade, 0.45), "symbol": marker, "size": 5},
            hovertemplate=hover,
            name=f"{name}, seeds",
            showlegend=False,
            **place,
        )
    means = part.groupby("position", as_index=False)[[measure]].mean()
    figure.add_scatter(
        x=means["position"],
        y=means[measure],
        mode="lines+markers",
        line={"color": shade, "width": 2},
        marker={"color": shade, "symbol": marker, "size": 8},
        hovertemplate=hover,
        name=name,
        showlegend=shown,
        **place,
    )


def _published(figure: go.Figure, published: pd.DataFrame, *, first: bool, col: int) -> None:
    """Published errors before and after, and ranking."""
    shade, kind = COLOURS["published"], published["kind"].iloc[0]
    lines = (
        ("ece_before_pct", "published, as the head says", "circle", 1, 0.01),
        ("ece_after_pct", "published, sequential", "square", 1, 0.01),
        ("auc", "published", "circle", 2, 1.0),
    )
    for column, name, marker, row, unit in lines:
        figure.add_scatter(
            x=published["position"],
            y=unit * published[column],
            mode="lines+markers",
            line={"color": shade, "width": 1.5, "dash": "dot"},
            marker={"color": shade, "symbol": symbol(kind, marker), "size": 9},
            hovertemplate="position %{x}: %{y:.3f}<extra>" + name + "</extra>",
            name=name,
            legendgroup=name,
            showlegend=first and row == 1,
            row=row,
            col=col,
        )


def _known(name: str, asked: Sequence[object], column: pd.Series) -> None:
    missing = [str(value) for value in asked if value not in set(column)]
    if missing or not len(asked):
        known = ", ".join(map(str, column.unique()))
        raise ValueError(f"no row has {name} {', '.join(missing) or '(none asked)'}; got {known}")


def _spread(positions: list[int]) -> list[int]:
    """At most so many of them, the first and the last included."""
    places = np.linspace(0, len(positions) - 1, min(MOST_PANELS, len(positions)))
    return [positions[place] for place in places.round().astype(int)]


def _pooled(part: pd.DataFrame) -> pd.DataFrame:
    """Bins over seeds: rates weighted by their counts."""
    sums = part.assign(
        predicted=part["predicted"] * part["count"], observed=part["observed"] * part["count"]
    ).groupby("bin", as_index=False)[["predicted", "observed", "count"]]
    pooled = sums.sum()
    rates = pooled[["predicted", "observed"]].div(pooled["count"], axis=0)
    return pooled.assign(**rates, share=pooled["count"] / pooled["count"].sum())


def _diagonal() -> dict[str, object]:
    line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
    return {"mode": "lines", "line": line, "hoverinfo": "skip", "showlegend": False, "name": ""}
