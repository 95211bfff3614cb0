"""What rows change: next-token lists with and without them, and what an edit does to others."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.gates import visible_token
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import (
    COLOURS,
    INK,
    MONO,
    RULE,
    SOFT_INK,
    Room,
    colour,
    require,
    titled,
    translucent,
)

PARTS = {
    "module": COLOURS["engram"],
    "order": COLOURS["wide_ffn"],
    "head": COLOURS["neighbour"],
    "row": COLOURS["static"],
}
GROUPS = {
    "edited prompt": (COLOURS["static"], "diamond"),
    "share a row": (COLOURS["engram"], "circle"),
    "random": (COLOURS["filler"], "circle"),
}
LEAST_KL = 1e-6  # nats; what is below is drawn here, since a logarithm has no zero
BAR_PIXELS = 26


def next_token_bars(frame: pd.DataFrame) -> go.Figure:
    """The next-token list with the whole memory and with parts of it off, token by token.

    Args:
        frame: rows of `probes.rows.next_token_frame`, of one state.

    Raises:
        ValueError: if columns are missing, or several states stand in one frame.
    """
    columns = ("switched_off", "token", "probability", "probability_without", "logit_change")
    require(frame, *columns, made_by="probes.rows.next_token_frame")
    states = frame["switched_off"].unique()
    if len(states) > 1:
        raise ValueError(
            f"next_token_bars shows one state; got {len(states)}: {', '.join(states)}. "
            "Choose the rows of one: frame[frame['switched_off'] == ...]."
        )
    figure, off = go.Figure(), states[0]
    series = (
        ("all of the memory on", "probability", COLOURS["engram"]),
        (f"off: {off}", "probability_without", COLOURS["filler"]),
    )
    for name, column, shade in series:
        figure.add_bar(
            orientation="h",
            y=list(range(len(frame))),
            x=frame[column],
            name=name,
            marker={"color": shade},
            customdata=frame[["token", "logit_change"]],
            hovertemplate=(
                "<b>%{customdata[0]}</b><br>probability %{x:.4f}<br>"
                f"logit change %{{customdata[1]:+.3f}}<extra>{name}</extra>"
            ),
        )
    figure.update_xaxes(title_text="probability of the next token", rangemode="tozero")
    figure.update_yaxes(**_token_axis(list(frame["token"])))
    figure.update_layout(bargap=0.25, bargroupgap=0.05, legend=_legend())
    return titled(
        figure,
        title="What comes next",
        note=f"The most probable next tokens of either list. Switched off, read as zeros: {off}.",
        room=Room(height=BAR_PIXELS * len(frame) + 20, left=150, width=760),
    )


def part_bars(frame: pd.DataFrame) -> go.Figure:
    """What the target's logit loses without each part of the memory, one part at a time.

    Args:
        frame: rows of `probes.rows.part_frame`, of one text.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("part", "layer", "order", "head", "row", "token")
    measured = ("logit_change", "probability", "probability_without", "top_token_without")
    require(frame, *columns, *measured, made_by="probes.rows.part_frame")
    names = [_part_name(row) for row in frame.to_dict("records")]
    figure = go.Figure()
    for part, rows in frame.assign(place=range(len(frame))).groupby("part", sort=False):
        figure.add_bar(
            orientation="h",
            y=rows["place"],
            x=rows["logit_change"],
            name=part,
            marker={"color": PARTS.get(part, SOFT_INK)},
            customdata=rows[["probability", "probability_without", "top_token_without"]],
            hovertemplate=(
                "logit change %{x:+.3f}<br>probability %{customdata[0]:.4f} → "
                "%{customdata[1]:.4f}<br>most probable without it: %{customdata[2]}"
                f"<extra>{part}</extra>"
            ),
        )
    figure.add_vline(x=0, line={"color": SOFT_INK, "width": 1})
    figure.update_xaxes(title_text="change of the target's logit when the part is off")
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, autorange="reversed", showgrid=False
    )
    figure.update_layout(bargap=0.3, barmode="overlay", legend=_legend())
    token, probability = frame["token"].iloc[0], frame["probability"].iloc[0]
    return titled(
        figure,
        title=f"What speaks for “{visible_token(token)}”",
        note=(
            f"With all of the memory on, its probability is {probability:.3f}. Left of 0: the part "
            "speaks for it. A logit is counted from the mean over the vocabulary. A row is off "
            "wherever the text reads it; effects of parts do not add up."
        ),
        room=Room(height=BAR_PIXELS * len(frame) + 20, left=210, width=820),
    )


