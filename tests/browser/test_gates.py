"""The gate reader in a real notebook: typing a sentence, and one that cannot be read."""

import pytest

from engram_lab.tokens.tokenizer import load_tokenizer

pytestmark = pytest.mark.browser


@pytest.fixture
def reader(notebook):
    notebook.need("model", "gates")
    return notebook


def type_sentence(notebook, sentence: str) -> None:
    field = notebook.cell("gates").locator(".widget-text input")
    field.fill(sentence)
    field.press("Enter")


def text_of(figure) -> str:
    tokens = (token for trace in figure["data"] for token in trace["text"])
    return "".join(tokens).replace("\u00a0", " ")


def test_a_typed_sentence_changes_the_strip(reader):
    type_sentence(reader, "one and two")
    figure = reader.until("gates", "shows it", lambda shown: text_of(shown) == "one and two")
    tokens = len(load_tokenizer("bpe4k").encode_ids("one and two"))
    assert any(f"{tokens} tokens" in note for note in figure["notes"])
    assert figure["drawn"] == len(figure["data"])


def test_a_text_that_cannot_be_read_keeps_the_picture(reader):
    type_sentence(reader, "kept")
    reader.until("gates", "shows it", lambda shown: text_of(shown) == "kept")
    type_sentence(reader, "")
    reader.cell("gates").get_by_text("at least one token").wait_for()
    assert text_of(reader.figures("gates")[0]) == "kept"
