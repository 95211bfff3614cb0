"""Budgets of training: the middle one is that of the drafters' table, and drafts are counted."""

import pytest

from engram_lab.experiments import catalog
from engram_lab.experiments.catalog.dspark_budget import (
    budget_run,
    supervised_drafts,
    updates,
)
from engram_lab.experiments.catalog.dspark_drafters import drafter_run


@pytest.mark.parametrize("drafter", ["parallel_same", "dspark", "mtp"])
def test_the_middle_budget_is_the_run_of_the_drafters_table(drafter: str, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    assert budget_run(drafter, updates()[1], 2) == drafter_run(drafter, 2)
    points = catalog.DSPARK_BUDGET.points()
    assert len(points) == 3 * (3 + 3 + 2)


def test_drafts_learned_from_are_counted_by_where_a_drafter_starts(monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    block, chain = (supervised_drafts(budget_run(name, 100, 0)) for name in ("dspark", "mtp"))
    assert (block, chain) == (100 * 16 * 8 * 7, 100 * 16 * 48 * 7)
