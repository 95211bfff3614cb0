"""A drafter beside a target that trains on: accepted length over the target's steps, by policy."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, SPARE, Room, require, titled, translucent

MADE_BY = "experiments.catalog.DSPARK_TRAINING"
HEIGHT = 430
POLICIES = {
    "frozen": ("left as it was", COLOURS["experts"], "square"),
    "refreshed": ("refreshed now and then", COLOURS["neighbour"], "diamond"),
    "beside": ("trained beside the target", COLOURS["engram"], "circle"),
}
"""Name, colour and marker of every policy, in the order in which they are listed."""
TEXTS = {
    "new": "prompts from what the target trains on now",
    "old": "prompts from what it was trained on before",
}
LENGTHS = {
    "accepted_length": "with known tokens",
    "sampled_length": "decoded at temperature 1",
}
"""Columns that can be drawn, and how they were measured."""


def drift_curves(
    frame: pd.DataFrame, *, length: str = "accepted_length", verdict: object = None
) -> go.Figure:
    """Accepted length over the steps of a target that trains on, a panel a kind of text.

    Args:
        frame: rows of `catalog.DSPARK_TRAINING`, with columns policy, seed, target_step,
            draft_updates, text, target_shift and `length`.
        length: "accepted_length" (with known tokens) or "sampled_length" (decoded in earnest).
        verdict: written below the title.

    Returns:
        A figure: thin lines are seeds, the thick one their mean; a refreshed drafter has two points
        at the step of its refreshing. Below, how far the target itself has moved.

    Raises:
        ValueError: if columns are missing, or the length is not known.
    """
    if length not in LENGTHS:
        raise ValueError(f"length must be one of {', '.join(LENGTHS)}; got {length!r}")
    columns = ("policy", "seed", "target_step", "draft_updates", "text", "target_shift", length)
    require(frame, *columns, made_by=MADE_BY)
    texts = [text for text in TEXTS if (frame["text"] == text).any()]
    figure = make_subplots(
        rows=2,
        cols=len(texts),
        shared_xaxes=True,
        shared_yaxes=True,
        row_heights=[0.72, 0.28],
        horizontal_spacing=0.04,
        vertical_spacing=0.07,
    )
    for col, text in enumerate(texts, start=1):
        own = frame[frame["text"] == text]
        for policy in (name for name in POLICIES if (own["policy"] == name).any()):
            _policy(figure, own[own["policy"] == policy], length, col)
        _shift(figure, own, col)
        panel_title(figure, TEXTS[text], row=1, col=col, above=6)
    figure.update_yaxes(title_text="tokens a round", row=1, col=1)
    figure.update_yaxes(title_text="target moved", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text="updates of the target", row=2)
    place = {"orientation": "h", "x": 0, "y": 1 + 26 / HEIGHT, "yanchor": "bottom"}
    figure.update_layout(legend=place)
    return titled(
        figure,
        title=f"A drafter beside a moving target: accepted length, {LENGTHS[length]}",
        subtitle=str(verdict or ""),
        note=_note(frame, length),
        room=Room(height=HEIGHT, head=60),
    )


def _policy(figure: go.Figure, rows: pd.DataFrame, length: str, col: int) -> None:
    """Seeds as thin lines, their mean as a thick one."""
    name, shade, mark = POLICIES[rows["policy"].iloc[0]]
    keys = ["target_step", "draft_updates"]
    rows = rows.sort_values(["seed", *keys])
    for seed, own in rows.groupby("seed"):
        figure.add_scatter(
            x=own["target_step"],
            y=own[length],
            mode="lines",
            line={"color": translucent(shade, 0.35), "width": 1},
            hovertemplate=f"seed {seed}: %{{y:.3f}} at step %{{x}}<extra></extra>",
            name=f"{name}, seeds",
            legendgroup=name,
            showlegend=False,
            row=1,
            col=col,
        )
    mean = rows.groupby(keys, as_index=False)[length].mean()
    figure.add_scatter(
        x=mean["target_step"],
        y=mean[length],
        customdata=mean["draft_updates"],
        mode="lines+markers",
        line={"color": shade, "width": 2.5},
        marker={"size": 8, "symbol": mark, "line": {"color": "white", "width": 1}},
        hovertemplate="mean %{y:.3f} at step %{x}, drafter at %{customdata}<extra></extra>",
        name=name,
        legendgroup=name,
        showlegend=col == 1,
        row=1,
        col=col,
    )


def _shift(figure: go.Figure, rows: pd.DataFrame, col: int) -> None:
    """How far the target's distributions have moved; the same for every policy."""
    by_seed = rows.groupby(["seed", "target_step"], as_index=False)["target_shift"].first()
    for seed, own in by_seed.groupby("seed"):
        figure.add_scatter(
            x=own["target_step"],
            y=own["target_shift"],
            mode="lines",
            line={"color": translucent(SPARE[4], 0.5), "width": 1},
            hovertemplate=f"seed {seed}: %{{y:.3f}} at step %{{x}}<extra></extra>",
            name="target moved, seeds",
            showlegend=False,
            row=2,
            col=col,
        )
    mean = by_seed.groupby("target_step", as_index=False)["target_shift"].mean()
    figure.add_scatter(
        x=mean["target_step"],
        y=mean["target_shift"],
        mode="lines",
        line={"color": SPARE[4], "width": 2},
        hovertemplate="mean %{y:.3f} at step %{x}<extra></extra>",
        name="target moved",
        showlegend=False,
        row=2,
        col=col,
    )


def _note(frame: pd.DataFrame, length: str) -> str:
    updates = frame.groupby("policy")["draft_updates"].max()
    made = updates[updates > 0]
    text = (
        "Thin lines: seeds; thick: their mean. The target's path is the same under every policy, "
        "since nothing flows back into it; all are measured on the same prompts, answered by the "
        "target as it is at that step. "
    )
    if len(made) and made.nunique() == 1:
        names = " and ".join(made.index)
        text += f"The policies {names}: {int(made.iloc[0])} updates of the drafter each. "
    if length == "accepted_length":
        text += "With known tokens, blocks at the end of a text are cut short and count as such. "
    text += (
        "Lower panels: mean total variation between the target's distributions now and at the "
        "start."
    )
    return text + "\n" + provenance(frame)
