"""The look of every figure, and how a figure becomes a file."""

import base64
import json
import math
import os
import re
import sys
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from engram_lab.paths import figures_dir

INK, SOFT_INK, RULE = "#22262B", "#5A6169", "#E6E9EC"
FONT = "Helvetica, Arial, 'Liberation Sans', 'Noto Sans CJK SC', sans-serif"
MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Noto Sans Mono CJK SC', monospace"
SIGNIFICANT = 6
SUBTITLE_WIDTH, NOTE_WIDTH = 6.6, 5.6  # pixels that a character takes on average

# The palette of Okabe and Ito, which colour-blind eyes can tell apart; one colour for one thing.
COLOURS = {
    "experts": "#5A6169",
    "engram": "#0072B2",
    "neighbour": "#E69F00",
    "wide_ffn": "#009E73",
    "published": "#9AA1A8",
    "static": "#D55E00",
    "computed": "#6A3D9A",
    "filler": "#8A8F94",
    "supported": "#0072B2",
    "contradicted": "#D55E00",
    "undecided": "#8A8F94",
    "novels": "#CC6677",  # the parts of the text bundle, after Tol's muted palette
    "bible": "#882255",
    "countries": "#117733",
    "glosses": "#999933",
    "python_manual": "#88CCEE",
    "python_code": "#332288",
    "poetry_zh": "#AA4499",
    "office_zh": "#44AA99",
}
SPARE = ("#CC79A7", "#56B4E9", "#B8A300", "#882255", "#117733")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
DASHES = ("solid", "dash", "dot", "dashdot")
AMOUNTS = ("#9CC9E3", "#3E8FC4", "#0B559F", "#08306B")  # light to dark: little to much
GATE_SCALE = ((0.0, "#FFFFFF"), (0.5, "#F4A582"), (1.0, "#B2182B"))
DIVERGING = (
    (0.0, "#2166AC"),
    (0.25, "#92C5DE"),
    (0.5, "#F7F7F7"),
    (0.75, "#F4A582"),
    (1.0, "#B2182B"),
)
SOLID_KINDS = ("exact", "digitised", "derived")  # grades of published values that are drawn filled

_AXIS = {
    "showline": True,
    "linecolor": SOFT_INK,
    "linewidth": 1,
    "ticks": "outside",
    "tickcolor": SOFT_INK,
    "ticklen": 4,
    "zeroline": False,
    "title": {"standoff": 10, "font": {"size": 13}},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": [COLOURS[name] for name in ("engram", "static", "wide_ffn", "neighbour")],
        "xaxis": _AXIS | {"showgrid": False},
        "yaxis": _AXIS | {"showgrid": True, "gridcolor": RULE},
        "legend": {"font": {"size": 12}, "bgcolor": "rgba(255,255,255,0)", "itemsizing": "trace"},
        "hoverlabel": {"bgcolor": "white", "font": {"family": FONT, "size": 12, "color": INK}},
        "annotationdefaults": {"font": {"size": 12, "color": INK}, "showarrow": False},
        "coloraxis": {"colorbar": {"outlinewidth": 0, "thickness": 12, "ticks": "outside"}},
    }
)


def colour(name: str) -> str:
    """Colour of a model, arm or token class; the same in every figure, whatever else is drawn."""
    return COLOURS.get(name) or SPARE[sum(name.encode()) % len(SPARE)]


def symbol(kind: str, filled: str) -> str:
    """Marker of a published value: hollow unless its grade is exact, digitised or derived."""
    return filled if kind in SOLID_KINDS else f"{filled}-open"


