"""A notebook with its outputs, opened where its kernel is gone: pictures instead of widgets."""

import re
import time

import nbformat
import pytest

from tests.browser.cells import BOARDS
from tests.browser.lab import LIVE, PATIENCE, STILL

pytestmark = pytest.mark.browser

LOST = re.compile("model not found|Loading widget")


@pytest.fixture(scope="module")
def saved(opened, lab):
    """The notebook as it is stored once JupyterLab has put an image beside every figure."""
    opened.need("model", *BOARDS)
    figures = sum(opened.cell(board).locator(STILL).count() for board in BOARDS)
    patient_until = time.monotonic() + PATIENCE
    while images(stored := opened.save()) < figures and time.monotonic() < patient_until:
        opened.page.wait_for_timeout(500)
    lab.end_kernels()
    return stored


def images(stored: nbformat.NotebookNode) -> int:
    outputs = [output for cell in stored.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def assert_pictures_alone(notebook) -> None:
    for board in BOARDS:
        cell = notebook.cell(board)
        cell.scroll_into_view_if_needed()
        cell.locator(STILL).first.wait_for(state="visible")
        assert cell.get_by_text("run the cell to have its controls").first.is_visible()
        assert not any(lost.is_visible() for lost in cell.get_by_text(LOST).all())


def test_beside_a_live_widget_its_picture_is_out_of_sight(notebook):
    notebook.need("model", *BOARDS)
    for board in BOARDS:
        cell = notebook.cell(board)
        cell.locator(LIVE).first.wait_for(state="visible")
        assert cell.locator(STILL).count() == cell.locator(LIVE).count()
        assert not any(still.is_visible() for still in cell.locator(STILL).all())


def test_the_saved_notebook_carries_an_image_for_readers_without_plotly(saved):
    assert images(saved) >= len(BOARDS)


def test_no_cell_has_printed_a_warning(saved):
    outputs = [output for cell in saved.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]


def test_opened_again_without_its_kernel_it_shows_pictures(saved, notebook):
    notebook.open()
    assert_pictures_alone(notebook)


def test_a_notebook_of_somebody_else_shows_pictures_too(saved, lab, notebook):
    changed = nbformat.v4.new_markdown_cell("Changed elsewhere, so that it is not trusted here.")
    lab.write(notebook.name, nbformat.from_dict(saved | {"cells": [*saved.cells, changed]}))
    notebook.open()
    assert_pictures_alone(notebook)


def test_no_page_asks_another_machine_for_anything(saved, asked_hosts):
    assert asked_hosts <= {"127.0.0.1", "", None}
