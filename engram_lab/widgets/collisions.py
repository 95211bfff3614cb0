"""Collision arcade: choose a hash, and watch the prediction race the count."""

from collections.abc import Callable

import ipywidgets
import plotly.graph_objects as go

from engram_lab.figures.collision_race import collision_race
from engram_lab.figures.row_loads import LENGTHS, MULTIPLIERS
from engram_lab.probes.collision_race import race_frame, race_loads
from engram_lab.widgets.base import Board, Picture, redraw

STEPS = tuple(round(10 ** (tenth / 10)) for tenth in range(20, 56))
"""Stops of the sliders for keys and rows: 100 to 316,228, ten to a decade."""
MOST_HEADS = 8


def collision_arcade(*, keys: int = 20_000, rows: int = 50_000, heads: int = 4) -> ipywidgets.VBox:
    """Sliders for n-grams, rows and heads, choices of multipliers and lengths, over the race.

    Without controls: `collision_race(race_frame(**hash), race_loads(**hash))` with the same
    numbers, `hash = {"keys": 20_000, "rows": 50_000, "heads": 4, "multipliers": "odd", "lengths":
    "primes"}`.

    Args:
        keys: distinct n-grams at first; the slider stops at the nearest of `STEPS`.
        rows: rows per head at first; likewise.
        heads: hash heads at first.

    Raises:
        ValueError: if a number is below 1 or there are more than `MOST_HEADS` heads.
    """
    if keys < 1 or rows < 1 or not 1 <= heads <= MOST_HEADS:
        raise ValueError(
            f"collision_arcade needs keys and rows of at least 1 and heads in 1..{MOST_HEADS}; got "
            f"{keys}, {rows} and {heads}"
        )
    controls = {
        "keys": _steps("n-grams", keys),
        "rows": _steps("rows a head", rows),
        "heads": ipywidgets.IntSlider(
            value=heads, min=1, max=MOST_HEADS, description="heads", continuous_update=False
        ),
        "multipliers": _choice("multipliers", MULTIPLIERS),
        "lengths": _choice("table lengths", LENGTHS),
    }

    def chosen() -> go.Figure:
        values = {name: control.value for name, control in controls.items()}
        return collision_race(race_frame(**values), race_loads(**values))

    picture = Picture(chosen())
    for control in controls.values():
        control.observe(_redraw(picture, chosen), names="value")
    sliders = [controls[name] for name in ("keys", "rows", "heads")]
    choices = [controls[name] for name in ("multipliers", "lengths")]
    return Board([ipywidgets.HBox(sliders), ipywidgets.HBox(choices), picture])


def _redraw(picture: go.FigureWidget, chosen: Callable[[], go.Figure]) -> Callable[[dict], None]:
    return lambda _: redraw(picture, chosen())


def _steps(name: str, value: int) -> ipywidgets.SelectionSlider:
    nearest = min(STEPS, key=lambda step: abs(step - value))
    return ipywidgets.SelectionSlider(
        options=[(f"{step:,}", step) for step in STEPS],
        value=nearest,
        description=name,
        continuous_update=False,
        layout=ipywidgets.Layout(width="330px"),
    )


def _choice(name: str, labels: dict[str, str]) -> ipywidgets.ToggleButtons:
    return ipywidgets.ToggleButtons(
        options=[(label, value) for value, label in labels.items()],
        description=name,
        style={"button_width": "auto"},
    )
