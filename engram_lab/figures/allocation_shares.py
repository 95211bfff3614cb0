"""How the best split of the sparse parameters moves with the share of fixed phrases in the data."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import (
    DELTA_TITLE,
    MADE_BY,
    RATIO_TITLE,
    sentences,
    zero_line,
)
from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.losses import allocation_deltas
from engram_lab.figures.panels import Line, legend_above, panel_title, seeds_and_mean
from engram_lab.figures.style import AMOUNTS, DASHES, INK, SOFT_INK, SYMBOLS, require, titled


def allocation_by_share(
    frame: pd.DataFrame, *, optima: pd.DataFrame | None = None, verdict: Any = None
) -> go.Figure:
    """Allocation curves for several static shares, and the best ratio against the share.

    Args:
        frame: rows of `probes.allocation.final_loss` with columns static_share, allocation_ratio
            and seed.
        optima: columns static_share, ratio, low and high, as `experiments.optimum.optimum_frame`
            gives them; drawn as the fitted minimum with its interval.
        verdict: a sentence, or an object with a `sentence`.

    Raises:
        ValueError: if columns or the points at ratio 1 are missing.
    """
    require(frame, "static_share", "allocation_ratio", "seed", "loss_nats", made_by=MADE_BY)
    deltas = allocation_deltas(frame)
    deltas = deltas[deltas["token_class"] == "all"]
    figure = make_subplots(rows=1, cols=2, column_widths=[0.58, 0.42], horizontal_spacing=0.1)
    shares = sorted(deltas["static_share"].unique())
    for number, share in enumerate(shares):
        line = Line(
            name=f"{share:.0%} phrases",
            colour=AMOUNTS[number * (len(AMOUNTS) - 1) // max(1, len(shares) - 1)],
            symbol=SYMBOLS[number % len(SYMBOLS)],
            dash=DASHES[number % len(DASHES)],
        )
        seeds_and_mean(figure, deltas[deltas["static_share"] == share], line, row=1, col=1)
    zero_line(figure, row=1, col=1)
    _best_ratios(figure, deltas)
    if optima is not None:
        require(optima, "static_share", "ratio", "low", "high", made_by="experiments.optimum_frame")
        _fitted(figure, optima)
    panel_title(figure, "allocation curves, all tokens", row=1, col=1)
    panel_title(figure, "best ratio", row=1, col=2)
    figure.update_xaxes(title_text=RATIO_TITLE, range=[-0.04, 1.04], dtick=0.25, row=1, col=1)
    figure.update_yaxes(title_text=DELTA_TITLE, row=1, col=1)
    figure.update_xaxes(
        title_text="static share of the corpus", range=[-0.05, 1.05], dtick=0.25, row=1, col=2
    )
    figure.update_yaxes(title_text="best ratio ρ", range=[-0.05, 1.08], dtick=0.25, row=1, col=2)
    figure.update_layout(legend=legend_above(figure, row=1, col=1))
    figure.update_layout(legend2=legend_above(figure, row=1, col=2))
    return titled(
        figure,
        title="The best split depends on the data",
        subtitle=sentences(verdict),
        note=_note(frame, optima),
    )


def _best_ratios(figure: go.Figure, deltas: pd.DataFrame) -> None:
    """The measured ratio with the lowest loss, seed by seed."""
    lowest = deltas.loc[deltas.groupby(["static_share", "seed"])["delta_nats"].idxmin()]
    counts = lowest.groupby(["static_share", "x"], as_index=False)["seed"].count()
    figure.add_scatter(
        x=counts["static_share"],
        y=counts["x"],
        mode="markers+text",
        text=counts["seed"].astype(str),
        textposition="middle right",
        textfont={"size": 11, "color": SOFT_INK},
        marker={"symbol": "circle-open", "size": 9, "color": SOFT_INK},
        hovertemplate="%{text} seeds have their lowest loss at ρ = %{y:.2f}<extra></extra>",
        name="lowest measured (seeds)",
        legend="legend2",
        row=1,
        col=2,
    )


def _fitted(figure: go.Figure, optima: pd.DataFrame) -> None:
    """The minima of the fits with their intervals."""
    figure.add_scatter(
        x=optima["static_share"],
        y=optima["ratio"],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": optima["high"] - optima["ratio"],
            "arrayminus": optima["ratio"] - optima["low"],
            "thickness": 1.5,
            "width": 4,
        },
        mode="lines+markers",
        line={"color": INK, "width": 1, "dash": "dot"},
        marker={"symbol": "diamond", "size": 9, "color": INK},
        hovertemplate="ρ* = %{y:.3f} at share %{x}<extra></extra>",
        name="fit, 95% interval",
        legend="legend2",
        row=1,
        col=2,
    )


def _note(frame: pd.DataFrame, optima: pd.DataFrame | None) -> str:
    lines = [
        f"{provenance(frame)}. Within a share: {held_equal(frame)}",
        "Points: seeds; line: mean of seeds; shade: range over seeds. Every loss minus that at "
        "ρ = 1 of the same seed, share and documents. Circles: ratio with the lowest loss, with "
        "the number of seeds that have it there.",
    ]
    if optima is not None:
        drawn = optima["resampled"].iloc[0] if "resampled" in optima else "documents"
        lines.append(
            f"Diamonds: minimum of a fitted parabola, bootstrap interval over {drawn}; with three "
            "ratios it passes through all of its points."
        )
    return "\n".join(lines)
