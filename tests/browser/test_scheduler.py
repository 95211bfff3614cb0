"""The scheduler bench in a real notebook: load, cost curve and confidence change the lengths."""

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def bench(notebook):
    notebook.need("scheduler")
    return notebook


def lengths(figure) -> list[float]:
    """Verified drafts of every request; none while the figure is between two drawings."""
    bars = {part.get("name"): list(part["y"]) for part in figure["data"]}
    kept, vain = bars.get("verified and accepted", []), bars.get("verified in vain", [])
    return [sum(pair) for pair in zip(kept, vain, strict=False)]


def choose(notebook, menu: int, number: int) -> None:
    notebook.cell("scheduler").locator("select").nth(menu).select_option(index=number)


def test_more_requests_leave_fewer_drafts_to_each(bench):
    handle = bench.cell("scheduler").locator(".noUi-handle")
    handle.press("Home")
    alone = bench.until("scheduler", "has one request", lambda f: len(lengths(f)) == 1)
    assert lengths(alone) == [4]
    handle.press("End")
    crowd = bench.until("scheduler", "has 256 requests", lambda f: len(lengths(f)) == 256)
    assert sum(lengths(crowd)) < 256
    assert crowd["drawn"] == len(crowd["data"])


def test_another_cost_curve_and_another_confidence_change_the_picture(bench):
    before = bench.figures("scheduler")[0]["data"]
    choose(bench, 0, 1)
    other = bench.until("scheduler", "has other costs", lambda f: f["data"] and f["data"] != before)
    choose(bench, 1, 4)
    bench.until(
        "scheduler",
        "has another confidence",
        lambda f: lengths(f) and lengths(f) != lengths(other),
    )
