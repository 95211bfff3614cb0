"""When memory speaks: tokens coloured by their gate, as a text or as a map."""

import html
import unicodedata
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.style import (
    AMOUNTS,
    DIVERGING,
    GATE_SCALE,
    INK,
    MONO,
    Room,
    require,
    titled,
)

MADE_BY = "probes.gates.gate_frame"
INDEX = ("layer", "branch", "position", "token")
LINE_CHARACTERS = 92  # what fits beside label and colour bar at 13 pixels
LINE_PIXELS = 34
MEASURES = ("gate", "value_norm")
TICKS = 70  # more tokens than this and only some are named on the axis


def gate_strip(frame: pd.DataFrame, *, measure: str = "gate") -> go.Figure:
    """A text as it reads, every token coloured by its gate; one strip per memory layer and branch.

    Args:
        frame: rows of `probes.gates.gate_frame`.
        measure: "gate" (white 0, red 1), or "value_norm", the length of what memory writes.

    Raises:
        ValueError: if columns are missing or `measure` is another column.
    """
    _check(frame, measure)
    figure = go.Figure()
    labels, line = {}, 0.0
    for name, strip in strips(frame):
        places = text_lines(list(strip["token"]), LINE_CHARACTERS)
        labels[line] = name
        figure.add_trace(_tokens(strip, places, line, measure, name))
        line += places["line"].max() + 1.5
    figure.update_xaxes(visible=False, range=[-0.3, LINE_CHARACTERS + 0.3])
    figure.update_yaxes(
        range=[line - 0.9, -0.6],
        tickvals=list(labels),
        ticktext=list(labels.values()),
        showgrid=False,
        showline=False,
        ticks="",
    )
    figure.update_layout(coloraxis=_colours(frame, measure, GATE_SCALE), barmode="overlay")
    return titled(
        figure,
        title="When memory speaks",
        note=_note(frame, measure),
        room=_room(frame, height=int(line * LINE_PIXELS), axis=16),
    )


