"""The CKA explorer in a real notebook: another estimator, fewer positions, another map."""

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def explorer(notebook):
    notebook.need("model", "cka")
    return notebook


def cells(figure) -> list:
    return figure["data"][0]["z"] if figure["data"] else []


def test_the_menu_of_estimators_changes_the_map_and_its_footer(explorer):
    menu = explorer.cell("cka").locator("select").nth(1)
    menu.select_option("biased")
    biased = explorer.until("cka", "is biased", says("biased: above 0"))
    menu.select_option("debiased")
    debiased = explorer.until("cka", "is debiased", says("debiased: around 0"))
    assert cells(biased) != cells(debiased)
    assert debiased["drawn"] == len(debiased["data"])


def test_a_shorter_range_of_positions_changes_the_map(explorer):
    before = cells(explorer.figures("cka")[0])
    handle = explorer.cell("cka").locator(".noUi-handle").first
    handle.focus()
    for _ in range(3):
        handle.press("ArrowRight")
    explorer.until("cka", "has changed", lambda shown: cells(shown) not in ([], before))


def says(text: str):
    return lambda figure: any(text in note for note in figure["notes"])
