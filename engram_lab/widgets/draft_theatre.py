"""Draft theatre: rounds of drafting played step by step, drafters side by side."""

import html
from collections.abc import Mapping, Sequence

import ipywidgets
import plotly.graph_objects as go

from engram_lab.draft.generate import GenerationConfig
from engram_lab.draft.proposer import Proposer
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import Target
from engram_lab.figures.theatre import PHASES, round_stage
from engram_lab.probes.gates import Encoder
from engram_lab.probes.theatre import theatre_frame
from engram_lab.widgets.base import Board, Picture, redraw

PROMPT = "The economy of the country is based on"
TOKENS = 32
SECOND = 1000  # milliseconds between two steps of a play
STEPS = tuple(PHASES)


def draft_theatre(
    target: Target,
    drafters: Mapping[str, Proposer],
    tokenizer: Encoder,
    text: str = PROMPT,
    *,
    max_new_tokens: int = TOKENS,
    stop_ids: Sequence[int] = (),
) -> ipywidgets.VBox:
    """A prompt, boxes for drafters and a temperature over a stage; Play walks through the rounds.

    Each round takes four steps: a block is proposed, the sequential head corrects it, confidences
    appear, the target keeps a prefix and adds a token of its own. The text is decoded anew on
    Enter and whenever a drafter or the temperature changes; the slider only looks. Each call makes
    widgets of its own, with callbacks of their own.

    Without controls, one step and all rounds: `frame = theatre_frame(target, drafters, text,
    tokenizer)`, `round_stage(frame, round=0, phase="verified")` and `round_strip(frame)`.

    Args:
        target: the model drafted for.
        drafters: by name, the order in which they stand.
        tokenizer: the one the target was trained with.
        text: what the field holds at first.
        max_new_tokens: tokens to decode.
        stop_ids: ids that end the text.

    Raises:
        ValueError: as `theatre_frame`, for the first text; later ones show the message below the
            field, and everything else stays.
    """
    settings = {"max_new_tokens": max_new_tokens, "stop_ids": tuple(stop_ids)}
    return _Theatre(target, drafters, tokenizer, text, settings).board


class _Theatre:
    """Controls, and what they call."""

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Proposer],
        tokenizer: Encoder,
        text: str,
        settings: Mapping[str, object],
    ):
        self.target, self.drafters, self.tokenizer = target, drafters, tokenizer
        self.settings, self.busy = settings, False
        self.field = ipywidgets.Text(
            value=text,
            description="prompt",
            continuous_update=False,
            layout=ipywidgets.Layout(width="80%"),
        )
        self.message = ipywidgets.HTML()
        self.boxes = [
            ipywidgets.Checkbox(True, description=name, indent=False) for name in drafters
        ]
        self.temperature = ipywidgets.FloatSlider(
            0.0, min=0.0, max=2.0, step=0.25, description="temperature", continuous_update=False
        )
        self.play = ipywidgets.Play(interval=SECOND)
        self.step = ipywidgets.IntSlider(
            description="step", layout=ipywidgets.Layout(width="60%"), continuous_update=False
        )
        self._decode()
        self.picture = Picture(self._stage())
        ipywidgets.link((self.play, "value"), (self.step, "value"))
        for control in (self.field, self.temperature, *self.boxes):
            control.observe(self._on_choice, names="value")
        self.step.observe(self._on_step, names="value")
        chosen = ipywidgets.HBox([*self.boxes, self.temperature])
        moves = ipywidgets.HBox([self.play, self.step])
        self.board = Board([self.field, self.message, chosen, moves, self.picture])

    def _decode(self) -> None:
        """Decode the text with the chosen drafters, and go back to the first step."""
        chosen = {
            box.description: self.drafters[box.description] for box in self.boxes if box.value
        }
        sampling = Sampling(temperature=self.temperature.value)
        config = GenerationConfig(sampling=sampling, **self.settings)
        self.frame = theatre_frame(
            self.target, chosen, self.field.value, self.tokenizer, config=config
        )
        last = len(STEPS) * (int(self.frame["round"].max()) + 1) - 1
        for control in (self.step, self.play):
            control.value = 0
            control.max = last

    def _stage(self) -> go.Figure:
        round, phase = divmod(self.step.value, len(STEPS))
        return round_stage(self.frame, round=round, phase=STEPS[phase])

    def _on_choice(self, change: dict) -> None:
        self.busy = True
        try:
            self._decode()
            self.message.value = ""
        except ValueError as error:
            self.message.value = f"<i>{html.escape(str(error))}</i>"
            return
        finally:
            self.busy = False
        redraw(self.picture, self._stage())

    def _on_step(self, change: dict) -> None:
        if not self.busy:
            redraw(self.picture, self._stage())