def translucent(colour: str, opacity: float) -> str:
    """A `#rrggbb` colour with an opacity, as plotly's fills want it."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def require(frame: pd.DataFrame, *columns: str, made_by: str) -> None:
    """Refuse a frame that lacks columns or rows.

    Args:
        columns: names that must be there.
        made_by: the function that makes such a frame, for the message.

    Raises:
        ValueError: naming the figure function, what it needs and what is missing.
    """
    missing = [name for name in columns if name not in frame]
    needs = f"{_figure_function()} needs columns {', '.join(columns)}"
    if missing:
        raise ValueError(f"{needs}; missing: {', '.join(missing)}. {made_by}() makes such a frame.")
    if frame.empty:
        raise ValueError(f"{needs} and at least one row; the frame is empty")


@dataclass(frozen=True, kw_only=True)
class Room:
    """Sizes of a figure, in pixels.

    Attributes:
        width: of the whole figure.
        height: of its panels; title, axis texts and footer come on top.
        left: for what stands left of the panels.
        right: for what stands right of them.
        head: for legends and panel titles above the panels.
        axis: for tick texts and title of the lower axis.
    """

    width: int = 980
    height: int = 400
    left: int = 72
    right: int = 24
    head: int = 46
    axis: int = 56


def titled(
    figure: go.Figure,
    *,
    title: str,
    subtitle: str = "",
    note: str = "",
    room: Room = Room(),  # noqa: B008  (frozen)
) -> go.Figure:
    """The figure with title above and footer below, with room made for both.

    Args:
        title: what is seen, in a few words.
        subtitle: a sentence, for instance a verdict; wrapped.
        note: what the reader must know to believe it; wrapped, one paragraph a line.
        room: sizes.
    """
    above = _wrapped(subtitle, room.width / SUBTITLE_WIDTH)
    below = _wrapped(note, room.width / NOTE_WIDTH)
    top = 46 + 18 * len(above) + room.head
    bottom = room.axis + 14 + 15 * len(below)
    head, size, pad = f"<b>{title}</b>", 17, 16
    if above:  # lines are spaced by the font of the whole, and several start higher than one
        lines = "<br>".join(above)
        head = f"<span style='font-size:17px'>{head}</span>"
        head += f"<br><span style='color:{SOFT_INK}'>{lines}</span>"
        size, pad = 13, 28
    figure.update_layout(
        template=TEMPLATE,
        width=room.width,
        height=room.height + top + bottom,
        margin={"l": room.left, "r": room.right, "t": top, "b": bottom},
        title={
            "text": head,
            "font": {"size": size},
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"l": 14, "t": pad},
        },
    )
    if below:
        figure.add_annotation(text="<br>".join(below), **_footer(room))
    return figure


def save(figure: go.Figure, name: str, *, png: bool = True) -> Path:
    """Write `figures/<name>.json`, the figure under review, and a PNG where a browser is found.

    The JSON is the same for the same figure: keys sorted, floats of six digits, no random names.
    `plotly.io.read_json` reads it.

    Args:
        name: lower-case letters, digits and underscores.
        png: whether to try for the picture.

    Returns:
        Path of the JSON.

    Raises:
        ValueError: if the name is no file stem.
    """
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ValueError(
            f"a figure's name must be lower-case letters, digits and underscores; got {name!r}"
        )
    path = figures_dir() / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(
        plain(figure.to_plotly_json()),
        sort_keys=True,
        indent=1,
        ensure_ascii=False,
        allow_nan=False,
    )
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(content + "\n", encoding="utf-8")
    os.replace(temporary, path)
    if png:
        try:
            figure.write_image(path.with_suffix(".png"), scale=2)
        except Exception as error:  # many kinds: no kaleido, no browser, no library of the browser
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            warnings.warn(f"no PNG beside {path.name}: {reason}", stacklevel=2)
    return path


def plain(value: Any) -> Any:
    """A figure's parts as JSON holds them: lists, dicts, floats of six digits; NaN becomes None."""
    if isinstance(value, dict) and "bdata" in value:
        return plain(_decoded(value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key != "uid"}
    if isinstance(value, (list, tuple, np.ndarray, pd.Series, pd.Index)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT}g}") if math.isfinite(value) else None
    return value


def _footer(room: Room) -> dict[str, Any]:
    return {
        "name": "footer",
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": 0,
        "xanchor": "left",
        "yanchor": "top",
        "xshift": 14 - room.left,
        "yshift": -room.axis,
        "align": "left",
        "showarrow": False,
        "font": {"size": 11, "color": SOFT_INK},
    }


def _wrapped(text: str, characters: float) -> list[str]:
    return [line for part in text.splitlines() for line in textwrap.wrap(part, int(characters))]


def _decoded(packed: dict[str, str]) -> np.ndarray:
    """An array that plotly has packed as base64."""
    flat = np.frombuffer(base64.b64decode(packed["bdata"]), dtype=packed["dtype"])
    shape = packed.get("shape")
    return flat.reshape([int(size) for size in shape.split(",")]) if shape else flat


def _figure_function() -> str:
    """Name of the public function of this package, outside this file, that is being called."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_name
        if module.startswith("engram_lab.") and module != __name__ and name[0] != "_":
            return name
        frame = frame.f_back
    return "this figure"
