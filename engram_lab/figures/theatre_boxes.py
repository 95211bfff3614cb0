"""What figures of drafted rounds share: tokens as boxes, strikes through them, colours, notes."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.gates import visible_token
from engram_lab.figures.style import COLOURS, INK, MONO, RULE, SOFT_INK, translucent

MADE_BY = "probes.theatre.theatre_frame"
NEEDED = (
    *("drafter", "round", "position", "outcome", "token_text", "anchor_text", "emitted"),
    *("base_text", "corrected", "confidence", "expected", "temperature", "prompt"),
)
"""Columns that these figures read."""
SHADES = {
    "accepted": COLOURS["engram"],
    "rejected": COLOURS["contradicted"],
    "discarded": COLOURS["undecided"],
    "not verified": COLOURS["undecided"],
    "correction": COLOURS["neighbour"],
    "bonus": COLOURS["wide_ffn"],
}
"""Colour of a token by what became of it."""
CORRECTED, ANCHOR = COLOURS["computed"], COLOURS["experts"]
DRAFTS = ("accepted", "rejected", "discarded", "not verified")
ADDED = ("correction", "bonus")
HALF = 0.39  # of a box's height, in lanes
LONGEST = 10  # characters of a token that a box shows


def token_boxes(
    rows: pd.DataFrame, name: str, shade: str, lane: float, *, legend: bool, half: float = HALF
) -> go.Bar:
    """Tokens as boxes; a trace without tokens still has its place in the legend.

    Args:
        rows: columns position and token_text.
        name: of the trace, which says what became of the tokens.
        shade: `#rrggbb`.
        lane: height of the boxes' middle.
        legend: whether the legend names them.
        half: half of a box's height.
    """
    places = or_gap(rows["position"])
    faint = name in ("discarded", "not verified")
    tokens = [_short(text) for text in rows["token_text"]]
    return go.Bar(
        x=places,
        y=[2 * half] * len(places),
        base=[lane - half] * len(places),
        width=0.92,
        marker={
            "color": shade if shade == RULE else translucent(shade, 0.08 if faint else 0.3),
            "line": {"color": shade, "width": 1.2},
            "pattern": {"shape": "/" if name == "not verified" else ""},
        },
        text=tokens or [""],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"family": MONO, "size": 12, "color": SOFT_INK if faint else INK},
        customdata=[visible_token(text) for text in rows["token_text"]] or [""],
        hovertemplate=f"slot %{{x}}: %{{customdata}}<extra>{name}</extra>",
        name=name,
        legendgroup=name,
        showlegend=legend,
    )


def strike_lines(rows: pd.DataFrame, lanes: Sequence[float], half: float) -> go.Scatter:
    """Lines through rejected drafts.

    Args:
        rows: column position.
        lanes: heights of the lines; one for all, or one each.
        half: half of a line's length, in slots.
    """
    lanes = list(lanes) * (len(rows) if len(lanes) == 1 else 1)
    xs: list[float | None] = []
    ys: list[float | None] = []
    for position, lane in zip(rows["position"], lanes, strict=True):
        xs += [position - half, position + half, None]
        ys += [lane, lane, None]
    return go.Scatter(
        x=xs or [None],
        y=ys or [None],
        mode="lines",
        line={"color": SHADES["rejected"], "width": 2.5},
        hoverinfo="skip",
        name="struck out",
        showlegend=False,
    )


def theatre_note(frame: pd.DataFrame) -> str:
    """Prompt, temperature, and how to read the boxes."""
    prompt, warmth = str(frame["prompt"].iloc[0]), float(frame["temperature"].iloc[0])
    return (
        f"Prompt: {visible_token(prompt[-70:])} · temperature {warmth:g}. The anchor is the newest "
        "token before a round. Struck out: rejected; what stands behind it is discarded."
    )


def or_gap(values: pd.Series, empty: object = None) -> list:
    """Values of a trace; one gap where there are none, so that the trace stays."""
    return list(values) or [empty]


def _short(text: str) -> str:
    """A token as it fits into a box; spaces alone show as marks, or the box would look empty."""
    text = text if text.strip(" ") else "␣" * len(text)
    return visible_token(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")