def gate_heatmap(frame: pd.DataFrame, *, measure: str = "gate") -> go.Figure:
    """Gates as a map: memory layers and branches down, positions across.

    Args:
        frame: rows of `probes.gates.gate_frame`.
        measure: "gate" (blue closed, white one half, red open), or "value_norm".

    Raises:
        ValueError: if columns are missing or `measure` is another column.
    """
    _check(frame, measure)
    named = strips(frame)
    first = named[0][1]
    every = -(-len(first) // TICKS)
    shown = first.iloc[::every]
    figure = go.Figure(
        go.Heatmap(
            x=first["position"],
            y=[name for name, _ in named],
            z=np.array([strip[measure] for _, strip in named]),
            customdata=np.array([strip["token"] for _, strip in named]),
            coloraxis="coloraxis",
            xgap=1,
            ygap=2,
            hovertemplate=(
                "%{y}, position %{x}<br>token %{customdata}<br>"
                f"{_measure_title(measure)} %{{z:.3f}}<extra></extra>"
            ),
            name=measure,
        )
    )
    figure.update_xaxes(
        title_text="token" if every == 1 else f"token (one in {every} named)",
        tickvals=shown["position"],
        ticktext=[visible_token(token) for token in shown["token"]],
        tickangle=-60,
        tickfont={"family": MONO, "size": 11},
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    figure.update_layout(coloraxis=_colours(frame, measure, DIVERGING))
    return titled(
        figure,
        title="When memory speaks, layer by layer",
        note=_note(frame, measure),
        room=_room(frame, height=30 + 34 * len(named), axis=92),
    )


def strips(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Rows of each memory layer and branch, in order of position, with a label."""
    several = frame["branch"].nunique() > 1
    return [
        (
            f"block {layer}, branch {branch}" if several else f"block {layer}",
            rows.sort_values("position"),
        )
        for (layer, branch), rows in frame.groupby(["layer", "branch"])
    ]


def text_lines(tokens: Sequence[str], characters: int) -> pd.DataFrame:
    """Where each token stands when a text is set in lines of so many characters.

    Returns:
        Columns line, start and width (in characters; wide scripts count double), one row a token.
    """
    line, start, places = 0, 0.0, []
    for token in tokens:
        width = min(sum(map(_width, visible_token(token))) + 0.7, characters)
        if start + width > characters:
            line, start = line + 1, 0.0
        places.append((line, start, width))
        start += width
    return pd.DataFrame(places, columns=["line", "start", "width"])


def visible_token(token: str) -> str:
    """A token as plotly shows it: spaces kept, line ends seen, markup escaped, never empty."""
    shown = html.escape(token, quote=False).replace(" ", "\u00a0").replace("\n", "⏎")
    return shown or "\u00a0"


def _width(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _tokens(
    strip: pd.DataFrame, places: pd.DataFrame, line: float, measure: str, name: str
) -> go.Bar:
    values = strip[measure].to_numpy(float)
    dark = values > 0.72 * (1.0 if measure == "gate" else max(values.max(), 1e-9))
    return go.Bar(
        orientation="h",
        base=places["start"],
        x=places["width"],
        y=places["line"] + line,
        width=0.86,
        text=[visible_token(token) for token in strip["token"]],
        textposition="inside",
        insidetextanchor="middle",
        constraintext="none",
        textangle=0,
        textfont={
            "family": MONO,
            "size": 13,
            "color": ["white" if is_dark else INK for is_dark in dark],
        },
        marker={
            "color": values,
            "coloraxis": "coloraxis",
            "line": {"color": "#D5D9DD", "width": 0.5},
        },
        customdata=strip[["position", "gate", "value_norm"]],
        hovertemplate=(
            "<b>%{text}</b> at position %{customdata[0]}<br>gate %{customdata[1]:.3f}<br>"
            f"gate × |value| %{{customdata[2]:.3f}}<extra>{name}</extra>"
        ),
        name=name,
        showlegend=False,
    )


def _room(frame: pd.DataFrame, *, height: int, axis: int) -> Room:
    left = 120 if frame["branch"].nunique() > 1 else 76
    return Room(height=max(height, 90), left=left, head=10, axis=axis)


def _check(frame: pd.DataFrame, measure: str) -> None:
    if measure not in MEASURES:
        raise ValueError(f"measure must be gate or value_norm; got {measure!r}")
    require(frame, *INDEX, "gate", "value_norm", made_by=MADE_BY)


def _measure_title(measure: str) -> str:
    return "gate" if measure == "gate" else "gate × |value|"


def _colours(
    frame: pd.DataFrame, measure: str, scale: Sequence[tuple[float, str]]
) -> dict[str, object]:
    """Colour axis: gates from 0 to 1 whatever the text, lengths from 0 to the longest."""
    title = {"text": _measure_title(measure), "side": "right", "font": {"size": 12}}
    bar = {"title": title, "lenmode": "pixels", "len": 120, "y": 1, "yanchor": "top"}
    if measure == "gate":
        return {"cmin": 0, "cmax": 1, "colorscale": scale, "colorbar": bar}
    steps = [(i / len(AMOUNTS), shade) for i, shade in enumerate(("#FFFFFF", *AMOUNTS))]
    longest = max(float(frame["value_norm"].max()), 1e-9)
    return {"cmin": 0, "cmax": longest, "colorscale": steps, "colorbar": bar}


def _note(frame: pd.DataFrame, measure: str) -> str:
    layers, branches = frame["layer"].nunique(), frame["branch"].nunique()
    text = (
        f"{frame['position'].nunique()} tokens, {layers} memory layer{'s' if layers > 1 else ''}, "
        f"{branches} branch{'es' if branches > 1 else ''}, all of them shown. "
    )
    if measure == "gate":
        return text + (
            "Gate: 0 closed, 1 open, one half says nothing either way. What is written is gate × "
            "value; hover shows its length."
        )
    return text + "Length of what memory writes into the residual stream, before its convolution."
