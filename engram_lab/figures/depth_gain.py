"""How many layers deeper early layers stand for, by what is compared, seed by seed."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.cka import PUBLISHED_BLOCKS, compared
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, SOFT_INK, Room, require, symbol, titled

MADE_BY = "probes.trained_depth.pair_gain"
ROW = 58  # pixels of a comparison
APART = 0.16  # from seed to seed, in rows


def depth_gain(
    frame: pd.DataFrame, *, published: pd.DataFrame | None = None, verdict: Any = None
) -> go.Figure:
    """Depth gain over pure experts, a row per comparison; right without the first directions.

    Args:
        frame: rows of `probes.trained_depth.pair_gain` with columns comparison and seed, of one
            estimator.
        published: the table `engram_fig4_alignment`; its one layer, by share of depth.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing, or there are several estimators.
    """
    columns = ("comparison", "seed", "estimator", "removed", "gain", "low", "high", "layers")
    require(frame, *columns, made_by=MADE_BY)
    if frame["estimator"].nunique() > 1:
        raise ValueError(
            "depth_gain shows one estimator; the frame has "
            f"{', '.join(frame['estimator'].unique())}. Choose one: "
            'frame[frame["estimator"] == "debiased"]'
        )
    names = list(dict.fromkeys(frame["comparison"]))
    parts = list(frame.groupby("removed"))
    figure = make_subplots(rows=1, cols=len(parts), shared_yaxes=True, horizontal_spacing=0.04)
    for col, (removed, part) in enumerate(parts, start=1):
        for place, name in enumerate(names):
            _seeds(figure, part[part["comparison"] == name], name, place, col=col)
        if published is not None and "engram" in names and col == 1:
            _published(figure, published, part, names.index("engram"))
        line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
        figure.add_vline(x=0, line=line, layer="below", row=1, col=col)
        title = f"first {removed} directions removed" if removed else "all directions"
        panel_title(figure, title, row=1, col=col, above=4)
    labels = [compared(str(name))[0] for name in names]
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.65], tickvals=list(range(len(names))), showgrid=False, ticks=""
    )
    figure.update_yaxes(ticktext=labels, row=1, col=1)
    figure.update_xaxes(title_text="depth gain (layers)")
    figure.update_layout(showlegend=False)
    return titled(
        figure,
        title="How much deeper early layers stand for",
        subtitle=sentences(verdict),
        note=_note(frame, published),
        room=Room(height=ROW * len(names), left=230, head=26),
    )


def _seeds(figure: go.Figure, rows: pd.DataFrame, name: str, place: int, *, col: int) -> None:
    """A point with its interval for every seed, and their mean."""
    rows = rows.sort_values("seed")
    label, shade = compared(str(name))
    middle = (len(rows) - 1) / 2
    figure.add_scatter(
        x=rows["gain"],
        y=[place + APART * (number - middle) for number in range(len(rows))],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": rows["high"] - rows["gain"],
            "arrayminus": rows["gain"] - rows["low"],
            "thickness": 1.2,
            "width": 3,
        },
        mode="markers",
        marker={"size": 7, "color": shade},
        customdata=rows[["seed", "low", "high"]],
        hovertemplate=(
            "seed %{customdata[0]}: %{x:+.2f} layers (%{customdata[1]:+.2f} to "
            f"%{{customdata[2]:+.2f}})<extra>{label}</extra>"
        ),
        name=label,
        row=1,
        col=col,
    )
    mean = rows["gain"].mean()
    figure.add_scatter(
        x=[mean, mean],
        y=[place - 0.34, place + 0.34],
        mode="lines",
        line={"color": shade, "width": 2},
        hovertemplate=f"mean of seeds {mean:+.2f}<extra>{label}</extra>",
        name=f"{label}, mean",
        row=1,
        col=col,
    )


def _published(figure: go.Figure, published: pd.DataFrame, part: pd.DataFrame, place: int) -> None:
    columns = ("engram_layer", "soft_alignment_index", "kind")
    require(published, *columns, made_by="load_published('engram_fig4_alignment'), which")
    own = part[part["comparison"] == "engram"]
    share = 2 * own["layers"].max() / PUBLISHED_BLOCKS
    shade = COLOURS["published"]
    figure.add_scatter(
        x=(published["soft_alignment_index"] - published["engram_layer"]) * share,
        y=[place - 0.45] * len(published),
        mode="markers",
        marker={
            "symbol": [symbol(kind, "diamond") for kind in published["kind"]],
            "size": 11,
            "color": shade,
            "line": {"color": shade, "width": 2},
        },
        customdata=published[list(columns)],
        hovertemplate=(
            f"published: layer %{{customdata[0]}} of {PUBLISHED_BLOCKS} stands for "
            "%{customdata[1]} (%{customdata[2]})<extra></extra>"
        ),
        name="published",
        row=1,
        col=1,
    )


def _note(frame: pd.DataFrame, published: pd.DataFrame | None) -> str:
    text = (
        "Mean over the first half of the layers of: the plain layer that a layer stands for, minus "
        "its own depth. Points: seeds, each with the interval over halves of the samples where it "
        "is known; bar: their mean. Compared with pure experts of the same seed; the null compares "
        "them with those of another."
    )
    if "samples" in frame:
        text += f" {int(frame['samples'].max()):,} last words of names."
    if published is not None:
        kinds = ", ".join(published["kind"].unique())
        text += (
            f" Diamond: the one published layer (arXiv:2601.07372, figure 4; {kinds}), scaled to "
            "this depth; no mean over layers."
        )
    return text
