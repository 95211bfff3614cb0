"""All rounds of drafting at a glance: a round is a row, drafters stand side by side."""

from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.drafters import legend_room
from engram_lab.figures.style import require, titled
from engram_lab.figures.theatre_boxes import (
    ADDED,
    ANCHOR,
    MADE_BY,
    NEEDED,
    SHADES,
    or_gap,
    strike_lines,
    theatre_note,
    token_boxes,
)


def round_strip(frame: pd.DataFrame) -> go.Figure:
    """All rounds of every drafter, one below the other, drafters side by side.

    A round is a row: the anchor, the drafts, and the target's own token below the slot that it
    takes. Rejected drafts are struck out.

    Args:
        frame: rows of `probes.theatre.theatre_frame`.

    Raises:
        ValueError: if columns are missing.
    """
    require(frame, *NEEDED, made_by=MADE_BY)
    groups = list(frame.groupby("drafter", sort=False))
    titles = [_gain(str(name), rows) for name, rows in groups]
    figure = make_subplots(cols=len(groups), shared_yaxes=True, horizontal_spacing=0.03)
    for column, ((_, rows), title) in enumerate(zip(groups, titles, strict=True), 1):
        _rounds(figure, rows, column)
        domain = {"x": 0, "xref": "x domain", "y": 1, "yref": "y domain", "yshift": 6}
        figure.add_annotation(
            text=title, xanchor="left", yanchor="bottom", **domain, row=1, col=column
        )
    slots, rounds = int(frame["position"].max()), int(frame["round"].max()) + 1
    figure.update_xaxes(
        range=[-0.6, slots + 0.6],
        tickvals=[*range(slots + 1)],
        ticktext=["anchor", *(str(slot) for slot in range(1, slots + 1))],
    )
    figure.update_yaxes(range=[rounds - 0.45, -0.55], showgrid=False, dtick=1, tick0=0)
    figure.update_yaxes(
        title_text="round", tickvals=[*range(rounds)], ticktext=[*range(1, rounds + 1)], col=1
    )
    height, width = 60 + 36 * rounds, max(980, 90 + 430 * len(groups))
    figure.update_layout(barmode="overlay")
    return titled(
        figure,
        title="All rounds",
        note=theatre_note(frame),
        room=replace(legend_room(figure, height), width=width, axis=44),
    )


def _rounds(figure: go.Figure, rows: pd.DataFrame, column: int) -> None:
    """Every round of one drafter: kept drafts high, others in the upper half of their row."""
    place, legend = {"row": 1, "col": column}, column == 1
    anchors = rows.drop_duplicates("round").assign(position=0)
    anchors = anchors.assign(token_text=anchors["anchor_text"])
    parts = [("anchor", ANCHOR, anchors)]
    parts += [(name, shade, rows[rows["outcome"] == name]) for name, shade in SHADES.items()]
    for name, shade, part in parts:
        whole = name in ("anchor", "accepted")
        lift = 0.0 if whole else (0.22 if name in ADDED else -0.22)
        box = token_boxes(part, name, shade, 0.0, legend=legend, half=0.42 if whole else 0.2)
        box.base = [number + lift + float(box.base[0]) for number in or_gap(part["round"], 0)]
        box.textfont.size = 10
        figure.add_trace(box, **place)
    lost = rows[rows["outcome"] == "rejected"]
    figure.add_trace(strike_lines(lost, [*(lost["round"] - 0.22)] or [0.0], 0.42), **place)


def _gain(name: str, rows: pd.DataFrame) -> str:
    """A drafter and its mean gain."""
    rounds, tokens = rows["round"].nunique(), int(rows["emitted"].sum())
    return f"<b>{name}</b>: {tokens} tokens in {rounds} rounds, {tokens / rounds:.2f} a round"
