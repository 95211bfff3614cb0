"""Where a name is known: accuracy of a probe and of patches, layer by layer."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.panels import NAMES, Line, memory_blocks, panel_title
from engram_lab.figures.style import (
    COLOURS,
    RULE,
    SOFT_INK,
    Room,
    colour,
    require,
    titled,
    translucent,
)

MADE_BY = "probes.entity_sets.trained_entities"
HEIGHT = 320  # of a panel, in pixels
PANELS = {
    ("book", "probe"): "probe, names of the book",
    ("nobody", "probe"): "probe, names of nobody",
    ("book", "patch"): "patched into a prompt",
}


def entity_depth(
    frame: pd.DataFrame,
    *,
    by: str = "model",
    memory_layers: Sequence[int] = (),
    verdict: Any = None,
) -> go.Figure:
    """How often the state of a name's last word tells whose name it is, layer by layer.

    Solid lines are the stream, dashed ones the stream without what memories have added; diamonds
    hold the row just read, before any attention has seen it. The dotted line is what the last word
    alone can tell.

    Args:
        frame: rows of `probes.entity_sets.trained_entities`, or of `probes.entity.entity_frame`
            and `probes.entity_patch.patch_accuracy`; with a column seed where there are several.
        by: column with a colour per value; left out where the frame lacks it.
        memory_layers: blocks that read a memory; shaded.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing.
    """
    require(frame, "layer", "probe", "accuracy", "low", "high", made_by=MADE_BY)
    panels = _panels(frame)
    figure = make_subplots(rows=1, cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03)
    drawn: set[str] = set()
    for col, (title, part) in enumerate(panels, start=1):
        for line, rows in _lines(part, by):
            if rows["probe"].iloc[0] == "with_row":
                _diamonds(figure, rows, line, col=col)
            else:
                _curve(figure, rows, line, col=col, shown=line.name not in drawn)
                drawn.add(line.name)
        _alone(figure, part, col=col)
        memory_blocks(figure, memory_layers, col=col)
        panel_title(figure, title, row=1, col=col, above=4)
    last = int(frame["layer"].max())
    figure.update_xaxes(range=[-0.4, last + 0.4], dtick=1 + last // 16, title_text="layer")
    figure.update_yaxes(range=[-0.02, 1.02], tickformat=".0%")
    figure.update_yaxes(title_text="told right", row=1, col=1)
    legend = {"orientation": "h", "x": 0, "y": 1 + 26 / HEIGHT, "yanchor": "bottom"}
    figure.update_layout(legend=legend, showlegend=True)
    return titled(
        figure,
        title="Where a name is known",
        subtitle=sentences(verdict),
        note=_note(frame, memory_layers),
        room=Room(height=HEIGHT, head=60),
    )


def decoded_table(frame: pd.DataFrame, *, published: pd.DataFrame | None = None) -> go.Figure:
    """What a neutral prompt says with a state of each layer, beside the published example.

    Args:
        frame: columns layer, said, and perhaps asked (what the right answer is) and a further one,
            model, which gives each of its values a column.
        published: the table `engram_table3_entity_depth`.

    Raises:
        ValueError: if columns are missing.
    """
    require(frame, "layer", "said", made_by=MADE_BY)
    rows = frame if "model" in frame else frame.assign(model="said")
    rows = rows.dropna(subset="said").drop_duplicates(["layer", "model"])
    names = list(dict.fromkeys(rows["model"]))
    wide = rows.pivot(index="layer", columns="model", values="said")[names].fillna("")
    titles = ["blocks passed", *(NAMES.get(name, name) for name in names)]
    tables = [(titles, [wide.index.tolist(), *(wide[name].tolist() for name in names)])]
    if published is not None:
        require(published, "layer", "state_of_the_last_token", made_by="load_published")
        content = [published[name].tolist() for name in ("layer", "state_of_the_last_token")]
        tables.append((["layer", "published example"], content))
    figure = make_subplots(
        rows=1,
        cols=len(tables),
        specs=[[{"type": "table"}] * len(tables)],
        column_widths=[0.5, 0.5][: len(tables)] if len(tables) > 1 else None,
        horizontal_spacing=0.03,
    )
    for col, (header, cells) in enumerate(tables, start=1):
        figure.add_trace(_table(header, cells), row=1, col=col)
    asked = f"Asked: {rows['asked'].iloc[0]}. " if "asked" in rows else ""
    source = "Right: arXiv:2601.07372, table 3, from PatchScopes." if published is not None else ""
    return titled(
        figure,
        title="What a state says in a neutral prompt",
        note=f"{asked}{source}",
        room=Room(height=60 + 30 * max(len(cells[0]) for _, cells in tables), head=6, axis=6),
    )


def _table(header: Sequence[str], cells: list[list]) -> go.Table:
    widths = [1] + [1.6 if len(cells) > 2 else 4] * (len(cells) - 1)
    return go.Table(
        columnwidth=widths,
        header={
            "values": [f"<b>{text}</b>" for text in header],
            "align": "left",
            "fill": {"color": RULE},
        },
        cells={
            "values": cells,
            "align": "left",
            "height": 26,
            "fill": {"color": "white"},
            "line": {"color": RULE},
        },
    )


def _panels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    names = frame["names"] if "names" in frame else pd.Series("book", index=frame.index)
    kind = frame["probe"].where(frame["probe"] == "patch", "probe")
    parts = [
        (title, frame[(names == whose) & (kind == probe)])
        for (whose, probe), title in PANELS.items()
    ]
    return [(title, part) for title, part in parts if len(part)]


def _lines(part: pd.DataFrame, by: str) -> list[tuple[Line, pd.DataFrame]]:
    rows = part if by in part else part.assign(**{by: "model"})
    lines = []
    for (value, probe), run in rows.groupby([by, "probe"], sort=False):
        line = Line(
            name=NAMES.get(value, str(value)),
            colour=COLOURS["engram"] if by not in part else colour(str(value)),
            dash="dash" if probe == "without_rows" else "solid",
        )
        lines.append((line, run))
    return lines


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, and the range over seeds; of one seed the interval over entities."""
    by_layer = rows.groupby("layer")
    found = by_layer["accuracy"].agg(middle="mean", low="min", high="max", seeds="count")
    single = found["seeds"] == 1
    found.loc[single, "low"] = by_layer["low"].first()[single]
    found.loc[single, "high"] = by_layer["high"].first()[single]
    return found.reset_index()


