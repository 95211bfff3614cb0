"""A static threshold on confidence: tokens verified and accepted in a round, and their ratio."""

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.confidence_panels import legend_over, of_one_drafter, rounds_told
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, INK, Room, require, symbol, titled, translucent


def threshold_sweep(
    frame: pd.DataFrame,
    *,
    published: pd.DataFrame | None = None,
    pairs: Mapping[str, str] | None = None,
) -> go.Figure:
    """Tokens verified and accepted in a round, and the share that comes out, by threshold.

    Args:
        frame: rows of `probes.confidence.threshold_frame` of one drafter; seeds are averaged, each
            domain has a panel.
        published: the table `dspark_fig5_threshold`.
        pairs: published domain that stands behind each of ours; equal names by default.

    Raises:
        ValueError: if columns are missing or there are several drafters.
    """
    measured = ("verified_tokens", "accepted_tokens", "rejected_tokens", "verify_rate")
    made_by = "probes.confidence.threshold_frame"
    require(frame, "threshold", *measured, made_by=made_by)
    rows = of_one_drafter(frame)
    domains = list(rows["domain"].unique())
    figure = make_subplots(
        rows=1,
        cols=len(domains),
        specs=[[{"secondary_y": True}] * len(domains)],
        horizontal_spacing=0.14 / len(domains),
    )
    highest, behind = rows["verified_tokens"].max(), _behind(domains, published, pairs)
    for col, domain in enumerate(domains, 1):
        part = rows[rows["domain"] == domain].groupby("threshold", as_index=False)
        _bars(figure, part[list(measured)].mean(), first=col == 1, col=col)
        name = behind.get(domain)
        if name:
            chosen = published[published["domain"] == name].sort_values("threshold")
            _published(figure, chosen, first=domain == next(iter(behind)), col=col)
            highest = max(highest, chosen["verified_tokens_per_step"].max())
        grey = f" (grey: {name})" if name else ""
        panel_title(figure, f"{domain or 'all rounds'}{grey}", row=1, col=col, above=6)
    _axes(figure, len(domains), highest)
    figure.update_layout(barmode="stack", bargap=0.25, legend=legend_over(height=320, lines=2))
    note = (
        f"{rounds_told(rows)}. Verified up to the first draft whose own confidence is below the "
        "threshold; the anchor counts as verified, the correction or bonus token as accepted."
    )
    if behind:
        note += " Grey: published, Qwen3-4B (arXiv:2607.05147, figure 5, digitised)."
    room = Room(width=max(620, 330 * len(domains)), height=320, right=70, head=82)
    return titled(figure, title="What a threshold saves and costs", note=note, room=room)


def _behind(
    domains: Sequence[str], published: pd.DataFrame | None, pairs: Mapping[str, str] | None
) -> dict[str, str]:
    """Published domain behind each of ours that has one."""
    if published is None:
        return {}
    wanted = {domain: (pairs or {}).get(domain, domain) for domain in domains}
    known = set(published["domain"])
    return {domain: name for domain, name in wanted.items() if name in known}


def _axes(figure: go.Figure, panels: int, highest: float) -> None:
    """The same axes in every panel; tokens are told left of the first, shares right of the last."""
    tokens, share = {"secondary_y": False}, {"secondary_y": True}
    figure.update_xaxes(title_text="threshold on the confidence", dtick=0.2)
    figure.update_yaxes(range=[0, 1.05 * highest], showticklabels=False, **tokens)
    figure.update_yaxes(showticklabels=True, title_text="tokens per round", col=1, **tokens)
    figure.update_yaxes(range=[0, 1.05], dtick=0.2, tickformat=".0%", showgrid=False, **share)
    figure.update_yaxes(showticklabels=False, **share)
    last = {"col": panels} | share
    figure.update_yaxes(showticklabels=True, title_text="accepted of verified", **last)


def _bars(figure: go.Figure, means: pd.DataFrame, *, first: bool, col: int) -> None:
    """Accepted and rejected tokens on top of each other, and the line of their ratio."""
    parts = {
        "accepted_tokens": ("accepted", translucent(COLOURS["engram"], 0.75)),
        "rejected_tokens": ("verified in vain", translucent(COLOURS["static"], 0.45)),
    }
    for column, (name, shade) in parts.items():
        figure.add_bar(
            x=means["threshold"],
            y=means[column],
            marker={"color": shade},
            hovertemplate="threshold %{x:.1f}: %{y:.2f} tokens<extra>" + name + "</extra>",
            name=name,
            legendgroup=name,
            showlegend=first,
            row=1,
            col=col,
        )
    figure.add_scatter(
        x=means["threshold"],
        y=means["verify_rate"],
        mode="lines+markers",
        line={"color": INK, "width": 2},
        marker={"color": INK, "size": 6},
        hovertemplate="threshold %{x:.1f}: %{y:.1%}<extra>accepted of verified</extra>",
        name="accepted of verified (right axis)",
        legendgroup="rate",
        showlegend=first,
        secondary_y=True,
        row=1,
        col=col,
    )


def _published(figure: go.Figure, published: pd.DataFrame, *, first: bool, col: int) -> None:
    """Published totals, accepted tokens and rates as grey lines."""
    shade, kind = COLOURS["published"], published["kind"].iloc[0]
    lines = (
        ("verified_tokens_per_step", "published verified", "circle", "solid", 1.0, False),
        ("accepted", "published accepted", "square", "dot", 1.0, False),
        ("acceptance_rate_pct", "published rate", "diamond", "dash", 0.01, True),
    )
    for column, name, marker, dash, unit, right in lines:
        figure.add_scatter(
            x=published["threshold"],
            y=unit * published[column],
            mode="lines+markers",
            line={"color": shade, "width": 1.5, "dash": dash},
            marker={"color": shade, "symbol": symbol(kind, marker), "size": 6},
            hovertemplate="threshold %{x:.1f}: %{y:.3g}<extra>" + name + "</extra>",
            name=name,
            legendgroup=name,
            showlegend=first,
            secondary_y=right,
            row=1,
            col=col,
        )
