"""Needles in a long context: scores by task, published ones below, and scores by length."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import NAMES, panel_title
from engram_lab.figures.style import (
    SOFT_INK,
    SOLID_KINDS,
    Room,
    colour,
    require,
    titled,
    translucent,
)

MADE_BY = "probes.long_context.needle_scores"
PUBLISHED = {  # published tasks by the names of ours
    "single": "niah_single",
    "multikey": "niah_multikey",
    "multivalue": "niah_multivalue",
    "multiquery": "niah_multiquery",
    "tracking": "variable_tracking",
}
SETTINGS = {  # published settings, with arm and opacity
    "baseline": ("MoE, 50k steps", "experts", 0.75),
    "82% of pre-training compute": ("Engram, 41k steps", "engram", 0.3),
    "iso-loss": ("Engram, 46k steps: equal loss", "engram", 0.55),
    "iso-flops": ("Engram, 50k steps", "engram", 0.9),
}


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """One kind of model: its rows, its name and its look."""

    rows: pd.DataFrame
    name: str
    shade: str
    opacity: float
    dash: str = "solid"


def needle_bars(
    frame: pd.DataFrame,
    *,
    equal_share: float | None = None,
    published: pd.DataFrame | None = None,
    keys: str = "Keys that no training document had.",
    verdict: Any = None,
) -> go.Figure:
    """Scores by task at the longest context, a bar a model; below them the published ones.

    Args:
        frame: rows of `probes.long_context.needle_scores` with columns arm, share and seed.
        equal_share: share of the tokens at which the hybrid has the loss of the experts, to name
            it.
        published: the table `engram_table2_long_context`.
        keys: which keys were asked with, a sentence of the footer.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing.
    """
    require(frame, "arm", "share", "seed", "task", "context", "score", "chance", made_by=MADE_BY)
    longest = frame["context"].max()
    rows = frame[frame["context"] == longest]
    tasks = list(rows["task"].unique())
    panels = 1 if published is None else 2
    figure = make_subplots(rows=panels, cols=1, shared_xaxes=True, vertical_spacing=0.2)
    for setting in _settings(rows, equal_share):
        _bars(figure, setting, tasks)
    _chance(figure, rows, tasks)
    panel_title(figure, f"measured, {longest} tokens", row=1, col=1, above=6)
    source = _published(figure, published, tasks) if published is not None else ""
    figure.update_yaxes(range=[0, 1.04], title_text="score")
    figure.update_xaxes(showticklabels=True, tickvals=tasks)
    figure.update_layout(
        barmode="group",
        bargap=0.25,
        legend={"x": 1.01, "y": 1, "yanchor": "top"},
        legend2={"x": 1.01, "y": 0.4, "yanchor": "top", "font": {"size": 12}},
    )
    return titled(
        figure,
        title="Needles in a long context",
        subtitle=sentences(verdict),
        note=_note(rows, "Bars: mean over seeds; whiskers: their range.", keys) + source,
        room=Room(height=240 + 260 * (panels - 1), right=230),
    )


def length_curves(frame: pd.DataFrame, *, equal_share: float | None = None) -> go.Figure:
    """Scores over the length of documents: a panel a task, a line a model, a point a seed.

    Args:
        frame: rows of `probes.long_context.needle_scores` with columns arm, share and seed.
        equal_share: share of the tokens at which the hybrid has the loss of the experts; the other
            hybrids on fewer tokens are left out.

    Raises:
        ValueError: if columns are missing.
    """
    require(frame, "arm", "share", "seed", "task", "context", "score", "chance", made_by=MADE_BY)
    tasks = list(frame["task"].unique())
    shown = frame[frame["share"].isin({frame["share"].max(), equal_share})]
    figure = make_subplots(rows=1, cols=len(tasks), shared_yaxes=True, horizontal_spacing=0.02)
    for setting in _settings(shown, equal_share):
        for col, task in enumerate(tasks, start=1):
            _curve(figure, setting, task, col)
    for col, task in enumerate(tasks, start=1):
        chance = float(frame.loc[frame["task"] == task, "chance"].mean())
        line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
        figure.add_hline(y=chance, line=line, layer="below", row=1, col=col)
        panel_title(figure, task, row=1, col=col, above=6)
    lengths = sorted(frame["context"].unique())
    figure.update_xaxes(type="log", tickvals=lengths, ticktext=[str(n) for n in lengths])
    figure.update_xaxes(title_text="tokens", minor={"ticks": ""})
    figure.update_yaxes(range=[0, 1.04])
    figure.update_yaxes(title_text="score", row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.12, "yanchor": "bottom"})
    return titled(
        figure,
        title="Needles by length of the document",
        note=_note(shown, "Lines: mean over seeds; points: seeds; dotted: chance."),
        room=Room(height=260, head=72),
    )


def _settings(frame: pd.DataFrame, equal_share: float | None) -> Sequence[_Setting]:
    """The models of a frame in order: experts, control, hybrids from few tokens to all."""
    found = [
        _Setting(rows=frame[frame["arm"] == arm], name=NAMES[arm], shade=colour(arm), opacity=0.75)
        for arm in ("experts", "neighbour")
        if (frame["arm"] == arm).any()
    ]
    shares = sorted(frame.loc[frame["arm"] == "engram", "share"].unique())
    for place, share in enumerate(shares):
        own = frame[(frame["arm"] == "engram") & (frame["share"] == share)]
        name = NAMES["engram"] if share == 1 else f"hybrid, {share:.0%} of the tokens"
        found.append(
            _Setting(
                rows=own,
                name=name + (": equal loss" if share == equal_share else ""),
                shade=colour("engram"),
                opacity=0.9 - 0.7 * (len(shares) - 1 - place) / max(1, len(shares)),
                dash="solid" if share == 1 else "dash",
            )
        )
    return found


def _bars(figure: go.Figure, setting: _Setting, tasks: Sequence[str]) -> None:
    over = setting.rows.groupby("task")["score"].agg(["mean", "min", "max"]).reindex(tasks)
    figure.add_bar(
        x=tasks,
        y=over["mean"],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": over["max"] - over["mean"],
            "arrayminus": over["mean"] - over["min"],
            "thickness": 1,
            "width": 2,
            "color": SOFT_INK,
        },
        marker={
            "color": translucent(setting.shade, setting.opacity),
            "line": {"color": setting.shade, "width": 1},
        },
        hovertemplate="%{x}: %{y:.3f}<extra>" + setting.name + "</extra>",
        name=setting.name,
        row=1,
        col=1,
    )


def _chance(figure: go.Figure, rows: pd.DataFrame, tasks: Sequence[str]) -> None:
    chance = rows.groupby("task")["chance"].mean().reindex(tasks)
    figure.add_scatter(
        x=tasks,
        y=chance,
        mode="markers",
        marker={"symbol": "line-ew", "size": 60, "line": {"color": SOFT_INK, "width": 1.5}},
        hovertemplate="chance %{y:.3f}<extra></extra>",
        name="chance",
        row=1,
        col=1,
    )


def _published(figure: go.Figure, published: pd.DataFrame, tasks: Sequence[str]) -> str:
    """The published panel; returns what the footer says of it."""
    for setting, (name, arm, opacity) in SETTINGS.items():
        own = published[published["setting"] == setting].set_index("task")
        own = own.reindex([PUBLISHED.get(task, task) for task in tasks])
        solid = own["kind"].isin(SOLID_KINDS)
        shade = colour(arm)
        figure.add_bar(
            x=tasks,
            y=own["value"] / 100,
            customdata=own["source"],
            marker={
                "color": [translucent(shade, opacity if filled else 0.0) for filled in solid],
                "line": {"color": shade, "width": 1},
            },
            hovertemplate="%{x}: %{y:.3f}<extra>" + name + ", %{customdata}</extra>",
            name=name,
            legend="legend2",
            row=2,
            col=1,
        )
    panel_title(figure, "published, 32,768 tokens (RULER)", row=2, col=1, above=6)
    return (
        "\nBelow: Engram paper, table 2, models of 27 billion parameters; other tasks of the same "
        "kind, so compare the order of the bars, not their height."
    )


def _curve(figure: go.Figure, setting: _Setting, task: str, col: int) -> None:
    rows = setting.rows[setting.rows["task"] == task]
    mean = rows.groupby("context")["score"].mean()
    figure.add_scatter(
        x=rows["context"],
        y=rows["score"],
        customdata=rows["seed"],
        mode="markers",
        marker={"color": translucent(setting.shade, 0.5), "size": 5},
        hovertemplate="seed %{customdata}: %{y:.3f} at %{x} tokens<extra></extra>",
        name=f"{setting.name}, seeds",
        legendgroup=setting.name,
        showlegend=False,
        row=1,
        col=col,
    )
    figure.add_scatter(
        x=mean.index,
        y=mean,
        mode="lines",
        line={"color": setting.shade, "width": 2, "dash": setting.dash},
        hovertemplate="mean %{y:.3f} at %{x} tokens<extra></extra>",
        name=setting.name,
        legendgroup=setting.name,
        showlegend=col == 1,
        row=1,
        col=col,
    )


def _note(rows: pd.DataFrame, marks: str, keys: str = "") -> str:
    items = f" · {rows['items'].max()} items a task" if "items" in rows else ""
    error = ""
    if "stderr" in rows:
        error = f" Standard error of one score: up to {rows['stderr'].max():.3f}."
    tokens = rows.drop(columns=[name for name in ("train_tokens",) if name in rows])
    return (
        f"{provenance(tokens)}{items}. {marks} Chance: naming any value that the document states."
        f"{error} {keys}".rstrip()
    )
