"""The collision arcade in a real notebook: heads, rows and the choice of hash change the race."""

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def arcade(notebook):
    notebook.need("collisions")
    return notebook


def trace(figure, name: str) -> list:
    """Values of a trace; none while the figure is between two drawings."""
    return next((list(part["y"]) for part in figure["data"] if part.get("name") == name), [])


def handle(notebook, number: int):
    return notebook.cell("collisions").locator(".noUi-handle").nth(number)


def choose(notebook, label: str) -> None:
    notebook.cell("collisions").get_by_role("button", name=label, exact=True).click()


def test_the_slider_of_heads_adds_and_removes_bars(arcade):
    handle(arcade, 2).press("Home")
    figure = arcade.until("collisions", "has one head", lambda f: len(trace(f, "counted")) == 1)
    assert figure["drawn"] == len(figure["data"])
    handle(arcade, 2).press("End")
    arcade.until("collisions", "has eight heads", lambda f: len(trace(f, "counted")) == 8)


def test_more_rows_leave_less_company(arcade):
    shown = arcade.until("collisions", "has a prediction", lambda f: trace(f, "predicted") != [])
    before = trace(shown, "predicted")[:1]
    handle(arcade, 1).press("End")
    figure = arcade.until(
        "collisions", "has less company", lambda f: [] < trace(f, "predicted")[:1] < before
    )
    assert abs(trace(figure, "counted")[0] - trace(figure, "predicted")[0]) < 0.05


def test_one_prime_makes_all_heads_alike_and_back(arcade):
    choose(arcade, "one prime")
    arcade.until("collisions", "repeats the head", lambda f: len(set(trace(f, "counted"))) == 1)
    choose(arcade, "distinct primes")
    arcade.until("collisions", "differs again", lambda f: len(set(trace(f, "counted"))) > 1)
