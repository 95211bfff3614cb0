"""A cell that runs again, in a real notebook: one widget is alive, and it is asked once."""

import pytest

from tests.browser.lab import STILL

pytestmark = pytest.mark.browser

SENTENCES = {"gates": "four", "lens": "five and six", "microscope": "the King of Israel"}


@pytest.mark.parametrize("board", SENTENCES)
def test_running_the_cell_again_doubles_no_callback(notebook, board):
    notebook.need("model", board)
    type_sentence(notebook, board, "In the beginning")
    figures = len(notebook.figures(board))
    once = texts_read(notebook, board, SENTENCES[board])
    notebook.run(board)
    assert texts_read(notebook, board, SENTENCES[board]) == once > 0
    assert len(notebook.figures(board)) == figures == notebook.cell(board).locator(STILL).count()


def texts_read(notebook, board: str, sentence: str) -> int:
    """How many texts the tokenizer is given when a sentence is typed."""
    before = calls(notebook)
    type_sentence(notebook, board, sentence)
    return calls(notebook) - before


def type_sentence(notebook, board: str, sentence: str) -> None:
    """Type it, and wait until every figure below the cell has changed."""
    before = notebook.figures(board)
    field = notebook.cell(board).locator(".widget-text input")
    field.fill(sentence)
    field.press("Enter")
    for place, old in enumerate(before):
        notebook.until(board, f"figure {place} changes", differs(old["data"]), figure=place)


def differs(data: list):
    return lambda shown: shown["data"] not in ([], data)


def calls(notebook) -> int:
    notebook.run("calls")
    return int(notebook.printed("calls"))
