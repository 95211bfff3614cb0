"""The results that ship are whole and sound, so that notebooks open on them and train nothing."""

import pytest

from engram_lab.configs import fingerprint
from engram_lab.experiments import Sweep, catalog
from engram_lab.experiments.store import Store

SHIPPED = [
    catalog.ENGRAM_ALLOCATION,
    catalog.ENGRAM_ALLOCATION_TEXT,
    catalog.ENGRAM_ALLOCATION_SHARES,
    catalog.ENGRAM_ALLOCATION_D1,
    catalog.ENGRAM_ALLOCATION_CONTROLS,
]


@pytest.mark.parametrize("sweep", SHIPPED, ids=lambda sweep: sweep.name)
def test_every_point_ships_with_at_least_three_seeds(sweep: Sweep, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", "workshop")
    store, missing = Store.of(sweep.name), []
    for point in sweep.points():
        config = sweep.configure(**point)
        if not store.holds(fingerprint(config), point, config=config):
            missing.append(point)
    assert not missing
    assert len({point["seed"] for point in sweep.points()}) >= 3
