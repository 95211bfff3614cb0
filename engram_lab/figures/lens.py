"""When the answer is known: divergence from the final prediction, layer by layer."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.panels import NAMES, Line, memory_blocks, panel_title
from engram_lab.figures.style import COLOURS, DASHES, Room, colour, require, titled, translucent

MADE_BY = "probes.lens.logit_lens"
HEIGHT = 340  # of a panel, in pixels
TITLES = {
    "kl_nats": "KL(final || layer), nats",
    "reverse_kl_nats": "KL(layer || final), nats",
    "entropy_nats": "entropy, nats",
    "target_rank": "rank of the next token",
}

WORDS = NAMES | {"kept": "", "removed": "minus what its memory added"}


def lens_curve(
    frame: pd.DataFrame,
    *,
    measure: str = "kl_nats",
    by: str = "arm",
    dash: str | None = None,
    memory_layers: Sequence[int] = (),
    verdict: Any = None,
) -> go.Figure:
    """How far each layer's prediction is from the last one's (the paper prints no values of it).

    Args:
        frame: rows of `probes.lens.logit_lens`, or their means over positions from
            `probes.lens_summary.layer_means`; with a column seed where there are several. A column
            token_class gives every class a panel.
        measure: column to draw, on a logarithmic axis.
        by: column with a colour per value; left out where the frame lacks it.
        dash: column with a dash per value, for instance the kind of lens.
        memory_layers: blocks that read a memory; shaded.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing or `measure` is no measure.
    """
    if measure not in TITLES:
        raise ValueError(f"measure must be one of {', '.join(TITLES)}; got {measure!r}")
    require(frame, "layer", measure, *([dash] if dash else []), made_by=MADE_BY)
    keys = [name for name in (by, dash) if name is not None and name in frame]
    looks = _looks(frame, keys)
    panels = _panels(frame)
    figure = make_subplots(rows=1, cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03)
    for col, (title, rows) in enumerate(panels, start=1):
        means = _by_seed(rows, measure, keys)
        parts = dict(iter(means.groupby(keys, sort=False))) if keys else {(): means}
        for names, line in looks.items():
            if names in parts:
                _draw(figure, parts[names], line, measure, col=col)
        memory_blocks(figure, memory_layers, col=col)
        if len(panels) > 1:
            panel_title(figure, title, row=1, col=col, above=4)
    _axes(figure, frame, measure)
    titles = 26 if len(panels) > 1 else 4
    _legend(figure, above=titles, shown=len(looks) > 1)
    return titled(
        figure,
        title="When the answer is known",
        subtitle=sentences(verdict),
        note=_note(frame, measure, memory_layers),
        room=Room(height=HEIGHT, left=84, head=titles + (30 if len(looks) > 1 else 8)),
    )


def _legend(figure: go.Figure, *, above: int, shown: bool) -> None:
    place = {"orientation": "h", "x": 0, "y": 1 + above / HEIGHT, "yanchor": "bottom"}
    figure.update_layout(legend=place, showlegend=shown)


def _looks(frame: pd.DataFrame, keys: Sequence[str]) -> dict[tuple, Line]:
    """A colour for each value of the first key, a dash for each of the second."""
    if not keys:
        return {(): Line(name="model", colour=COLOURS["engram"])}
    pairs = frame[list(keys)].drop_duplicates().itertuples(index=False, name=None)
    dashes: dict[Any, str] = {}
    looks = {}
    for names in pairs:
        dash = dashes.setdefault(names[-1], DASHES[len(dashes) % len(DASHES)])
        looks[names] = Line(
            name=", ".join(filter(None, (WORDS.get(name, str(name)) for name in names))),
            colour=colour(str(names[0])),
            dash=dash if len(keys) > 1 else "solid",
        )
    return looks


def _panels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """All tokens first, then every class that the frame knows."""
    if "token_class" not in frame or frame["token_class"].nunique() < 2:
        return [("all tokens", frame)]
    classes = [name for name in frame["token_class"].unique() if name != "all"]
    whole = frame[frame["token_class"] == "all"] if "all" in set(frame["token_class"]) else frame
    parts = [(str(name), frame[frame["token_class"] == name]) for name in classes]
    return [("all tokens", whole), *parts]


def _by_seed(rows: pd.DataFrame, measure: str, keys: Sequence[str]) -> pd.DataFrame:
    """Mean over positions, of every line, layer and seed; a mean of 0 has no place on the axis."""
    weight = rows.get("positions", 1.0) * rows[measure].notna()
    rows = rows.assign(_total=rows[measure].fillna(0) * weight, _weight=weight)
    if "seed" not in rows:
        rows = rows.assign(seed=0)
    sums = rows.groupby([*keys, "layer", "seed"], as_index=False, sort=True)
    sums = sums[["_total", "_weight"]].sum()
    means = sums.assign(mean=sums["_total"] / sums["_weight"])
    return means[means["mean"] > 0]


def _draw(figure: go.Figure, part: pd.DataFrame, line: Line, measure: str, *, col: int) -> None:
    """Seeds as points, their mean as a line, their range as a band."""
    seeds = part.groupby("layer", as_index=False)["mean"]
    summary = seeds.agg(middle="mean", low="min", high="max", seeds="count")
    place = {"row": 1, "col": col}
    if summary["seeds"].max() > 1:
        figure.add_scatter(
            x=[*summary["layer"], *summary["layer"][::-1]],
            y=[*summary["high"], *summary["low"][::-1]],
            fill="toself",
            fillcolor=translucent(line.colour, 0.15),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name=f"{line.name}, range over seeds",
            legendgroup=line.name,
            showlegend=False,
            **place,
        )
        figure.add_scatter(
            x=part["layer"],
            y=part["mean"],
            customdata=part["seed"],
            mode="markers",
            marker={"color": translucent(line.colour, 0.5), "size": 4},
            hovertemplate="seed %{customdata}: %{y:.4g} at layer %{x}<extra></extra>",
            name=f"{line.name}, seeds",
            legendgroup=line.name,
            showlegend=False,
            **place,
        )
    figure.add_scatter(
        x=summary["layer"],
        y=summary["middle"],
        mode="lines+markers",
        line={"color": line.colour, "width": 2, "dash": line.dash},
        marker={"size": 7, "line": {"color": "white", "width": 1}},
        hovertemplate=f"{TITLES[measure]} %{{y:.4g}} at layer %{{x}}<extra>{line.name}</extra>",
        name=line.name,
        legendgroup=line.name,
        showlegend=col == 1,
        **place,
    )


def _axes(figure: go.Figure, frame: pd.DataFrame, measure: str) -> None:
    last = int(frame["layer"].max())
    every = -(-(last + 1) // 16)
    figure.update_xaxes(
        range=[-0.4, last + 0.4], tickvals=list(range(0, last + 1, every)), title_text="layer"
    )
    ticks = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_yaxes(title_text=TITLES[measure], row=1, col=1)


def _note(frame: pd.DataFrame, measure: str, memory_layers: Sequence[int]) -> str:
    text = (
        "Layer: the block about to read the stream; the last one is behind all blocks"
        + ("; a divergence of 0 has no place on this axis. " if "kl" in measure else ". ")
        + "Mean over positions"
    )
    if "seed" in frame and frame["seed"].nunique() > 1:
        text += "; points: seeds, line: their mean, band: their range"
    if memory_layers:
        text += "; shaded: the step over a block that reads its memory"
    known = f"{provenance(frame)}. {held_equal(frame)}".strip(". ")
    return f"{known}.\n{text}." if known else f"{text}."
