"""Type a sentence, see the gates."""

import ipywidgets
from torch import nn

from engram_lab.figures.gates import gate_strip
from engram_lab.probes.gates import Encoder, gate_frame
from engram_lab.widgets.base import Board, Picture, redraw

SENTENCE = "The Princess of Wales met Alexander the Great."


def gate_reader(model: nn.Module, tokenizer: Encoder, text: str = SENTENCE) -> ipywidgets.VBox:
    """A text field over the gate strip of what it holds; the strip follows on Enter.

    Without controls: `gate_strip(gate_frame(model, text, tokenizer))`.

    Args:
        model: a model with memory.
        tokenizer: the one it was trained with.
        text: what the field holds at first.

    Raises:
        ValueError: as `gate_frame`, for the first text; later ones show the message below the
        field.
    """
    field = ipywidgets.Text(
        value=text,
        description="sentence",
        continuous_update=False,
        layout=ipywidgets.Layout(width="80%"),
    )
    message = ipywidgets.HTML()
    picture = Picture(gate_strip(gate_frame(model, text, tokenizer)))

    def show(change: dict) -> None:
        try:
            new = gate_strip(gate_frame(model, change["new"], tokenizer))
        except ValueError as error:
            message.value = f"<i>{error}</i>"
            return
        message.value = ""
        redraw(picture, new)

    field.observe(show, names="value")
    return Board([field, message, picture])
