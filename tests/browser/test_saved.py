"""A notebook with its outputs, opened where its kernel is gone: pictures instead of widgets."""

import re

import nbformat
import pytest

from tests.browser.cells import BOARDS
from tests.browser.lab import LIVE, STILL

pytestmark = pytest.mark.browser

LOST = re.compile("model not found|Loading widget")


@pytest.fixture
def run(notebook):
    notebook.need("model", *BOARDS)
    return notebook


def assert_pictures_alone(notebook) -> None:
    for board in BOARDS:
        cell = notebook.cell(board)
        cell.scroll_into_view_if_needed()
        cell.locator(STILL).first.wait_for(state="visible")
        assert cell.get_by_text("run the cell to have its controls").first.is_visible()
        assert not any(lost.is_visible() for lost in cell.get_by_text(LOST).all())


def test_beside_a_live_widget_its_picture_is_out_of_sight(run):
    for board in BOARDS:
        cell = run.cell(board)
        assert cell.locator(LIVE).first.is_visible()
        assert cell.locator(STILL).count() == cell.locator(LIVE).count()
        assert not any(still.is_visible() for still in cell.locator(STILL).all())


def test_saved_and_opened_again_without_its_kernel_it_shows_pictures(run, lab):
    run.save()
    lab.end_kernels()
    run.open()
    assert_pictures_alone(run)


def test_a_notebook_of_somebody_else_shows_pictures_too(run, lab):
    saved = run.save()
    lab.end_kernels()
    saved.cells.append(nbformat.v4.new_markdown_cell("Changed elsewhere, so not trusted here."))
    lab.write(run.name, saved)
    run.open()
    assert_pictures_alone(run)


def test_the_saved_notebook_carries_an_image_for_readers_without_plotly(run):
    for output in run.cell(BOARDS[0]).locator(STILL).all():
        output.locator("img").first.wait_for(state="attached")
    saved = run.save()
    images = [output for cell in saved.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in images) >= len(BOARDS)


def test_no_page_asks_another_machine_for_anything(run, asked_hosts):
    assert asked_hosts <= {"127.0.0.1", "", None}
