"""How far drafts survive: accepted length by drafter, acceptance by position."""

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
from engram_lab.figures.panels import Line, bar_and_seeds, panel_title
from engram_lab.figures.style import (
    COLOURS,
    SPARE,
    SYMBOLS,
    Room,
    require,
    symbol,
    titled,
    translucent,
)

FEW = 30  # rounds behind a point; with fewer it is drawn hollow


def length_bars(
    frame: pd.DataFrame,
    *,
    temperature: float = 1.0,
    published: pd.DataFrame | None = None,
    target: str = "Qwen3-4B",
    verdict: Any = None,
) -> go.Figure:
    """Accepted length by drafter, a panel a kind of text; published means as diamonds.

    Args:
        frame: rows of `catalog.DSPARK_DRAFTERS`: one a prompt, with columns drafter, seed, domain,
            temperature, rounds and emitted.
        temperature: at which it was drawn.
        published: table `dspark_table1_accepted_length`.
        target: whose published values are drawn.
        verdict: written below the title.

    Raises:
        ValueError: if columns are missing or nothing was drawn at this temperature.
    """
    require(frame, "drafter", "seed", "domain", "temperature", "rounds", "emitted", made_by=MADE_BY)
    by_seed = seed_lengths(_drawn(frame, temperature), ["drafter"])
    drafters = [name for name in DRAFTERS if (by_seed["drafter"] == name).any()]
    domains = list(by_seed["domain"].unique())
    figure = make_subplots(rows=1, cols=len(domains), shared_yaxes=True, horizontal_spacing=0.03)
    for col, domain in enumerate(domains, start=1):
        part = by_seed[by_seed["domain"] == domain]
        for drafter in reversed(drafters):
            bar_and_seeds(
                figure,
                part[part["drafter"] == drafter],
                Line(name=drafter, colour=SHADES[drafter]),
                label=DRAFTERS[drafter],
                width=0.6,
                col=col,
                column="accepted_length",
            )
        if published is not None:
            _published_lengths(figure, published, target, domain, drafters, col)
        panel_title(figure, domain, row=1, col=col, above=6)
    figure.update_xaxes(title_text="tokens a round", rangemode="tozero", matches="x")
    return titled(
        figure,
        title=f"Accepted length, {_drawn_at(temperature)}",
        subtitle=str(verdict or ""),
        note=_length_note(frame, published, target),
        room=Room(height=46 + 34 * len(drafters), left=190, head=34),
    )


def position_curves(
    frame: pd.DataFrame, *, temperature: float = 1.0, published: pd.DataFrame | None = None
) -> go.Figure:
    """Conditional acceptance by position, a panel a kind of text; published curves below.

    Args:
        frame: rows of `catalog.DSPARK_POSITIONS`, with columns drafter, seed, domain, temperature,
            position, reached and conditional_rate.
        temperature: at which it was drawn.
        published: table `dspark_fig2_conditional_acceptance`.

    Raises:
        ValueError: if columns are missing or nothing was drawn at this temperature.
    """
    columns = (
        "drafter",
        "seed",
        "domain",
        "temperature",
        "position",
        "reached",
        "conditional_rate",
    )
    require(frame, *columns, made_by=MADE_BY)
    part = _drawn(frame, temperature)
    domains = list(part["domain"].unique())
    rows = 1 if published is None else 2
    gaps = {"horizontal_spacing": 0.03, "vertical_spacing": 0.16}
    figure = make_subplots(rows=rows, cols=len(domains), shared_yaxes=True, **gaps)
    for col, domain in enumerate(domains, start=1):
        own = part[part["domain"] == domain]
        for drafter in (name for name in DRAFTERS if (own["drafter"] == name).any()):
            _curve(figure, own[own["drafter"] == drafter], drafter, col)
        panel_title(figure, f"{domain}, measured", row=1, col=col, above=6)
        if published is not None:
            _published_curves(figure, published, PUBLISHED_DOMAINS.get(domain, domain), col)
    figure.update_xaxes(dtick=1)
    figure.update_xaxes(title_text="position in the block", row=rows)
    figure.update_yaxes(title_text="kept, if reached", col=1)
    return titled(
        figure,
        title=f"Is the next draft kept, if all before it were? ({_drawn_at(temperature)})",
        note=_position_note(frame, published),
        room=legend_room(figure, 280 * rows),
    )


