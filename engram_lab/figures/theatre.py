"""Rounds of drafting on a stage: what was proposed, corrected, kept and lost, slot by slot."""

from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.drafters import legend_room
from engram_lab.figures.gates import visible_token
from engram_lab.figures.style import INK, RULE, SOFT_INK, require, titled, translucent
from engram_lab.figures.theatre_boxes import (
    ADDED,
    ANCHOR,
    CORRECTED,
    DRAFTS,
    MADE_BY,
    NEEDED,
    SHADES,
    or_gap,
    strike_lines,
    theatre_note,
    token_boxes,
)

PHASES = {
    "proposed": "a block is proposed at once",
    "corrected": "the head corrects it from left to right",
    "confidence": "how likely is each draft to survive?",
    "verified": "the target keeps a prefix and adds a token",
}
"""What happens in a round, in order, and how a title says it."""
LANES = {2: "base logits alone", 1: "drafted", 0: "the target adds"}
CONTEXT = 46  # characters of the text before a round
STAGE, CONFIDENCE, GAP, BETWEEN = 150, 70, 6, 74  # pixels


def round_stage(frame: pd.DataFrame, *, round: int = 0, phase: str = "verified") -> go.Figure:
    """One round of every drafter: its block, the correction, the confidences, what was kept.

    Rejected drafts are struck out. A purple wedge stands where the sequential head changed what
    the base logits alone would have drawn.

    Args:
        frame: rows of `probes.theatre.theatre_frame`.
        round: from 0; a drafter that needed fewer rounds has an empty stage.
        phase: of `PHASES`, how much of the round has happened.

    Raises:
        ValueError: if columns are missing, or there is no such round or phase.
    """
    require(frame, *NEEDED, made_by=MADE_BY)
    last = int(frame["round"].max())
    if not 0 <= round <= last or phase not in PHASES:
        raise ValueError(
            f"round_stage shows rounds 0..{last} of this frame and a phase of "
            f"{', '.join(PHASES)}; got round {round} and phase {phase!r}"
        )
    groups = list(frame.groupby("drafter", sort=False))
    height = _height(len(groups))
    figure = _stages(len(groups))
    for number, (name, rows) in enumerate(groups):
        now = rows[rows["round"] == round]
        _act(figure, now, 2 * number + 1, phase, legend=number == 0)
        _confidences(figure, now, 2 * number + 2, phase, legend=number == 0)
        _announce(figure, _headline(str(name), rows, round, phase), 2 * number + 1)
    slots = int(frame["position"].max())
    figure.update_xaxes(range=[-0.6, slots + 0.6], showticklabels=False, ticks="")
    places = [*range(slots + 1)]
    names = ["anchor", *(str(slot) for slot in places[1:])]
    figure.update_xaxes(
        tickvals=places, ticktext=names, showticklabels=True, row=2 * len(groups), col=1
    )
    figure.update_layout(barmode="overlay")
    return titled(
        figure,
        title=f"Round {round + 1} of {last + 1}: {PHASES[phase]}",
        note=theatre_note(frame) + " Black ticks: chance that the target keeps the draft.",
        room=replace(legend_room(figure, height), left=150, axis=34),
    )


def _stages(count: int) -> go.Figure:
    """Two panels a drafter: boxes above, confidences below, with room for a headline."""
    height = _height(count)
    figure = make_subplots(rows=2 * count, cols=1)
    for number in range(count):
        top = 1 - number * (STAGE + GAP + CONFIDENCE + BETWEEN) / height
        middle = top - STAGE / height
        low = middle - GAP / height
        figure.update_yaxes(
            domain=[middle, top],
            range=[-0.5, 2.5],
            tickvals=list(LANES),
            ticktext=list(LANES.values()),
            showgrid=False,
            showline=False,
            ticks="",
            row=2 * number + 1,
            col=1,
        )
        figure.update_xaxes(showline=False, row=2 * number + 1, col=1)
        figure.update_yaxes(
            domain=[max(0.0, low - CONFIDENCE / height), low],
            range=[0, 1.06],
            tickvals=[0, 0.5, 1],
            title={"text": "confidence", "font": {"size": 11}},
            row=2 * number + 2,
            col=1,
        )
    return figure


def _height(count: int) -> int:
    return count * (STAGE + GAP + CONFIDENCE) + (count - 1) * BETWEEN


