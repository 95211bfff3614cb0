"""The memory microscope: type a sentence, click a token, switch rows off, see what comes next."""

import html
from collections.abc import Sequence

import ipywidgets
import pandas as pd
import plotly.graph_objects as go
from torch import nn

from engram_lab.figures.gates import gate_strip
from engram_lab.figures.rows import next_token_bars
from engram_lab.figures.style import INK, RULE
from engram_lab.probes.gates import Encoder, gate_frame
from engram_lab.probes.rows import RowUses, next_token_frame, row_frame
from engram_lab.probes.sayings import ROW
from engram_lab.probes.switches import Switch, memories_of, tables_of
from engram_lab.widgets.base import Board, Picture, redraw

SENTENCE = "In the beginning God created the King of Israel."
CHOSEN, OTHERS = (INK, 2.0), ("#D5D9DD", 0.5)  # colour and width of a token's border
TITLES = {
    "place": "block, order, head",
    "row": "row",
    "key": "n-gram here",
    "keys": "who shares the row (reads in training)",
    "times_trained": "times trained",
    "top_token": "says by itself",
    "logit_change": "logit change if off",
}


def memory_microscope(
    model: nn.Module,
    tokenizer: Encoder,
    text: str = SENTENCE,
    *,
    index: RowUses | None = None,
) -> ipywidgets.VBox:
    """A text field over its gates, the rows of one token, and the next-token list after it.

    The strip follows on Enter. A click on a token, or the menu below, chooses the token whose rows
    are shown and whose next token is predicted; check boxes switch modules, orders, heads and its
    rows off, together, and the list moves. The model is never changed: a part is off for one pass.
    Each call makes widgets of its own, with callbacks of their own.

    Without controls, the same three: `gate_strip(gate_frame(model, text, tokenizer))`,
    `row_frame(model, text, tokenizer, index=index)` and
    `next_token_bars(next_token_frame(model, text, tokenizer, off=[Switch(layer=1)]))`.

    Args:
        model: a model with memory.
        tokenizer: the one it was trained with.
        text: what the field holds at first.
        index: what the rows were trained on, as `probes.row_keys` makes it; None leaves that out.

    Raises:
        ValueError: as `gate_frame`, for the first text; later ones show the message below the
            field, and everything else stays.
    """
    return _Microscope(model, tokenizer, text, index).board


class _Microscope:
    """Controls, and what they call."""

    def __init__(self, model: nn.Module, tokenizer: Encoder, text: str, index: RowUses | None):
        self.model, self.tokenizer, self.index = model, tokenizer, index
        self.text, self.busy = text, False
        self.field = ipywidgets.Text(
            value=text,
            description="sentence",
            continuous_update=False,
            layout=ipywidgets.Layout(width="80%"),
        )
        self.message, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self.strip = Picture()
        self.token = ipywidgets.Dropdown(description="token")
        self.parts = _part_boxes(model)
        self.rows = [_Box(Switch()) for _ in range(_row_count(model))]
        self._read()
        self.bars = Picture(self._next_tokens())
        self.field.observe(self._on_text, names="value")
        self.token.observe(self._on_token, names="value")
        for box in (*self.parts, *self.rows):
            box.observe(self._on_switch, names="value")
        switches = [
            _boxes("switch off", self.parts),
            _boxes("switch off rows of this token", self.rows),
        ]
        shown = [self.field, self.message, self.strip, self.token, self.table]
        self.board = Board([*shown, *switches, self.bars])

    def _read(self) -> None:
        """Show the gates of the text and choose its last token."""
        frame = gate_frame(self.model, self.text, self.tokenizer)
        redraw(self.strip, gate_strip(frame))
        for trace in self.strip.data:
            trace.on_click(self._on_click)
        tokens = frame.drop_duplicates("position").sort_values("position")["token"]
        self.token.options = [(f"{place}: {name}", place) for place, name in enumerate(tokens)]
        self.token.value = len(tokens) - 1
        self._choose()

    def _choose(self) -> None:
        """Mark the chosen token, show its rows and name the boxes that switch them off."""
        chosen, length = self.token.value, len(self.token.options)
        borders = [CHOSEN if place == chosen else OTHERS for place in range(length)]
        colours, widths = zip(*borders, strict=True)
        with self.strip.batch_update():
            for trace in self.strip.data:
                trace.marker.line = {"color": colours, "width": widths}
        frame = row_frame(self.model, self.text, self.tokenizer, position=chosen, index=self.index)
        self.table.value = _table(frame)
        for box, numbers in zip(self.rows, frame[ROW].itertuples(index=False), strict=True):
            box.become(Switch(**{name: int(n) for name, n in zip(ROW, numbers, strict=True)}))

    def _next_tokens(self) -> go.Figure:
        off = [box.switch for box in (*self.parts, *self.rows) if box.value]
        return next_token_bars(
            next_token_frame(
                self.model, self.text, self.tokenizer, off=off, position=self.token.value
            )
        )

    def _on_text(self, change: dict) -> None:
        before, self.text = self.text, change["new"]
        self.busy = True
        try:
            self._read()
            self.message.value = ""
        except ValueError as error:
            self.text = before
            self.message.value = f"<i>{html.escape(str(error))}</i>"
            return
        finally:
            self.busy = False
        redraw(self.bars, self._next_tokens())

    def _on_click(self, trace: object, points: object, state: object) -> None:
        if points.point_inds:
            self.token.value = points.point_inds[0]

    def _on_token(self, change: dict) -> None:
        if self.busy or change["new"] is None:
            return
        self.busy = True
        try:
            self._choose()
        finally:
            self.busy = False
        redraw(self.bars, self._next_tokens())

    def _on_switch(self, change: dict) -> None:
        if not self.busy:
            redraw(self.bars, self._next_tokens())


