"""The scheduler bench: every control changes the picture in place; it shows what the calls show."""

import pytest

from engram_lab.draft.costs import affine, roofline, staircase
from engram_lab.figures.schedule_bench import bench_figure
from engram_lab.probes.confidence import records_of
from engram_lab.probes.schedule import (
    CONCURRENCY,
    batch_frame,
    default_rules,
    schedule_frame,
    traces_of,
    walk_frame,
)
from engram_lab.widgets.scheduler import scheduler_bench
from tests.probes.drafted_rounds import drafted

COSTS = {
    "roofline": roofline(base=0.02, free_tokens=32),
    "staircase": staircase(base=0.02, rise=0.01, width=16),
}


def records():
    return records_of(*drafted(80, positions=4))


def controls(board):
    row, picture = board.children
    return (*row.children, picture)


def verified(picture) -> list[float]:
    return [bar + vain for bar, vain in zip(picture.data[0].y, picture.data[1].y, strict=True)]


def test_it_opens_on_what_the_plain_calls_show():
    *_, picture = controls(scheduler_bench(records(), COSTS, concurrency=8, steps=4))
    traces, table = traces_of(records(), quality="sequential"), COSTS["roofline"]
    here = {"concurrency": 8, "steps": 4}
    plain = bench_figure(
        schedule_frame(traces, table, concurrency=(8,), steps=4),
        batch_frame(traces, default_rules(4, table), **here),
        walk_frame(traces, table, **here),
    )
    assert picture.layout.title.text == plain.layout.title.text
    assert [list(trace.x) for trace in picture.data] == [list(trace.x) for trace in plain.data]


def test_every_control_changes_the_picture_in_place():
    board = scheduler_bench(records(), COSTS, concurrency=8, steps=4)
    load, curve, quality, picture = controls(board)
    for control, value in ((load, 32), (curve, "staircase"), (quality, "raw")):
        before = [list(trace.y) for trace in picture.data] + [list(picture.data[3].x)]
        control.value = value
        after = [list(trace.y) for trace in picture.data] + [list(picture.data[3].x)]
        assert before != after, control.description
    assert controls(board)[-1] is picture and len(verified(picture)) == 32


def test_under_load_fewer_drafts_are_verified():
    load, *_, picture = controls(scheduler_bench(records(), COSTS, concurrency=1, steps=4))
    assert verified(picture) == [4]
    load.value = CONCURRENCY[-1]
    assert sum(verified(picture)) < 256 / 2


def test_the_time_of_drafting_is_part_of_the_picture():
    free = controls(scheduler_bench(records(), COSTS, steps=4))[-1]
    paid = controls(
        scheduler_bench(records(), COSTS, steps=4, draft_costs=affine(base=0.05, per_token=0.001))
    )[-1]
    assert max(paid.data[3].y) < max(free.data[3].y)


def test_a_bench_without_costs_is_refused():
    with pytest.raises(ValueError, match="needs a cost table"):
        scheduler_bench(records(), {})
