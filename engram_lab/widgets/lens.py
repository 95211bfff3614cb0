"""Type a text, put it under the lens, walk through the layers."""

from collections.abc import Callable
from functools import lru_cache

import ipywidgets
import pandas as pd
import plotly.graph_objects as go
from torch import nn

from engram_lab.figures.lens import TITLES
from engram_lab.figures.lens_map import lens_map
from engram_lab.probes.lens import lens_frame
from engram_lab.probes.lens_text import Reader
from engram_lab.probes.tuned_lens import TunedLens, tuned_lens_frame
from engram_lab.widgets.base import Board, Picture, redraw

SENTENCE = "The Princess of Wales met Alexander the Great."
KEPT = 8  # frames of the latest texts, so that layer and measure change without a pass


def lens_explorer(
    model: nn.Module,
    tokenizer: Reader,
    text: str = SENTENCE,
    *,
    tuned: TunedLens | None = None,
) -> ipywidgets.VBox:
    """A text field, a layer slider and two menus over the lens map of what the field holds.

    The model runs when text or lens change (the text on Enter), not for layer and measure. Each
    call makes widgets of its own; calling again leaves earlier ones as they are.

    Without controls: `lens_map(lens_frame(model, text, tokenizer), measure="kl_nats", layer=1)`.

    Args:
        model: an `EngramLM` or a decoder from `transformers`.
        tokenizer: the one it was trained with.
        text: what the field holds at first.
        tuned: from `fit_tuned_lens`; adds the tuned lens to the menu.

    Raises:
        ValueError: as `lens_frame`, for the first text; later ones show the message below the
            controls, and the figure stays.
    """
    look = lru_cache(KEPT)(_lenses(model, tokenizer, tuned))
    names = _names(model, tuned)
    last = int(look(names[0], text)["layer"].max())
    field, lens, measure, layer = _controls(text, names, last)
    message = ipywidgets.HTML()

    def drawn() -> go.Figure:
        frame = look(lens.value, field.value)
        return lens_map(frame, measure=measure.value, layer=layer.value)

    picture = Picture(drawn())

    def show(change: dict) -> None:
        try:
            new = drawn()
        except ValueError as error:
            message.value = f"<i>{error}</i>"
            return
        message.value = ""
        redraw(picture, new)

    for control in (field, lens, measure, layer):
        control.observe(show, names="value")
    menus = ipywidgets.HBox([lens, measure, layer])
    return Board([field, menus, message, picture])


def _names(model: nn.Module, tuned: TunedLens | None) -> list[str]:
    """The lenses there is something to see through."""
    names = ["logit lens"]
    names += ["tuned lens"] if tuned is not None else []
    return names + (["without memory"] if getattr(model, "memories", None) else [])


def _controls(text: str, names: list[str], last: int) -> tuple[ipywidgets.Widget, ...]:
    """Text field, menu of lenses, menu of measures, layer slider."""
    field = ipywidgets.Text(
        value=text,
        description="text",
        continuous_update=False,
        layout=ipywidgets.Layout(width="80%"),
    )
    measures = [(title, name) for name, title in TITLES.items()]
    return (
        field,
        ipywidgets.Dropdown(options=names, description="lens"),
        ipywidgets.Dropdown(options=measures, description="measure"),
        ipywidgets.IntSlider(
            value=last // 2, min=0, max=last, description="layer", continuous_update=False
        ),
    )


def _lenses(
    model: nn.Module, tokenizer: Reader, tuned: TunedLens | None
) -> Callable[[str, str], pd.DataFrame]:
    """The frame of a text under the lens of that name."""

    def look(name: str, text: str) -> pd.DataFrame:
        if name == "tuned lens" and tuned is not None:
            return tuned_lens_frame(model, text, tokenizer, lens=tuned)
        return lens_frame(model, text, tokenizer, without_memory=name == "without memory")

    return look
