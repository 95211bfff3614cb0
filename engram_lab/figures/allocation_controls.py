"""The controls of the allocation experiment: is it the n-gram's own row, or just size?"""

import textwrap
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import MADE_BY, sentences
from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.losses import class_names, losses_by_seed, minus_reference
from engram_lab.figures.panels import NAMES, Line, bar_and_seeds, panel_title
from engram_lab.figures.style import RULE, SOFT_INK, Room, colour, require, titled

NOTE = "Points: seeds; bar and number: their mean. Same seed, data and documents in all arms."
NEIGHBOUR = (
    " Neighbour's addresses: every sequence reads the rows of the next one in its batch, in "
    "training and evaluation alike."
)


def controls_figure(
    frame: pd.DataFrame,
    *,
    reference: str = "experts",
    verdict: Any = None,
    title: str = "Controls: own rows, somebody else's rows, or just a wider network",
) -> go.Figure:
    """Loss of every arm minus that of the reference arm, in all and by token class.

    Args:
        frame: rows of `probes.allocation.final_loss` with columns arm and seed; arms that
            `panels.NAMES` lacks keep their names.
        reference: arm that the others are compared with.
        verdict: a sentence, an object with a `sentence`, or several of them.
        title: what the arms are compared for.

    Raises:
        ValueError: if columns or the reference arm are missing.
    """
    require(frame, "arm", "seed", "loss_nats", made_by=MADE_BY)
    deltas = minus_reference(losses_by_seed(frame, ["arm"]), "arm", reference)
    deltas = deltas[deltas["arm"] != reference]
    known = [arm for arm in NAMES if arm in set(deltas["arm"])]
    arms = known + sorted(set(deltas["arm"]) - set(known))
    classes = class_names(frame)
    figure = make_subplots(rows=1, cols=len(classes), shared_yaxes=True, horizontal_spacing=0.03)
    for col, name in enumerate(classes, start=1):
        part = deltas[deltas["token_class"] == name]
        for arm in arms:
            _arm(figure, part[part["arm"] == arm], arm, col)
        line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
        figure.add_vline(x=0, line=line, layer="below", row=1, col=col)
        panel_title(figure, "all tokens" if name == "all" else name, row=1, col=col, above=4)
    _axes(figure, deltas, len(arms), reference)
    return titled(
        figure,
        title=title,
        subtitle=sentences(verdict),
        note=f"{provenance(frame)}. {held_equal(frame)}\n{NOTE}"
        + NEIGHBOUR * ("neighbour" in arms),
        room=Room(height=30 + 72 * len(arms), left=156, head=34),
    )


def _axes(figure: go.Figure, deltas: pd.DataFrame, arms: int, reference: str) -> None:
    low, high = min(0.0, deltas["delta_nats"].min()), max(0.0, deltas["delta_nats"].max())
    room = 0.16 * (high - low)
    figure.update_xaxes(range=[low - room, high + room], nticks=5, showgrid=True, gridcolor=RULE)
    figure.update_yaxes(range=[arms - 0.4, -0.7], showgrid=False, ticks="", showline=False)
    figure.add_annotation(
        text=f"loss minus that of {NAMES.get(reference, reference)} (nats per token)",
        x=0.5,
        y=0,
        xref="paper",
        yref="paper",
        yanchor="top",
        yshift=-26,
        font={"size": 13},
    )


def _arm(figure: go.Figure, deltas: pd.DataFrame, arm: str, col: int) -> None:
    label, place = "<br>".join(textwrap.wrap(NAMES.get(arm, arm), 20)), {"row": 1, "col": col}
    line = Line(name=arm, colour=colour(arm))
    mean = bar_and_seeds(figure, deltas, line, label=label, width=0.36, col=col)
    figure.add_annotation(
        text=f"{mean:+.3f}".replace("-", "−"), x=mean, y=label, yshift=22, showarrow=False, **place
    )