def collateral_figure(frame: pd.DataFrame) -> go.Figure:
    """What an edit of rows does to the edited prompt, to those who share a row, and to others.

    Left, the probability of what every prompt would have been continued by, before and after;
    right, how far its whole next-token list moved.

    Args:
        frame: rows of `probes.collateral.collateral_frame`.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("group", "prompt", "shared_rows", "shared_last", "token", "before", "after")
    columns += ("target_before", "target_after", "kl_nats")
    require(frame, *columns, made_by="probes.collateral.collateral_frame")
    figure = make_subplots(rows=1, cols=2, column_widths=[0.46, 0.54], horizontal_spacing=0.13)
    _diagonal(figure)
    groups = list(dict.fromkeys(frame["group"]))
    for place, group in enumerate(groups):
        _draw_group(figure, frame[frame["group"] == group], group, place)
    figure.update_xaxes(title_text="before the edit", range=[-0.03, 1.03], row=1, col=1)
    figure.update_yaxes(title_text="after the edit", range=[-0.03, 1.03], row=1, col=1)
    figure.update_xaxes(
        tickvals=list(range(len(groups))),
        ticktext=[f"{group}<br>n = {(frame['group'] == group).sum()}" for group in groups],
        range=[-0.5, len(groups) - 0.5],
        row=1,
        col=2,
    )
    figure.update_yaxes(
        title_text="change of the list (KL, nats)",
        type="log",
        exponentformat="power",
        tickfont={"size": 11},  # exponents are set larger than other numbers
        row=1,
        col=2,
    )
    panel_title(figure, "probability of the likeliest next token", row=1, col=1, above=8)
    panel_title(figure, "whole next-token list", row=1, col=2, above=8)
    return titled(
        figure,
        title="Who else reads the edited rows",
        note=_collateral_note(frame),
        room=Room(height=360, axis=70, head=34),
    )


def _draw_group(figure: go.Figure, rows: pd.DataFrame, group: str, place: int) -> None:
    shade, symbol = GROUPS.get(group, (colour(group), "circle"))
    marker = {"color": translucent(shade, 0.65), "size": 8, "symbol": symbol}
    hover = (
        "%{customdata[0]}<br>then “%{customdata[1]}”: %{customdata[2]:.4f} → %{customdata[3]:.4f}"
        "<br>KL %{customdata[4]:.2e} nats<br>edited rows at the last token: %{customdata[5]}, "
        f"anywhere: %{{customdata[6]}}<extra>{group}</extra>"
    )
    told = ["prompt", "token", "before", "after", "kl_nats", "shared_last", "shared_rows"]
    shared = {"mode": "markers", "marker": marker, "name": group, "showlegend": False}
    shared |= {"customdata": rows[told], "hovertemplate": hover}
    figure.add_scatter(x=rows["before"], y=rows["after"], **shared, row=1, col=1)
    kl = rows["kl_nats"].clip(lower=LEAST_KL)
    spread = np.linspace(-0.25, 0.25, len(rows)) if len(rows) > 1 else np.zeros(1)
    figure.add_scatter(x=place + spread, y=kl, **shared, row=1, col=2)
    figure.add_scatter(
        x=[place - 0.32, place + 0.32],
        y=[kl.median()] * 2,
        mode="lines",
        line={"color": INK, "width": 2},
        hovertemplate=f"median {kl.median():.2e} nats<extra>{group}</extra>",
        name=f"{group}, median",
        showlegend=False,
        row=1,
        col=2,
    )


def _collateral_note(frame: pd.DataFrame) -> str:
    edited = frame["group"] == "edited prompt"
    own, others = frame[edited], frame[~edited]
    told = "".join(
        f"After “{visible_token(row.prompt)}” the edit's token went from "
        f"{row.target_before:.3f} to {row.target_after:.3f}. "
        for row in own.itertuples()
    )
    touched = int((others["shared_last"] > 0).sum())
    return (
        f"{told}{len(others)} other prompts, {touched} of which read an edited row at their last "
        "token. On the grey diagonal nothing changed. Bars: medians. Changes below "
        f"{LEAST_KL:g} nats are drawn there."
    )


def _part_name(row: dict) -> str:
    """The part in words, as short as it can be said."""
    named = [("block", row["layer"]), ("order", row["order"]), ("head", row["head"])]
    words = [f"{name} {number}" for name, number in named if not pd.isna(number)]
    if not pd.isna(row["row"]):
        words.append(f"row {row['row']}")
    return ", ".join(words) or "all memory"


def _token_axis(tokens: Sequence[str]) -> dict[str, object]:
    """One place per token, also where two look alike; the first on top."""
    return {
        "tickvals": list(range(len(tokens))),
        "ticktext": [f"“{visible_token(token)}”" for token in tokens],
        "tickfont": {"family": MONO, "size": 12},
        "autorange": "reversed",
        "showgrid": False,
        "ticks": "",
    }


def _legend() -> dict[str, object]:
    return {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}


def _diagonal(figure: go.Figure) -> None:
    """Where nothing changed: after equals before."""
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"color": RULE, "width": 2},
        hoverinfo="skip",
        showlegend=False,
        row=1,
        col=1,
    )
