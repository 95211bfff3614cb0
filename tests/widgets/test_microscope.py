"""The microscope: what is typed, clicked and switched is what it shows; the model stays."""

from types import SimpleNamespace

import ipywidgets
import pytest
import torch
from plotly.callbacks import Points

from engram_lab.probes.rows import KeyUse, RowUse
from engram_lab.widgets import microscope
from engram_lab.widgets.microscope import memory_microscope
from tests.probes.planted_row import HEAD, LAYER, ORDER, PROMPT, TARGET, planted_row


@pytest.fixture(scope="module")
def made():
    return planted_row()


@pytest.fixture
def scope(made):
    return view(memory_microscope(made.model, made.tokenizer, PROMPT))


def view(board):
    """The parts of a board under their names."""
    field, message, strip, token, table, parts, rows, bars = board.children
    boxes = {box.description: box for part in (parts, rows) for box in part.children[1].children}
    return SimpleNamespace(
        field=field, message=message, strip=strip, token=token, table=table, bars=bars, boxes=boxes
    )


def rows_named(scope) -> list[str]:
    return [name for name in scope.boxes if "row" in name]


def click(scope, place: int) -> None:
    scope.strip.data[0]._dispatch_on_click(Points(point_inds=[place]), None)


def bar_of(scope, name: str) -> dict[str, float]:
    (bar,) = [trace for trace in scope.bars.data if trace.name.startswith(name)]
    return {tokens[0]: length for tokens, length in zip(bar.customdata, bar.x, strict=True)}


def test_it_opens_on_the_last_token_with_its_rows_and_what_they_say(scope, made):
    assert scope.token.value == len(PROMPT) - 1
    planted = f"block {LAYER}, order {ORDER}, head {HEAD}, row {made.row}"
    assert planted in scope.boxes and len(rows_named(scope)) == 4
    assert f">{made.row}</td>" in scope.table.value and f">{TARGET}</td>" in scope.table.value
    assert bar_of(scope, "all")[TARGET] > 0.9 and bar_of(scope, "off")[TARGET] > 0.9


def test_a_row_that_is_switched_off_moves_the_list_and_back(scope, made):
    bars = scope.bars
    box = scope.boxes[f"block {LAYER}, order {ORDER}, head {HEAD}, row {made.row}"]
    box.value = True
    assert bar_of(scope, "all")[TARGET] > 0.9 and bar_of(scope, "off")[TARGET] < 0.1
    assert str(made.row) in scope.bars.data[1].name
    box.value = False
    assert bar_of(scope, "off")[TARGET] > 0.9 and scope.bars is bars


@pytest.mark.parametrize("part", ["block 1", "block 1, order 3", "block 1, head 1"])
def test_parts_that_hold_the_row_take_the_token_away(scope, part):
    scope.boxes[part].value = True
    assert bar_of(scope, "off")[TARGET] < 0.1


def test_parts_stay_off_and_rows_come_back_when_another_token_is_chosen(scope, made):
    scope.boxes["block 1, order 2"].value = True
    scope.boxes[rows_named(scope)[0]].value = True
    scope.token.value = 3
    assert scope.boxes["block 1, order 2"].value
    assert not any(box.value for name, box in scope.boxes.items() if "row" in name)
    assert scope.bars.data[1].name == "off: block 1, order 2"


def test_a_click_chooses_the_token(scope, made):
    before = scope.table.value
    click(scope, 2)
    assert scope.token.value == 2 and scope.table.value != before
    assert "he</td>" in scope.table.value
    widths = [list(trace.marker.line.width) for trace in scope.strip.data]
    assert all(line.index(max(line)) == 2 for line in widths)


def test_a_new_sentence_is_read_in_place_and_its_tokens_answer_clicks(scope):
    strip, bars, token = scope.strip, scope.bars, scope.token
    scope.field.value = "a king"
    assert scope.strip is strip and scope.bars is bars
    assert len(strip.data[0].x) == len(token.options) == 6 and token.value == 5
    click(scope, 0)
    assert token.value == 0 and "⊢a</td>" in scope.table.value


def test_a_text_that_cannot_be_read_says_why_and_everything_stays(scope):
    before = scope.table.value
    scope.field.value = ""
    assert "at least one token" in scope.message.value
    assert scope.table.value == before and len(scope.token.options) == len(PROMPT)
    click(scope, 1)  # still about the text that is shown
    assert scope.token.value == 1
    scope.field.value = "x<y"
    assert scope.message.value == "" and "x&lt;y" in scope.table.value


def test_who_shares_a_row_is_told_where_an_index_is_at_hand(made):
    class Index:
        def use(self, layer, order, head, row):
            return RowUse(41, 2, [KeyUse((1, 2), "<of>", 40)])

    scope = view(memory_microscope(made.model, made.tokenizer, PROMPT, index=Index()))
    assert "&lt;of&gt; ×40 and 1 more" in scope.table.value and ">41</td>" in scope.table.value


def test_one_change_is_answered_once_however_often_the_cell_ran(made, monkeypatch):
    answers = []
    real = microscope.next_token_frame
    monkeypatch.setattr(
        microscope, "next_token_frame", lambda *a, **k: answers.append(k) or real(*a, **k)
    )
    scopes = [view(memory_microscope(made.model, made.tokenizer, PROMPT)) for _ in range(3)]
    for text in ("one", "two", "three"):
        scopes[-1].field.value = text
    answers.clear()
    click(scopes[-1], 1)
    assert len(answers) == 1
    scopes[-1].boxes["block 1"].value = True
    assert len(answers) == 2
    scopes[-1].field.value = "four"
    assert len(answers) == 3
    assert scopes[0].field.value == PROMPT


def test_the_model_is_left_as_it_was(made):
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    scope = view(memory_microscope(made.model, made.tokenizer, PROMPT))
    scope.boxes["block 1"].value = True
    click(scope, 1)
    assert not any(module._forward_hooks for module in made.model.modules())
    after = made.model.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())


def test_the_first_text_must_be_readable(made):
    with pytest.raises(ValueError, match="at least one token"):
        memory_microscope(made.model, made.tokenizer, "")


def test_it_is_a_box(made):
    board = memory_microscope(made.model, made.tokenizer, PROMPT)
    assert isinstance(board, ipywidgets.VBox) and len(board.figures) == 2
