"""Costs of a step: the published rule, synthetic curves, timing, refusals."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from engram_lab.draft.costs import (
    CostTable,
    affine,
    from_steps_per_second,
    measure_cost_table,
    roofline,
    staircase,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "dspark_scheduler.json").read_text())


def test_the_published_rule_gives_the_golden_table():
    golden = GOLDEN["cost_table"]
    sizes, times = zip(*golden["profiled_points_tokens_ms"], strict=True)
    table = CostTable(sizes=tuple(sizes), seconds=tuple(times), captured=golden["graph_limit"])
    assert np.allclose(table.at(np.arange(golden["limit"] + 1)), golden["table_ms"], rtol=1e-6)


def test_a_larger_batch_never_costs_less():
    table = CostTable(sizes=(1, 2, 3), seconds=(2.0, 1.0, 3.0))
    assert table.at(np.array([1, 2, 3])).tolist() == [2, 2, 3]


def test_everything_captured_is_padded_and_goes_on_with_the_last_slope():
    table = CostTable(sizes=(4, 8), seconds=(1.0, 2.0), captured=8)
    assert table.at(np.array([1, 4, 5, 8, 12])).tolist() == [1, 1, 2, 2, 3]


def test_without_graphs_times_are_interpolated():
    table = CostTable(sizes=(1, 3), seconds=(1.0, 2.0))
    assert table.at(np.array([0, 1, 2, 3, 5])).tolist() == [1, 1, 1.5, 2, 3]
    assert table(2) == 1.5
    assert table.steps_per_second(np.array([3]))[0] == 0.5


def test_one_size_alone_makes_a_flat_table():
    table = CostTable(sizes=(4,), seconds=(2.0,))
    assert table.flat and table.slope == 0 and table(100) == 2
    assert not affine(base=1.0, per_token=0.1).flat


def test_rates_and_seconds_say_the_same():
    table = from_steps_per_second({2: 0.5, 1: 1.0})
    assert table.sizes == (1, 2) and table.seconds == (1.0, 2.0)


def test_synthetic_curves_have_their_shapes():
    tokens = np.array([1, 32, 33, 64])
    assert np.allclose(affine(base=1.0, per_token=1 / 48).at(tokens), 1 + tokens / 48)
    assert np.allclose(
        roofline(base=2.0, free_tokens=32).at(tokens), 2 * np.maximum(1, tokens / 32)
    )
    stairs = staircase(base=1.0, rise=0.5, width=32, stairs=2)
    assert stairs.at(np.array([1, 32, 33, 64, 96])).tolist() == [1, 1, 1.5, 1.5, 2]


def test_a_step_is_timed_at_every_size():
    calls = []

    def step(tokens: int) -> None:
        calls.append(tokens)
        time.sleep(0.002 * tokens)

    table = measure_cost_table(step, (4, 1), repeats=3, name="sleep")
    assert table.sizes == (1, 4) and calls == [1, 4] * 4
    assert 0.002 <= table.seconds[0] < table.seconds[1] and table.name == "sleep"


@pytest.mark.parametrize(
    "sizes, seconds, message",
    [
        ((), (), "at least one size"),
        ((0, 1), (1.0, 1.0), "ascending from 1"),
        ((2, 1), (1.0, 1.0), "ascending from 1"),
        ((1, 2), (1.0,), "2 positive times"),
        ((1, 2), (1.0, 0.0), "2 positive times"),
        ((1,), (float("nan"),), "1 positive times"),
    ],
)
def test_tables_that_cannot_be_are_refused(sizes, seconds, message: str):
    with pytest.raises(ValueError, match=message):
        CostTable(sizes=sizes, seconds=seconds)


def test_misuse_is_named():
    with pytest.raises(ValueError, match="captured"):
        CostTable(sizes=(1,), seconds=(1.0,), captured=-1)
    with pytest.raises(ValueError, match="rates|steps per second must be positive"):
        from_steps_per_second({1: 0.0})
    with pytest.raises(ValueError, match="free_tokens"):
        roofline(base=1.0, free_tokens=0)
    with pytest.raises(ValueError, match="width"):
        staircase(base=1.0, rise=0.1, width=0)
    with pytest.raises(ValueError, match="sizes of at least 1 token"):
        measure_cost_table(print, ())
