"""The allocation slider in a real notebook: a dragged handle moves ring, curve and bars."""

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def slider(notebook):
    notebook.need("allocation")
    return notebook


def drag(notebook, number: int, share: float) -> None:
    """Pull the handle of a slider to so much of its length."""
    track = notebook.cell("allocation").locator(".noUi-target").nth(number)
    handle = track.locator(".noUi-handle")
    handle.scroll_into_view_if_needed()
    box, mouse = track.bounding_box(), notebook.page.mouse
    handle.hover()
    mouse.down()
    mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=5)
    mouse.up()


def trace(figure, name: str) -> dict:
    return next(part for part in figure["data"] if part.get("name") == name)


def test_dragging_the_ratio_moves_the_ring_and_the_class_losses(slider):
    drag(slider, 0, 0.0)
    figure = slider.until("allocation", "stands at 0", lambda shown: "ρ = 0 " in shown["title"])
    assert list(trace(figure, "this split")["x"]) == [0.0]
    drag(slider, 0, 1.0)
    figure = slider.until("allocation", "stands at 1", lambda shown: "ρ = 1 " in shown["title"])
    assert list(trace(figure, "this split")["x"]) == [1.0]
    assert figure["drawn"] == len(figure["data"])


def test_the_other_slider_changes_the_curve(slider):
    def shown_share(share: str):
        return lambda figure: any(f"{share} fixed phrases" in note for note in figure["notes"])

    drag(slider, 1, 1.0)
    strong = slider.until("allocation", "draws share 0.5", shown_share("50%"))
    drag(slider, 1, 0.0)
    weak = slider.until("allocation", "draws share 0.2", shown_share("20%"))
    assert trace(strong, "measured") != trace(weak, "measured")
    assert trace(strong, "20% phrases")
    assert trace(weak, "50% phrases")