def _curve(figure: go.Figure, rows: pd.DataFrame, line: Line, *, col: int, shown: bool) -> None:
    """A line of means with its band."""
    summary = _summary(rows)
    solid = line.dash == "solid"
    place = {"row": 1, "col": col, "legendgroup": line.name}
    figure.add_scatter(
        x=[*summary["layer"], *summary["layer"][::-1]],
        y=[*summary["high"], *summary["low"][::-1]],
        fill="toself",
        fillcolor=translucent(line.colour, 0.15 if solid else 0.07),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        name=f"{line.name}, band",
        showlegend=False,
        **place,
    )
    what = "" if solid else ", without its rows"
    figure.add_scatter(
        x=summary["layer"],
        y=summary["middle"],
        mode="lines+markers" if solid else "lines",
        line={"color": line.colour, "width": 2 if solid else 1.5, "dash": line.dash},
        marker={"size": 6, "line": {"color": "white", "width": 1}},
        customdata=summary[["low", "high"]],
        hovertemplate=(
            "layer %{x}: %{y:.1%} (%{customdata[0]:.1%} to %{customdata[1]:.1%})"
            f"<extra>{line.name}{what}</extra>"
        ),
        name=f"{line.name}{what}",
        showlegend=shown and solid,
        **place,
    )


def _diamonds(figure: go.Figure, rows: pd.DataFrame, line: Line, *, col: int) -> None:
    """The state inside a memory block, between its two layers."""
    summary = _summary(rows)
    figure.add_scatter(
        x=summary["layer"] + 0.5,
        y=summary["middle"],
        mode="markers",
        marker={
            "symbol": "diamond",
            "size": 9,
            "color": "white",
            "line": {"color": line.colour, "width": 2},
        },
        hovertemplate=f"row just read: %{{y:.1%}}<extra>{line.name}</extra>",
        name=f"{line.name}, row just read",
        legendgroup=line.name,
        showlegend=False,
        row=1,
        col=col,
    )


def _alone(figure: go.Figure, part: pd.DataFrame, *, col: int) -> None:
    """What the last word alone tells, or of patches what the prompt says without one."""
    patch = part["probe"].iloc[0] == "patch"
    column = "control_accuracy" if patch else "last_token_accuracy"
    if column in part and part[column].notna().any():
        line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
        figure.add_hline(y=float(part[column].mean()), line=line, layer="below", row=1, col=col)


def _note(frame: pd.DataFrame, memory_layers: Sequence[int]) -> str:
    several = "seed" in frame and frame["seed"].nunique() > 1
    text = (
        "State of the last word of a name, before each block and after the last. Lines: "
        + ("mean of seeds, bands: their range" if several else "bands: 95 % over entities")
        + "; dashed: without what the memory added; diamond: the row just read, before any "
        "attention. Dotted: what the last word alone can tell, or the prompt without a patch."
    )
    probes = frame[frame["probe"] != "patch"]
    if "control_accuracy" in probes and len(probes):
        text += f" Probes on random labels: at most {probes['control_accuracy'].max():.1%}."
    if "known_accuracy" in frame and frame["known_accuracy"].notna().any():
        text += f" Facts told without a patch, name and all: {frame['known_accuracy'].mean():.0%}."
    if memory_layers:
        text += " Shaded: the step over a block that reads its memory."
    known = f"{provenance(frame)}. {held_equal(frame)}".strip(". ")
    return f"{known}.\n{text}" if known else text
