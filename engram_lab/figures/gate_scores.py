"""Gates as detectors: area under the curve by module and branch; gates under two topics."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, SOFT_INK, SYMBOLS, Room, colour, require, titled

MADE_BY = "probes.gate_scores.trained_gate_scores"
STATISTICS = {
    "phrase_end": ("last word of a phrase,<br>among all tokens", "area under the ROC curve", 0.5),
    "phrase_end_inside": (
        "last word of a phrase,<br>among words of phrases",
        "area under the ROC curve",
        0.5,
    ),
    "surprise": ("surprise of the token", "rank correlation", 0.0),
}
MEASURES = {"gate": "gate", "value_norm": "gate × |value|", "ngram_count": "n-gram count"}
SHADES = {"gate": "engram", "value_norm": "wide_ffn", "ngram_count": "published"}
MODELS = {"engram": "own addresses", "neighbour": "neighbour's addresses"}
ROW = 44


def gate_auc(frame: pd.DataFrame, *, verdict: Any = None) -> go.Figure:
    """How well gates tell ends of phrases, and how they go with surprise, by module and branch.

    Args:
        frame: rows of `probes.gate_scores.trained_gate_scores` with columns model and seed.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing.
    """
    index = ("statistic", "model", "seed", "layer", "branch", "measure")
    require(frame, *index, "value", "low", "high", made_by=MADE_BY)
    statistics = [name for name in STATISTICS if name in set(frame["statistic"])]
    rows = _gate_rows(frame)
    figure = make_subplots(rows=1, cols=len(statistics), shared_yaxes=True, horizontal_spacing=0.04)
    for col, statistic in enumerate(statistics, start=1):
        title, axis, nothing = STATISTICS[statistic]
        part = frame[frame["statistic"] == statistic]
        for measure in MEASURES:
            _dots(figure, part[part["measure"] == measure], rows, measure, col)
        line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
        figure.add_vline(x=nothing, line=line, layer="below", row=1, col=col)
        panel_title(figure, title, row=1, col=col, above=6)
        figure.layout.annotations[-1].align = "left"
        low, high = min(part["low"].min(), nothing), max(part["high"].max(), nothing)
        room = 0.08 * (high - low)
        span = [low - room, high + room]
        figure.update_xaxes(title_text=axis, nticks=5, range=span, row=1, col=col)
    figure.update_yaxes(
        tickvals=list(rows.values()),
        ticktext=list(rows),
        range=[len(rows) - 0.4, -0.6],
        showgrid=False,
        ticks="",
    )
    figure.update_layout(legend={"orientation": "h", "x": 0, "yanchor": "bottom"})
    height = ROW * len(rows) + 30
    figure.update_layout(legend={"y": 1 + 44 / height})
    return titled(
        figure,
        title="Does the gate open where text is stereotyped?",
        subtitle=sentences(verdict),
        note=(
            f"{provenance(frame)} · {int(frame['items'].max())} tokens. Points: seeds with 95 % "
            "intervals over documents; every memory layer and branch is shown. Dotted: a gate that "
            "says nothing. Grey: how often the trigram that ends there was seen in training, a "
            "detector without any model."
        ),
        room=Room(height=height, left=210, head=92),
    )


def topic_violins(frame: pd.DataFrame, *, measure: str = "gate", verdict: Any = None) -> go.Figure:
    """Gates at the same phrases under the topic they are at home in and under another one.

    Args:
        frame: rows of `probes.gate_scores.trained_topic_gates` with columns model and seed.
        measure: "gate" or "value_norm".
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing or `measure` is another column.
    """
    if measure not in ("gate", "value_norm"):
        raise ValueError(f"measure must be gate or value_norm; got {measure!r}")
    sides = [f"{measure}_home", f"{measure}_elsewhere"]
    index = ("model", "seed", "layer", "branch")
    require(frame, *index, *sides, made_by="probes.gate_scores.trained_topic_gates")
    models = list(frame.groupby(["model", "layer", "branch"], sort=False))
    figure = make_subplots(rows=1, cols=2, column_widths=[0.64, 0.36], horizontal_spacing=0.12)
    for number, (key, part) in enumerate(models):
        _halves(figure, part, sides, _place(*key), named=number == 0)
        _paired(figure, part, sides, key)
    line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
    figure.add_hline(y=0, line=line, layer="below", row=1, col=2)
    figure.update_yaxes(title_text=MEASURES[measure], row=1, col=1)
    figure.update_yaxes(title_text="right minus wrong topic, mean of pairs", row=1, col=2)
    figure.update_xaxes(range=[-0.6, len(models) - 0.4], row=1, col=2)
    legend = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}
    figure.update_layout(violinmode="overlay", legend=legend)
    pairs = frame.groupby(["model", "seed", "layer", "branch"]).size().max()
    return titled(
        figure,
        title="The same phrase under the right and the wrong topic",
        subtitle=sentences(verdict),
        note=(
            f"{provenance(frame.drop(columns='document', errors='ignore'))} · {pairs} phrases a "
            "model, each read in two documents that differ in their topic and in what follows from "
            "it. Left: all seeds together, lines at the means; right: seeds."
        ),
        room=Room(height=360, head=34),
    )


def _halves(
    figure: go.Figure, part: pd.DataFrame, sides: list[str], name: str, *, named: bool
) -> None:
    """Both distributions of one gate, back to back."""
    looks = (("right topic", "engram", "negative"), ("wrong topic", "static", "positive"))
    for side, (topic, shade, half) in zip(sides, looks, strict=True):
        figure.add_violin(
            x=[name] * len(part),
            y=part[side],
            side=half,
            line={"color": COLOURS[shade], "width": 1.5},
            meanline={"visible": True},
            points=False,
            spanmode="hard",
            width=0.8,
            name=topic,
            legendgroup=topic,
            showlegend=named,
            row=1,
            col=1,
        )


def _paired(figure: go.Figure, part: pd.DataFrame, sides: list[str], key: tuple) -> None:
    """Difference of the two topics, seed by seed."""
    differences = (part[sides[0]] - part[sides[1]]).groupby(part["seed"]).mean()
    figure.add_scatter(
        x=[_place(*key)] * len(differences),
        y=differences,
        customdata=differences.index,
        mode="markers",
        marker={"color": colour(key[0]), "size": 9},
        hovertemplate="seed %{customdata}: %{y:+.4f}<extra></extra>",
        name=f"seeds, {_place(*key)}",
        showlegend=False,
        row=1,
        col=2,
    )


def _gate_rows(frame: pd.DataFrame) -> dict[str, int]:
    """A row for every model, layer and branch, and one for what needs no model."""
    gates = frame[frame["layer"] >= 0]
    keys = gates.groupby(["model", "layer", "branch"], sort=False).size().index
    names = [_place(*key) for key in keys]
    if (frame["layer"] < 0).any():
        names.append("counting, no model")
    return {name: y for y, name in enumerate(names)}


def _place(model: str, layer: int, branch: int) -> str:
    name = f"{MODELS.get(model, model)},<br>block {layer}"
    return f"{name}, branch {branch}" if branch else name


def _dots(
    figure: go.Figure, part: pd.DataFrame, rows: dict[str, int], measure: str, col: int
) -> None:
    if part.empty:
        return
    if measure == "ngram_count":
        part = part.drop_duplicates(["statistic", "value"])  # the same for all models
        y = [float(rows["counting, no model"])] * len(part)
    else:
        names = [
            _place(*key) for key in zip(part["model"], part["layer"], part["branch"], strict=True)
        ]
        shift = {"gate": -0.14, "value_norm": 0.14}[measure]
        y = [rows[name] + shift for name in names]
    figure.add_scatter(
        x=part["value"],
        y=y,
        error_x={
            "type": "data",
            "symmetric": False,
            "array": part["high"] - part["value"],
            "arrayminus": part["value"] - part["low"],
            "thickness": 1,
            "width": 3,
        },
        customdata=part["seed"],
        mode="markers",
        marker={
            "color": COLOURS[SHADES[measure]],
            "size": 8,
            "symbol": SYMBOLS[list(MEASURES).index(measure)],
        },
        hovertemplate="seed %{customdata}: %{x:.3f}<extra>" + MEASURES[measure] + "</extra>",
        name=MEASURES[measure],
        legendgroup=measure,
        showlegend=col == 1,
        row=1,
        col=col,
    )
