"""Accepted length against one knob of the drafter: rank, depth, length of the block."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.drafters import DRAFTERS, MADE_BY, SHADES, seed_lengths
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, SPARE, SYMBOLS, Room, require, titled, translucent


def factor_curves(
    frame: pd.DataFrame, *, factor: str, label: str, temperature: float = 1.0, verdict: Any = None
) -> go.Figure:
    """Accepted length against one knob of the drafter, a panel a kind of text.

    Args:
        frame: rows by prompt with columns seed, domain, temperature, rounds, emitted, `factor`, and
            drafter (or markov_head_type) where several were tried.
        factor: column on the x axis, for instance "markov_rank".
        label: its name in words.
        temperature: at which it was drawn.
        verdict: written below the title.

    Raises:
        ValueError: if columns are missing.
    """
    require(frame, factor, "seed", "domain", "temperature", "rounds", "emitted", made_by=MADE_BY)
    kind = next((name for name in ("drafter", "markov_head_type") if name in frame), None)
    by_seed = seed_lengths(frame, [factor] + ([kind] if kind else []))
    by_seed = by_seed[by_seed["temperature"] == temperature]
    domains = list(by_seed["domain"].unique())
    levels = sorted(by_seed[factor].unique())
    figure = make_subplots(rows=1, cols=len(domains), shared_yaxes=True, horizontal_spacing=0.03)
    for col, domain in enumerate(domains, start=1):
        own = by_seed[by_seed["domain"] == domain]
        groups = own.groupby(kind, sort=False) if kind else [("dspark", own)]
        for index, (name, rows) in enumerate(groups):
            _levels(figure, rows, name, levels.index, factor, (index, col))
        panel_title(figure, domain, row=1, col=col, above=6)
        figure.update_xaxes(
            title_text=label, tickvals=list(range(len(levels))), ticktext=levels, row=1, col=col
        )
    figure.update_yaxes(title_text="tokens a round", row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.1, "yanchor": "bottom"})
    return titled(
        figure,
        title=f"Accepted length by {label}",
        subtitle=str(verdict or ""),
        note="Points: seeds; line: their mean.\n" + provenance(frame),
        room=Room(height=300, head=64),
    )


def _levels(
    figure: go.Figure,
    rows: pd.DataFrame,
    name: str,
    place_of: Any,
    factor: str,
    place: tuple[int, int],
) -> None:
    index, col = place
    shade = SHADES.get(name, (COLOURS["engram"], *SPARE)[index % 6])
    at = [place_of(value) for value in rows[factor]]
    rows = rows.assign(at=at)
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
        marker={"size": 8, "symbol": SYMBOLS[index % len(SYMBOLS)]},
        hovertemplate="mean %{y:.3f}<extra></extra>",
        name=DRAFTERS.get(name, name),
        showlegend=col == 1,
        **shared,
    )
