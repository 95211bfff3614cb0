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


def test_another_confidence_and_another_cost_curve_change_the_lengths(bench):
    handle = bench.cell("scheduler").locator(".noUi-handle")
    handle.press("Home")
    for _ in range(3):
        handle.press("ArrowRight")
    eight = bench.until("scheduler", "has eight requests", lambda f: len(lengths(f)) == 8)
    choose(bench, 1, 4)
    blind = bench.until(
        "scheduler",
        "has another confidence",
        lambda f: len(lengths(f)) == 8 and lengths(f) != lengths(eight),
    )
    assert max(lengths(blind)) - min(lengths(blind)) <= 1
    choose(bench, 0, 1)
    bench.until("scheduler", "verifies whole blocks on a stair", lambda f: lengths(f) == [4] * 8)
