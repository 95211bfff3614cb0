"""Drafters as figures know them: names, colours, published counterparts, lengths by seed."""

import math

import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.style import COLOURS, Room

MADE_BY = "experiments.catalog.dspark_drafters"
DRAFTERS = {
    "lookup": "n-gram look-up",
    "bigram": "bigram counts",
    "small": "small model",
    "mtp": "MTP, reused",
    "eagle3": "EAGLE-3",
    "parallel": "DFlash (cross-entropy)",
    "parallel_bigram": "DFlash and bigram counts",
    "parallel_same": "DFlash, DSpark's loss",
    "dspark": "DSpark, Markov",
    "dspark_gated": "DSpark, gated",
    "dspark_rnn": "DSpark, RNN",
}
"""Drafters as figures call them, in the order in which they are listed."""
SHADES = dict(
    zip(
        DRAFTERS,
        (
            *("#8A8F94", "#B8A300", "#882255", "#CC79A7", COLOURS["neighbour"], COLOURS["experts"]),
            *("#44AA99", "#56B4E9", COLOURS["engram"], COLOURS["wide_ffn"], COLOURS["static"]),
        ),
        strict=True,
    )
)
PUBLISHED = {"DFlash": "parallel", "Eagle3": "eagle3", "DSpark": "dspark"}
PUBLISHED_DOMAINS = {"structured": "math", "code": "code", "prose": "chat"}
"""Published kinds of text that stand beside ours: the most and the least predictable, and code."""


def seed_lengths(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Accepted length of every seed: all tokens gained over all rounds.

    Args:
        frame: rows by prompt.
        keys: columns that tell drafters apart.

    Returns:
        `keys`, seed, domain, temperature, rounds, emitted and accepted_length.
    """
    groups = [*keys, "seed", "domain", "temperature"]
    sums = frame.groupby(groups, as_index=False, sort=False)[["rounds", "emitted"]].sum()
    return sums.assign(accepted_length=sums["emitted"] / sums["rounds"])


def legend_room(figure: go.Figure, height: int) -> Room:
    """Put the legend above the panel titles, in as many lines as its names need.

    Args:
        figure: whose legend it is.
        height: of its panels, in pixels.

    Returns:
        Room for the panels, their titles and the legend.
    """
    names = [trace.name for trace in figure.data if trace.showlegend is not False]
    lines = math.ceil(sum(44 + 6.6 * len(name) for name in names) / 860)
    place = {"orientation": "h", "x": 0, "y": 1 + 26 / height, "yanchor": "bottom"}
    figure.update_layout(legend=place)
    return Room(height=height, head=34 + 28 * lines)
