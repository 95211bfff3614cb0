"""The draft theatre: the slider looks, the other controls decode; the stage changes in place."""

import pytest

from engram_lab.draft.generate import GenerationConfig
from engram_lab.draft.sampling import Sampling
from engram_lab.figures.theatre import PHASES, round_stage
from engram_lab.probes.theatre import theatre_frame
from engram_lab.widgets.draft_theatre import draft_theatre
from tests.probes.drafted_theatre import company

TEXT, TOKENS = "The end", 10
GREEDY = GenerationConfig(max_new_tokens=TOKENS, sampling=Sampling(temperature=0.0))


@pytest.fixture(scope="module")
def parts():
    return company()


def opened(parts):
    board = draft_theatre(*parts, TEXT, max_new_tokens=TOKENS)
    field, message, chosen, moves, picture = board.children
    return field, message, chosen.children, moves.children, picture


def drafters(picture) -> int:
    return sum(trace.name == "anchor" for trace in picture.data)


def test_it_opens_on_what_the_plain_calls_show(parts):
    *_, (_, step), picture = opened(parts)
    target, models, tokenizer = parts
    frame = theatre_frame(target, models, TEXT, tokenizer, config=GREEDY)
    plain = round_stage(frame, round=0, phase="proposed")
    assert picture.layout.title.text == plain.layout.title.text
    assert [trace.x for trace in picture.data] == [trace.x for trace in plain.data]
    assert step.max == len(PHASES) * (frame["round"].max() + 1) - 1


def test_play_moves_the_slider_and_the_stage_in_place(parts):
    *_, (play, step), picture = opened(parts)
    titles = []
    for value in range(len(PHASES) + 1):
        play.value = value
        titles.append(picture.layout.title.text)
    assert step.value == len(PHASES)
    assert all(said in title for said, title in zip(PHASES.values(), titles, strict=False))
    assert "Round 2" in titles[-1]


def test_a_new_prompt_starts_again_at_the_first_step(parts):
    field, message, _, (_, step), picture = opened(parts)
    step.value = 3
    field.value = "In the beginning"
    assert step.value == 0 and not message.value
    assert "In\u00a0the\u00a0beginning" in picture.layout.annotations[-1].text


def test_drafters_leave_and_the_temperature_changes_the_draws(parts):
    _, message, (first, second, temperature), (_, step), picture = opened(parts)
    assert drafters(picture) == 2
    second.value = False
    assert drafters(picture) == 1
    temperature.value = 2.0
    assert "temperature 2" in picture.layout.annotations[-1].text
    first.value = False
    assert "at least one drafter" in message.value and drafters(picture) == 1
    step.value = 2
    assert PHASES["confidence"] in picture.layout.title.text


def test_a_prompt_that_cannot_be_read_says_why_and_keeps_the_stage(parts):
    field, message, *_, picture = opened(parts)
    before = picture.layout.title.text
    field.value = ""
    assert "at least one token" in message.value
    assert picture.layout.title.text == before


def test_the_controls_let_go_when_the_board_closes(parts):
    board = draft_theatre(*parts, TEXT, max_new_tokens=TOKENS)
    play, step = board.children[3].children
    board.close_all()
    play.value = 1
    assert step.value == 0
