"""The draft theatre in a real notebook: Play walks through the rounds, a drafter leaves."""

import pytest

from engram_lab.figures.theatre import PHASES

pytestmark = pytest.mark.browser


@pytest.fixture
def theatre(notebook):
    notebook.need("theatre")
    return notebook


def boxes(figure, name: str) -> int:
    """Tokens of that name on all stages; 0 while the figure is between two drawings."""
    traces = [part for part in figure["data"] if part.get("name") == name]
    return sum(x is not None for trace in traces for x in trace["x"])


def title(figure) -> str:
    return figure["title"] or ""


def test_the_slider_walks_from_a_proposed_block_to_a_kept_prefix(theatre):
    handle = theatre.cell("theatre").locator(".noUi-handle").last
    handle.press("Home")
    shown = theatre.until("theatre", "proposes", lambda f: PHASES["proposed"] in title(f))
    assert boxes(shown, "base logits alone") and not boxes(shown, "accepted")
    for phase in list(PHASES)[1:]:
        handle.press("ArrowRight")
        shown = theatre.until("theatre", phase, lambda f, said=PHASES[phase]: said in title(f))
    assert boxes(shown, "correction") + boxes(shown, "bonus") == boxes(shown, "anchor") == 2
    assert shown["drawn"] == len(shown["data"])


def test_play_goes_on_by_itself(theatre):
    cell = theatre.cell("theatre")
    cell.locator(".noUi-handle").last.press("Home")
    theatre.until("theatre", "is at the start", lambda f: PHASES["proposed"] in title(f))
    cell.locator(".widget-play button").first.click()
    theatre.until("theatre", "has come to round 2", lambda f: "Round 2" in title(f))
    cell.locator(".widget-play button").first.click()


def test_a_drafter_leaves_and_comes_back(theatre):
    box = theatre.cell("theatre").locator(".widget-checkbox input").last
    box.uncheck()
    theatre.until("theatre", "has one stage", lambda f: boxes(f, "anchor") == 1)
    box.check()
    theatre.until("theatre", "has two stages", lambda f: boxes(f, "anchor") == 2)
    assert theatre.cell("theatre").locator(".noUi-handle").last.is_visible()
