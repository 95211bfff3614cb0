"""Slide along the stored allocation grid: the ring, the curve and the class losses follow."""

from collections.abc import Sequence

import ipywidgets
import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.allocation import MADE_BY
from engram_lab.figures.allocation_point import allocation_point
from engram_lab.figures.style import require
from engram_lab.widgets.base import Board, Picture, redraw


def allocation_slider(frame: pd.DataFrame) -> ipywidgets.VBox:
    """Sliders for ratio and static share over the figure of the point they stand at.

    Nothing is trained: the frame is all there is. Points that are not in it yet are said to be
    missing. Without controls: `allocation_point(frame, 0.5, static_share=0.5)`.

    Args:
        frame: rows of `probes.allocation.final_loss` of one corpus, as
            `load_results(catalog.ENGRAM_ALLOCATION)` returns them; with a column static_share,
            several shares may stand in one frame.

    Raises:
        ValueError: as `allocation_point`, for the first point; later ones show the message below
            the sliders.
    """
    require(frame, "allocation_ratio", "seed", "loss_nats", made_by=MADE_BY)
    ratio = _slider("ratio ρ", sorted(frame["allocation_ratio"].unique()))
    controls, share = [ratio], None
    if "static_share" in frame:
        share = _slider("static share", sorted(frame["static_share"].unique()))
        controls.append(share)
    message = ipywidgets.HTML()

    def point() -> go.Figure:
        chosen = None if share is None else share.value
        return allocation_point(frame, ratio.value, static_share=chosen)

    picture = Picture(point())

    def show(_: dict) -> None:
        try:
            new = point()
        except ValueError as error:
            message.value = f"<i>{error}</i>"
            return
        message.value = ""
        redraw(picture, new)

    for control in controls:
        control.observe(show, names="value")
    return Board([ipywidgets.HBox(controls), message, picture])


def _slider(name: str, values: Sequence[float]) -> ipywidgets.SelectionSlider:
    """A slider that stops at the values of the frame, and stands at first in their middle."""
    return ipywidgets.SelectionSlider(
        options=[(f"{value:g}", float(value)) for value in values],
        value=float(values[len(values) // 2]),
        description=name,
        continuous_update=False,
        layout=ipywidgets.Layout(width="380px"),
    )
