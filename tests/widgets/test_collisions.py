"""The collision arcade: every control changes the race in place, and shows what the call shows."""

import pytest

from engram_lab.figures.collision_race import collision_race
from engram_lab.probes.collision_race import race_frame, race_loads
from engram_lab.widgets.collisions import MOST_HEADS, STEPS, collision_arcade


def controls(board):
    sliders, choices, picture = board.children
    return (*sliders.children, *choices.children, picture)


def counted(picture) -> list[float]:
    return list(picture.data[0].y)


def test_it_opens_on_what_the_plain_call_shows():
    keys, rows, *_, picture = controls(collision_arcade(keys=200, rows=500, heads=3))
    plain = collision_race(
        race_frame(keys=keys.value, rows=rows.value, heads=3),
        race_loads(keys=keys.value, rows=rows.value, heads=3),
    )
    assert counted(picture) == counted(plain)
    assert picture.layout.title.text == plain.layout.title.text


def test_every_control_changes_the_race_in_place():
    board = collision_arcade(keys=1_000, rows=1_000, heads=2)
    keys, rows, heads, multipliers, lengths, picture = controls(board)
    for control, value in (
        (keys, 5_012),
        (rows, 2_512),
        (heads, 3),
        (multipliers, "small"),
        (lengths, "power_of_two"),
    ):
        before = picture.layout.title.text
        control.value = value
        assert picture.layout.title.text != before, control.description
    assert controls(board)[-1] is picture and len(counted(picture)) == 3


def test_one_length_for_all_heads_makes_heads_useless():
    *_, lengths, picture = controls(collision_arcade(keys=1_000, rows=1_000, heads=3))
    first = counted(picture)
    lengths.value = "equal"
    assert first[2] < first[0] and len(set(counted(picture))) == 1


def test_sliders_stop_at_the_nearest_step():
    keys, rows, *_ = controls(collision_arcade(keys=1, rows=10**9))
    assert (keys.value, rows.value) == (STEPS[0], STEPS[-1])


def test_two_boards_do_not_move_each_other():
    first, second = collision_arcade(keys=200, rows=500), collision_arcade(keys=200, rows=500)
    controls(second)[2].value = 1
    assert len(counted(controls(first)[-1])) == 4 and len(counted(controls(second)[-1])) == 1


@pytest.mark.parametrize("bad", [{"keys": 0}, {"rows": 0}, {"heads": MOST_HEADS + 1}])
def test_nonsense_is_refused(bad):
    with pytest.raises(ValueError, match="needs keys and rows of at least 1"):
        collision_arcade(**bad)
