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
    cell, place = scope.cell("microscope"), 1
    strip = cell.locator(LIVE).nth(STRIP)
    strip.scroll_into_view_if_needed()
    point, mouse = strip.locator(".bars .point").nth(place), scope.page.mouse

    def clicked() -> bool:
        box = point.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        mouse.move(x, y - 4)
        mouse.move(x, y)
        if strip.locator(".hoverlayer .hovertext").count():  # plotly clicks what it hovers over
            mouse.down()
            mouse.up()
        return chosen(cell).startswith(f"{place}: ")

    scope.wait("the menu stands at the token", clicked)


def chosen(cell) -> str:
    text = cell.locator("select").evaluate("(menu) => menu.selectedOptions[0].text")
    return text.replace("\u00a0", " ")  # ipywidgets keeps spaces so


def test_a_switched_off_module_moves_the_list_and_back(scope):
    def lengths(figure) -> list:
        return [list(trace["x"]) for trace in figure["data"] if trace["type"] == "bar"]

    box = scope.cell("microscope").locator(".widget-checkbox input").first
    before = lengths(scope.figures("microscope")[BARS])
    box.check()
    scope.until("microscope", "moved", lambda shown: lengths(shown) != before, figure=BARS)
    box.uncheck()
    scope.until("microscope", "is back", lambda shown: lengths(shown) == before, figure=BARS)