def _published_lengths(
    figure: go.Figure,
    published: pd.DataFrame,
    target: str,
    domain: str,
    drafters: list[str],
    col: int,
) -> None:
    kind = PUBLISHED_DOMAINS.get(domain, domain)
    rows = published[(published["target"] == target) & (published["domain"] == kind)]
    for name, own in rows.groupby("drafter"):
        drafter = PUBLISHED.get(name)
        if drafter not in drafters:
            continue
        figure.add_scatter(
            x=[own["accepted_length"].mean()],
            y=[DRAFTERS[drafter]],
            mode="markers",
            marker={
                "color": COLOURS["published"],
                "size": 11,
                "symbol": symbol(own["kind"].iloc[0], "diamond"),
                "line": {"color": "white", "width": 1},
            },
            hovertemplate=f"published, {target}, {kind}: %{{x:.2f}}<extra></extra>",
            name=f"published {name}",
            showlegend=False,
            row=1,
            col=col,
        )


def _curve(figure: go.Figure, rows: pd.DataFrame, drafter: str, col: int) -> None:
    shade, place = SHADES[drafter], {"row": 1, "col": col}
    mark = SYMBOLS[list(DRAFTERS).index(drafter) % len(SYMBOLS)]
    over = rows.groupby("position")["conditional_rate"].agg(["mean", "min", "max"]).dropna()
    reached = rows.groupby("position")["reached"].sum()[over.index]
    figure.add_scatter(
        x=[*over.index, *over.index[::-1]],
        y=[*over["max"], *over["min"][::-1]],
        fill="toself",
        fillcolor=translucent(shade, 0.12),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        name=f"{drafter}, range over seeds",
        legendgroup=drafter,
        showlegend=False,
        **place,
    )
    figure.add_scatter(
        x=over.index,
        y=over["mean"],
        mode="lines+markers",
        line={"color": shade, "width": 2},
        customdata=reached,
        marker={
            "size": 7,
            "symbol": [f"{mark}-open" if rounds < FEW else mark for rounds in reached],
        },
        hovertemplate="%{y:.3f} at position %{x} (%{customdata} rounds)<extra></extra>",
        name=DRAFTERS[drafter],
        legendgroup=drafter,
        showlegend=col == 1,
        **place,
    )


def _published_curves(figure: go.Figure, published: pd.DataFrame, kind: str, col: int) -> None:
    for name, rows in published[published["domain"] == kind].groupby("drafter"):
        drafter = PUBLISHED.get(name, name)
        mark = SYMBOLS[list(DRAFTERS).index(drafter) % len(SYMBOLS)]
        figure.add_scatter(
            x=rows["position"],
            y=rows["conditional_acceptance"],
            mode="lines+markers",
            line={"color": SHADES.get(drafter, SPARE[0]), "width": 2, "dash": "dot"},
            marker={"size": 7, "symbol": symbol(rows["kind"].iloc[0], mark)},
            hovertemplate=f"published {name}: %{{y:.3f}} at %{{x}}<extra></extra>",
            name=f"published {name}",
            legendgroup=drafter,
            showlegend=False,
            row=2,
            col=col,
        )
    panel_title(figure, f"{kind}, published (Qwen3-4B)", row=2, col=col, above=6)


def _drawn(frame: pd.DataFrame, temperature: float) -> pd.DataFrame:
    part = frame[frame["temperature"] == temperature]
    if part.empty:
        raise ValueError(
            f"no rows at temperature {temperature}; there are "
            f"{sorted(frame['temperature'].unique().tolist())}"
        )
    return part


def _drawn_at(temperature: float) -> str:
    return "most likely token" if temperature == 0 else f"temperature {temperature:g}"


def _length_note(frame: pd.DataFrame, published: pd.DataFrame | None, target: str) -> str:
    text = (
        "Tokens gained in a round, the one behind the drafts included; whole blocks verified, "
        "prompts that neither target nor drafter has seen. Bars: mean over seeds; points: seeds. "
    )
    if published is not None:
        text += (
            f"Grey diamonds: means published for {target} on mathematics (beside structured), code "
            "and chat (beside prose), with models and texts a thousand times larger. "
        )
    return text + "\n" + provenance(frame)


def _position_note(frame: pd.DataFrame, published: pd.DataFrame | None) -> str:
    text = (
        "Of the rounds in which all earlier drafts were kept, the share that keeps the one at this "
        "position. Far positions are reached in easy places only, so part of a rise is selection. "
        f"Lines: mean over seeds; bands: their range; hollow: fewer than {FEW} rounds came so far. "
    )
    if published is not None:
        text += "Published curves were read off a figure. "
    return text + "\n" + provenance(frame)