def _act(figure: go.Figure, rows: pd.DataFrame, row: int, phase: str, *, legend: bool) -> None:
    """The boxes of one drafter and round, as far as the phase has come."""
    place = {"row": row, "col": 1}
    drafts = rows[rows["outcome"].isin(DRAFTS)]
    based = drafts.dropna(subset="base_text")
    anchor = rows.head(1).assign(position=0, token_text=rows["anchor_text"].head(1))
    bare = based.assign(token_text=based["base_text"])
    figure.add_trace(token_boxes(anchor, "anchor", ANCHOR, 1.0, legend=legend), **place)
    figure.add_trace(token_boxes(bare, "base logits alone", RULE, 2.0, legend=False), **place)
    if phase == "proposed":
        drafts = drafts[drafts["base_text"].isna()]
    verified = phase == "verified"
    if not verified:
        drafts = drafts.assign(outcome="drafted")
    shown = SHADES if verified else SHADES | {"drafted": ANCHOR}
    for outcome, shade in shown.items():
        lane, part = (0.0, rows) if outcome in ADDED else (1.0, drafts)
        part = part[part["outcome"] == outcome] if verified or lane else part.head(0)
        figure.add_trace(token_boxes(part, outcome, shade, lane, legend=legend), **place)
    wedges = based[based["corrected"] & (phase != "proposed")]
    figure.add_scatter(
        x=or_gap(wedges["position"]),
        y=or_gap(wedges["corrected"] * 1.5),
        mode="markers",
        marker={"symbol": "triangle-down", "size": 11, "color": CORRECTED},
        hovertemplate="slot %{x}: the head changed it<extra></extra>",
        name="changed by the head",
        showlegend=legend,
        **place,
    )
    figure.add_trace(strike_lines(drafts[drafts["outcome"] == "rejected"], [1.0], 0.42), **place)


def _confidences(
    figure: go.Figure, rows: pd.DataFrame, row: int, phase: str, *, legend: bool
) -> None:
    """Bars of confidence, and a tick where the chance of being kept turned out to lie."""
    place = {"row": row, "col": 1}
    order = list(PHASES)
    said = rows.dropna(subset="confidence")
    said = said if order.index(phase) >= order.index("confidence") else said.head(0)
    figure.add_bar(
        x=or_gap(said["position"]),
        y=or_gap(said["confidence"]),
        width=0.7,
        marker={"color": translucent(CORRECTED, 0.45), "line": {"width": 0}},
        hovertemplate="slot %{x}: says %{y:.0%}<extra>confidence</extra>",
        name="confidence",
        showlegend=legend,
        **place,
    )
    known = rows.dropna(subset="expected")
    known = known if phase == "verified" else known.head(0)
    figure.add_scatter(
        x=or_gap(known["position"]),
        y=or_gap(known["expected"]),
        mode="markers",
        marker={"symbol": "line-ew-open", "size": 26, "color": INK, "line": {"width": 2}},
        hovertemplate="slot %{x}: kept with %{y:.0%}<extra>chance</extra>",
        name="chance of being kept",
        showlegend=False,
        **place,
    )


def _announce(figure: go.Figure, text: str, row: int) -> None:
    """What a drafter does, above its stage."""
    figure.add_annotation(
        text=text,
        x=0,
        xref="x domain",
        xanchor="left",
        xshift=-134,
        y=1,
        yref="y domain",
        yanchor="bottom",
        yshift=4,
        showarrow=False,
        font={"size": 13, "color": INK},
        row=row,
        col=1,
    )


def _headline(name: str, rows: pd.DataFrame, round: int, phase: str) -> str:
    """A drafter, what its round brought, and the end of the text before it."""
    now = rows[rows["round"] == round]
    if now.empty:
        return f"<b>{name}</b>: done after {rows['round'].max() + 1} rounds"
    gained = ""
    if phase == "verified":
        drafts = int(now["outcome"].isin(DRAFTS[:3]).sum())
        gained = f", {int(now['accepted'].sum())} of {drafts} kept"
    before = rows[(rows["round"] < round) & rows["emitted"]]
    text = rows["prompt"].iloc[0] + rows["anchor_text"].iloc[0] + "".join(before["token_text"])
    text = ("…" if len(text) > CONTEXT else "") + text[-CONTEXT:]
    return (
        f"<b>{name}</b>{gained}   <span style='color:{SOFT_INK}'>after: "
        f"{visible_token(text)}</span>"
    )
