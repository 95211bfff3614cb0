"""Acceptance behind cues with several replies: measured bars, and what was known beforehand."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.drafters import DRAFTERS, SHADES
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import INK, Room, require, titled, translucent

MADE_BY = "probes.modes.mode_frame"
WORDS = {
    ("ask", 1): "ask: first",
    ("ask", 2): "ask: second",
    ("tell", 1): "tell: first",
    ("tell", 2): "tell: bridge",
    ("tell", 3): "tell: behind it",
}


def mode_bars(frame: pd.DataFrame, *, verdict: str | Sequence[Any] = "") -> go.Figure:
    """Chance of being kept, by token of the reply and drafter; black marks are the known answer.

    Args:
        frame: rows of `probes.modes.mode_frame` with columns drafter, modes and seed.
        verdict: a sentence or verdicts, written below the title.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("drafter", "modes", "seed", "kind", "position", "acceptance", "ideal")
    require(frame, *columns, made_by=MADE_BY)
    numbers = sorted(frame["modes"].unique())
    drafters = [name for name in DRAFTERS if (frame["drafter"] == name).any()]
    figure = make_subplots(rows=1, cols=len(numbers), shared_yaxes=True, horizontal_spacing=0.03)
    width = 0.8 / len(drafters)
    for col, modes in enumerate(numbers, start=1):
        part = frame[frame["modes"] == modes]
        for place, drafter in enumerate(drafters):
            rows = part[part["drafter"] == drafter]
            offset = (place - (len(drafters) - 1) / 2) * width
            _bars(figure, rows, drafter, offset, width, col)
        panel_title(figure, f"{modes} replies to each cue", row=1, col=col, above=6)
    figure.update_xaxes(tickvals=list(range(len(WORDS))), ticktext=list(WORDS.values()))
    figure.update_yaxes(range=[0, 1.05], title_text="kept by the target", row=1, col=1)
    figure.update_layout(
        barmode="overlay", legend={"orientation": "h", "x": 0, "y": 1.09, "yanchor": "bottom"}
    )
    sentences = verdict if isinstance(verdict, str) else "\n".join(str(each) for each in verdict)
    return titled(
        figure,
        title="Two ways to answer must not be mixed",
        subtitle=sentences,
        note=(
            "Chance that the target keeps the drafted token, given the true ones before it. Bars: "
            "mean over seeds, points: seeds. Black marks: what the best drafter with such a head "
            f"can reach, known from the language.\n{provenance(frame)}"
        ),
        room=Room(height=320, head=66),
    )


def _bars(
    figure: go.Figure, rows: pd.DataFrame, drafter: str, offset: float, width: float, col: int
) -> None:
    shade, shared = SHADES[drafter], {"legendgroup": drafter, "row": 1, "col": col}
    places = {key: number + offset for number, key in enumerate(WORDS)}
    rows = rows.assign(x=[places[key] for key in zip(rows["kind"], rows["position"], strict=True)])
    mean = rows.groupby("x")[["acceptance", "ideal"]].mean()
    figure.add_bar(
        x=mean.index,
        y=mean["acceptance"],
        width=width * 0.9,
        marker={"color": translucent(shade, 0.4), "line": {"color": shade, "width": 1}},
        hovertemplate="mean %{y:.3f}<extra></extra>",
        name=DRAFTERS[drafter],
        showlegend=col == 1,
        **shared,
    )
    figure.add_scatter(
        x=mean.index,
        y=mean["ideal"],
        mode="markers",
        marker={"symbol": "line-ew", "size": 16, "line": {"color": INK, "width": 2}},
        hovertemplate="known %{y:.2f}<extra></extra>",
        name=f"{drafter}, known",
        showlegend=False,
        **shared,
    )
    figure.add_scatter(
        x=rows["x"],
        y=rows["acceptance"],
        customdata=rows["seed"],
        mode="markers",
        marker={"color": shade, "size": 5, "line": {"color": "white", "width": 1}},
        hovertemplate="seed %{customdata}: %{y:.3f}<extra></extra>",
        name=f"{drafter}, seeds",
        showlegend=False,
        **shared,
    )
