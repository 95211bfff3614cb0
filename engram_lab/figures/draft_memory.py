"""Memory and draft together: tokens a round of every target and drafter."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.drafters import SHADES, legend_room, seed_lengths
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, require, titled, translucent

MADE_BY = "experiments.catalog.dspark_memory.lengths_and_reads"
TARGETS = {"plain": "without memory", "memory": "with memory"}
"""Targets as figures call them, in the order in which they are drawn."""
SERIES = {
    ("bigram", False): ("bigram counts", SHADES["bigram"], "diamond"),
    ("parallel_bigram", False): ("DFlash and bigram counts", SHADES["parallel_bigram"], "cross"),
    ("dspark", False): ("DSpark", SHADES["dspark"], "circle"),
    ("dspark", True): ("DSpark that reads rows", COLOURS["static"], "square"),
}
"""Drafters, each with or without rows: name, colour, marker."""
CELL = ["target", "drafter", "rows"]
"""Columns that tell cells apart."""


def lengths_by_cell(
    frame: pd.DataFrame, *, temperature: float = 1.0, verdict: Any = None
) -> go.Figure:
    """Tokens a round of every target and drafter, a panel a kind of text.

    Args:
        frame: rows by prompt with columns target, drafter, rows, seed, domain, temperature, rounds
            and emitted; the losses of targets are told where they are there.
        temperature: at which it was drawn.
        verdict: written below the title.

    Raises:
        ValueError: if columns are missing, or nothing was drawn at this temperature.
    """
    columns = (*CELL, "seed", "domain", "temperature", "rounds", "emitted")
    require(frame, *columns, made_by=MADE_BY)
    part = drawn_at(frame, temperature)
    by_seed = seed_lengths(part, CELL)
    kinds = by_seed[CELL[1:]].itertuples(index=False, name=None)
    by_seed = by_seed.assign(series=[list(SERIES).index(kind) for kind in kinds])
    domains = list(by_seed["domain"].unique())
    figure = make_subplots(rows=1, cols=len(domains), shared_yaxes=True, horizontal_spacing=0.03)
    drawn = sorted(by_seed["series"].unique())
    for col, domain in enumerate(domains, start=1):
        own = by_seed[by_seed["domain"] == domain]
        for place, series in enumerate(drawn):
            shift = 0.16 * (place - (len(drawn) - 1) / 2)
            _cells(figure, own[own["series"] == series], shift, col)
        panel_title(figure, domain, row=1, col=col, above=6)
    ticks = {"tickvals": [0, 1], "ticktext": list(TARGETS.values()), "range": [-0.5, 1.5]}
    figure.update_xaxes(title_text="target", **ticks)
    figure.update_yaxes(title_text="tokens a round", col=1)
    words = "most likely token" if temperature == 0 else f"temperature {temperature:g}"
    return titled(
        figure,
        title=f"Does a memory make drafting easier, and can its rows draft ({words})",
        subtitle=str(verdict or ""),
        note="Small points: seeds; large ones: their mean, with the range. The drafter of a target "
        "without memory reads the table of the other target of its seed. Targets answer in their "
        f"own words. {_losses(part)}\n{provenance(frame)}",
        room=legend_room(figure, 320),
    )


def drawn_at(frame: pd.DataFrame, temperature: float) -> pd.DataFrame:
    """Rows at a temperature.

    Args:
        frame: with a column temperature.
        temperature: wanted.

    Raises:
        ValueError: if there is none, naming those there are.
    """
    part = frame[frame["temperature"] == temperature]
    if part.empty:
        raise ValueError(
            f"no rows at temperature {temperature}; there are "
            f"{sorted(frame['temperature'].unique().tolist())}"
        )
    return part


def _cells(figure: go.Figure, rows: pd.DataFrame, shift: float, col: int) -> None:
    """One drafter in one panel: seeds beside their mean, for every target."""
    name, shade, mark = list(SERIES.values())[rows["series"].iloc[0]]
    at = rows["target"].map(list(TARGETS).index) + shift
    shared = {"legendgroup": name, "row": 1, "col": col}
    figure.add_scatter(
        x=at + 0.05,
        y=rows["accepted_length"],
        customdata=rows["seed"],
        mode="markers",
        marker={"color": translucent(shade, 0.55), "size": 5},
        hovertemplate="seed %{customdata}: %{y:.3f}<extra></extra>",
        name=f"{name}, seeds",
        showlegend=False,
        **shared,
    )
    over = rows.assign(at=at).groupby("at")["accepted_length"].agg(["mean", "min", "max"])
    figure.add_scatter(
        x=over.index,
        y=over["mean"],
        error_y={
            "array": over["max"] - over["mean"],
            "arrayminus": over["mean"] - over["min"],
            "symmetric": False,
            "thickness": 1,
            "width": 0,
        },
        mode="markers",
        marker={"color": shade, "size": 10, "symbol": mark},
        hovertemplate=f"{name}: %{{y:.3f}} tokens a round<extra></extra>",
        name=name,
        showlegend=col == 1,
        **shared,
    )


def _losses(part: pd.DataFrame) -> str:
    """Losses of the targets, in words; nothing where the frame does not tell them."""
    if "target_loss_nats" not in part:
        return ""
    mean = part.groupby("target")["target_loss_nats"].mean()
    told: Sequence[str] = [
        f"{TARGETS[name]} {mean[name]:.3f}" for name in TARGETS if name in mean.index
    ]
    return f"Held-out loss of the targets, mean of the kinds, nats a token: {', '.join(told)}."