class _Box(ipywidgets.Checkbox):
    """A check box that knows what it switches off."""

    def __init__(self, switch: Switch):
        super().__init__(indent=False, layout=ipywidgets.Layout(width="auto"))
        self.become(switch)

    def become(self, switch: Switch) -> None:
        """Stand for a part, which is on."""
        self.switch, self.description, self.value = switch, str(switch), False


def _part_boxes(model: nn.Module) -> list[_Box]:
    """A box for every module, order and head."""
    switches = []
    for layer, (_, memory) in memories_of(model).items():
        orders, heads, _ = zip(*tables_of(memory), strict=True)
        switches.append(Switch(layer=layer))
        switches += [Switch(layer=layer, order=order) for order in sorted(set(orders))]
        switches += [Switch(layer=layer, head=head) for head in sorted(set(heads))]
    return [_Box(switch) for switch in switches]


def _row_count(model: nn.Module) -> int:
    return sum(len(tables_of(memory)) for _, memory in memories_of(model).values())


def _boxes(title: str, boxes: Sequence[ipywidgets.Widget]) -> ipywidgets.VBox:
    """Check boxes below a title, in as many columns as fit."""
    columns = ipywidgets.Layout(grid_template_columns="repeat(auto-fill, 250px)", width="100%")
    grid = ipywidgets.GridBox(list(boxes), layout=columns)
    return ipywidgets.VBox([ipywidgets.HTML(f"<b>{title}</b>"), grid])


def _table(frame: pd.DataFrame) -> str:
    """The rows of one token as an HTML table."""
    place = frame[["layer", "order", "head"]].astype(str).agg(", ".join, axis=1)
    shown = frame.assign(
        place=place,
        times_trained=frame["times_trained"].astype("string").fillna("?"),
        logit_change=frame["logit_change"].map("{:+.3f}".format),
    )[list(TITLES)]
    cell = f"padding:2px 10px;border-bottom:1px solid {RULE};text-align:left"
    head = "".join(f"<th style='{cell}'>{title}</th>" for title in TITLES.values())
    lines = [
        "".join(f"<td style='{cell};white-space:pre'>{html.escape(str(v))}</td>" for v in values)
        for values in shown.itertuples(index=False)
    ]
    caption = f"next token watched: <b>{html.escape(frame['token'].iloc[0])}</b>"
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<div>{caption}<table><tr>{head}</tr>{body}</table></div>"
