"""The memory microscope in a real notebook: a clicked token, a part switched off."""

import pytest

from tests.browser.lab import LIVE

pytestmark = pytest.mark.browser

STRIP, BARS = 0, 1


@pytest.fixture
def scope(notebook):
    notebook.need("model", "microscope")
    notebook.until("microscope", "has bars", lambda shown: shown["data"], figure=BARS)
    return notebook


def test_a_click_on_a_token_chooses_it(scope):
    cell = scope.cell("microscope")
    strip = cell.locator(LIVE).nth(STRIP)
    strip.scroll_into_view_if_needed()
    box = strip.locator(".bars .point").nth(2).bounding_box()
    mouse = scope.page.mouse
    mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    strip.locator(".hoverlayer .hovertext").wait_for()
    mouse.down()
    mouse.up()
    cell.get_by_text("next token watched: e").wait_for()
    assert cell.locator("select").input_value() == "2: e"


def test_a_switched_off_module_moves_the_list_and_back(scope):
    def lengths(figure) -> list:
        return [list(trace["x"]) for trace in figure["data"] if trace["type"] == "bar"]

    box = scope.cell("microscope").locator(".widget-checkbox input").first
    before = lengths(scope.figures("microscope")[BARS])
    box.check()
    scope.until("microscope", "moved", lambda shown: lengths(shown) != before, figure=BARS)
    box.uncheck()
    scope.until("microscope", "is back", lambda shown: lengths(shown) == before, figure=BARS)
