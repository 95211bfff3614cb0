"""The gate reader in a real notebook: typing a sentence, running its cell again."""

import pytest

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


def calls(notebook) -> int:
    notebook.run("calls")
    return int(notebook.printed("calls"))


def test_a_typed_sentence_changes_the_strip(reader):
    type_sentence(reader, "one and two")
    figure = reader.until("gates", "shows it", lambda shown: text_of(shown) == "one and two")
    assert any("11 tokens" in note for note in figure["notes"])
    assert figure["drawn"] == len(figure["data"])


def test_a_text_that_cannot_be_read_keeps_the_picture(reader):
    type_sentence(reader, "kept")
    reader.until("gates", "shows it", lambda shown: text_of(shown) == "kept")
    type_sentence(reader, "")
    reader.cell("gates").get_by_text("at least one token").wait_for()
    assert text_of(reader.figures("gates")[0]) == "kept"


def test_running_the_cell_again_doubles_nothing(reader):
    reader.run("gates")
    before = calls(reader)
    type_sentence(reader, "four")
    reader.until("gates", "shows it", lambda shown: text_of(shown) == "four")
    assert len(reader.figures("gates")) == 1
    assert calls(reader) == before + 1
