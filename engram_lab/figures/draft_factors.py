"""Accepted length against one knob of the drafter (rank, depth, drafted tokens), or its size."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.drafters import (
    DRAFTERS,
    MADE_BY,
    PUBLISHED,
    PUBLISHED_DOMAINS,
    SHADES,
    legend_room,
    seed_lengths,
)
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import SPARE, SYMBOLS, require, symbol, titled, translucent

HEADS = {"vanilla": "dspark", "gated": "dspark_gated", "rnn": "dspark_rnn"}
"""The drafter that each kind of sequential head makes."""
SERIES = PUBLISHED | {"DSpark-Markov": "dspark", "DSpark-RNN": "dspark_rnn"}
LEVELS = {"layers": "blocks", "gamma": "drafted tokens"}  # columns of published tables, as read


def factor_curves(
    frame: pd.DataFrame,
    *,
    factor: str,
    label: str,
    temperature: float = 1.0,
    published: pd.DataFrame | None = None,
    verdict: Any = None,
) -> go.Figure:
    """Accepted length against one knob of the drafter, a panel a kind of text.

    Args:
        frame: rows by prompt with columns seed, domain, temperature, rounds, emitted, `factor`, and
            drafter (or markov_head_type) where several were tried.
        factor: column on the x axis, for instance "markov_rank".
        label: its name in words.
        temperature: at which it was drawn.
        published: table `dspark_fig3_depth` or `dspark_fig4_length_latency`, drawn in a second row.
        verdict: written below the title.

    Raises:
        ValueError: if columns are missing, nothing was drawn at this temperature, or the published
            table is neither of the two.
    """
    require(frame, factor, "seed", "domain", "temperature", "rounds", "emitted", made_by=MADE_BY)
    by_seed = _by_seed(frame, [factor], temperature)
    domains = list(by_seed["domain"].unique())
    rows, height = (1, 300) if published is None else (2, 560)
    gaps = {"horizontal_spacing": 0.03, "vertical_spacing": 96 / height}
    figure = make_subplots(rows=rows, cols=len(domains), shared_yaxes=True, **gaps)
    levels = sorted(by_seed[factor].unique())
    for col, domain in enumerate(domains, start=1):
        own = by_seed[by_seed["domain"] == domain].assign(level=lambda part: part[factor])
        for name in (name for name in DRAFTERS if (own["series"] == name).any()):
            _levels(figure, own[own["series"] == name], levels, col)
        panel_title(figure, domain if rows == 1 else f"{domain}, measured", row=1, col=col, above=6)
        _ticks(figure, levels, label, row=1, col=col)
    if published is not None:
        _published_row(figure, published, domains)
    figure.update_yaxes(title_text="tokens a round", col=1)
    words = "most likely token" if temperature == 0 else f"temperature {temperature:g}"
    return titled(
        figure,
        title=f"Accepted length by {label}, {words}",
        subtitle=str(verdict or ""),
        note=_note(frame, published),
        room=legend_room(figure, height),
    )


def length_by_size(
    frame: pd.DataFrame, *, by: Sequence[str] = ("drafter",), temperature: float = 1.0
) -> go.Figure:
    """Accepted length against trained parameters, a panel a kind of text, a point a drafter.

    Args:
        frame: rows by prompt with columns seed, domain, temperature, rounds, emitted, draft_params
            and those of `by`.
        by: columns that tell drafters apart; "drafter" or "markov_head_type" gives the colour, the
            others are written beside the points.
        temperature: at which it was drawn.

    Raises:
        ValueError: if columns are missing, nothing was drawn at this temperature, or no drafter
            has parameters.
    """
    columns = ("seed", "domain", "temperature", "rounds", "emitted", "draft_params", *by)
    require(frame, *columns, made_by=MADE_BY)
    trained = frame[frame["draft_params"] > 0]
    if trained.empty:
        raise ValueError("length_by_size needs a drafter with parameters; every draft_params is 0")
    by_seed = _by_seed(trained, [*by, "draft_params"], temperature)
    domains = list(by_seed["domain"].unique())
    figure = make_subplots(rows=1, cols=len(domains), shared_yaxes=True, horizontal_spacing=0.05)
    others = [name for name in by if name not in ("drafter", "markov_head_type")]
    for col, domain in enumerate(domains, start=1):
        own = by_seed[by_seed["domain"] == domain]
        for name in (name for name in DRAFTERS if (own["series"] == name).any()):
            _sizes(figure, own[own["series"] == name], others, col)
        panel_title(figure, domain, row=1, col=col, above=6)
    figure.update_xaxes(title_text="trained parameters", rangemode="tozero", tickformat="~s")
    figure.update_yaxes(title_text="tokens a round", col=1)
    return titled(
        figure,
        title="What parameters buy: accepted length by the size of the drafter",
        note="Points: mean over seeds; bars: their range. Embedding and output head are the "
        "target's and not counted, but the small model has its own; nor are counts of bigrams.\n"
        + provenance(frame),
        room=legend_room(figure, 320),
    )


def _by_seed(frame: pd.DataFrame, keys: list[str], temperature: float) -> pd.DataFrame:
    """Accepted length of every seed at a temperature, with the drafter as column series."""
    part = frame[frame["temperature"] == temperature]
    if part.empty:
        raise ValueError(
            f"no rows at temperature {temperature}; there are "
            f"{sorted(frame['temperature'].unique().tolist())}"
        )
    if "drafter" in part:
        part = part.assign(series=part["drafter"])
    elif "markov_head_type" in part:
        part = part.assign(series=part["markov_head_type"].map(HEADS))
    else:
        part = part.assign(series="dspark")
    return seed_lengths(part, ["series", *keys])


def _levels(figure: go.Figure, rows: pd.DataFrame, levels: list[Any], col: int) -> None:
    """Seeds as points and their mean as a line; levels stand at equal distances."""
    name = rows["series"].iloc[0]
    shade = SHADES[name]
    rows = rows.assign(at=[levels.index(value) for value in rows["level"]])
    mean = rows.groupby("at")["accepted_length"].mean()
    shared = {"legendgroup": name, "row": 1, "col": col}
    figure.add_scatter(
        x=rows["at"],
        y=rows["accepted_length"],
        customdata=rows["seed"],
        mode="markers",
        marker={"color": translucent(shade, 0.55), "size": 6},
        hovertemplate="seed %{customdata}: %{y:.3f}<extra></extra>",
        name=f"{name}, seeds",
        showlegend=False,
        **shared,
    )
    figure.add_scatter(
        x=mean.index,
        y=mean,
        mode="lines+markers",
        line={"color": shade, "width": 2},
        marker={"size": 8, "symbol": _mark(name), "line": {"color": "white", "width": 1}},
        hovertemplate="mean %{y:.3f}<extra></extra>",
        name=DRAFTERS[name],
        showlegend=col == 1,
        **shared,
    )


def _sizes(figure: go.Figure, rows: pd.DataFrame, others: list[str], col: int) -> None:
    """One point a drafter of this kind, with the range over seeds."""
    name = rows["series"].iloc[0]
    keys = [*others, "draft_params"]
    over = rows.groupby(keys)["accepted_length"].agg(["mean", "min", "max"]).reset_index()
    texts = [", ".join(f"{value:g}" for value in point) for point in over[others].to_numpy()]
    figure.add_scatter(
        x=over["draft_params"],
        y=over["mean"],
        error_y={
            "array": over["max"] - over["mean"],
            "arrayminus": over["mean"] - over["min"],
            "symmetric": False,
            "thickness": 1,
            "width": 0,
        },
        text=texts,
        mode="markers+lines+text" if others else "markers",
        textposition="bottom right",
        textfont={"size": 11, "color": SHADES[name]},
        line={"color": translucent(SHADES[name], 0.4), "width": 1},
        marker={"color": SHADES[name], "size": 9, "symbol": _mark(name)},
        hovertemplate="%{y:.3f} tokens a round, %{x:,} parameters<extra></extra>",
        name=DRAFTERS[name],
        legendgroup=name,
        showlegend=col == 1,
        row=1,
        col=col,
    )


def _published_row(figure: go.Figure, published: pd.DataFrame, domains: list[str]) -> None:
    column = next((name for name in LEVELS if name in published), None)
    if column is None or "drafter" not in published:
        raise ValueError(
            "published= takes the tables dspark_fig3_depth and dspark_fig4_length_latency; got "
            f"columns {', '.join(published.columns)}"
        )
    if "quantity" in published:
        lengths = published[published["quantity"] == "accepted_length"]
        published = lengths.rename(columns={"value": "accepted_length"})
    levels = sorted(published[column].unique())
    for col, domain in enumerate(domains, start=1):
        kind = PUBLISHED_DOMAINS.get(domain, domain)
        for name, rows in published[published["domain"] == kind].groupby("drafter"):
            _published_curve(figure, rows, str(name), (column, levels), col)
        panel_title(figure, f"{kind}, published (Qwen3-4B)", row=2, col=col, above=6)
        _ticks(figure, levels, LEVELS[column], row=2, col=col)


def _published_curve(
    figure: go.Figure, rows: pd.DataFrame, name: str, axis: tuple[str, list[Any]], col: int
) -> None:
    column, levels = axis
    drafter = SERIES.get(name, name)
    shade = SHADES.get(drafter, SPARE[0])
    mean = rows.groupby(column)["accepted_length"].mean()
    figure.add_scatter(
        x=[levels.index(value) for value in mean.index],
        y=mean,
        mode="lines+markers",
        line={"color": shade, "width": 2, "dash": "dot"},
        marker={"size": 8, "symbol": symbol(rows["kind"].iloc[0], _mark(drafter))},
        hovertemplate=f"published {name}: %{{y:.2f}}<extra></extra>",
        name=f"published {name}",
        legendgroup=drafter,
        showlegend=False,
        row=2,
        col=col,
    )


def _ticks(figure: go.Figure, levels: list[Any], label: str, *, row: int, col: int) -> None:
    """One tick a level, with room beside the first and the last."""
    figure.update_xaxes(
        title_text=label,
        tickvals=list(range(len(levels))),
        ticktext=[f"{level:g}" for level in levels],
        range=[-0.3, len(levels) - 0.7],
        row=row,
        col=col,
    )


def _mark(drafter: str) -> str:
    names = list(DRAFTERS)
    return SYMBOLS[names.index(drafter) % len(SYMBOLS)] if drafter in names else SYMBOLS[0]


def _note(frame: pd.DataFrame, published: pd.DataFrame | None) -> str:
    text = (
        "Tokens gained in a round, the one behind the drafts included; whole blocks verified. "
        "Points: seeds; line: their mean. "
    )
    if published is not None:
        text += (
            "Published curves (means over benchmarks) were read off a figure; models, texts and "
            "training there are a thousand times larger, so shapes compare and heights do not. "
        )
    return text + "\n" + provenance(frame)
