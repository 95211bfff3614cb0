"""The gate reader: what the field holds is what the figure shows."""

import pytest

from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.tokenizer import load_tokenizer
from engram_lab.widgets.gates import gate_reader


@pytest.fixture(scope="module")
def parts():
    tokenizer = load_tokenizer("byte")
    compression = VocabCompression.from_tokenizer(tokenizer)
    return EngramLM(tiny(tokenizer.vocab_size), compression=compression).eval(), tokenizer


def tokens_shown(box) -> int:
    return sum(len(trace.x) for trace in box.children[2].data)


def test_a_new_sentence_redraws_the_strip_in_place(parts):
    box = gate_reader(*parts, text="one")
    picture, before = box.children[2], tokens_shown(box)
    box.children[0].value = "one and two"
    assert box.children[2] is picture
    assert tokens_shown(box) > before


def test_a_text_that_cannot_be_read_says_why_and_keeps_the_picture(parts):
    box = gate_reader(*parts, text="one")
    before = tokens_shown(box)
    box.children[0].value = ""
    assert "at least one token" in box.children[1].value
    assert tokens_shown(box) == before
