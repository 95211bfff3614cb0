"""Every experiment of the catalogue, one constant each."""

from engram_lab.experiments.catalog.engram_allocation import (
    ENGRAM_ALLOCATION,
    ENGRAM_ALLOCATION_CONTROLS,
    ENGRAM_ALLOCATION_D1,
    ENGRAM_ALLOCATION_SHARES,
    ENGRAM_ALLOCATION_TEXT,
    QUICKSTART,
)

__all__ = [
    "ENGRAM_ALLOCATION",
    "ENGRAM_ALLOCATION_CONTROLS",
    "ENGRAM_ALLOCATION_D1",
    "ENGRAM_ALLOCATION_SHARES",
    "ENGRAM_ALLOCATION_TEXT",
    "QUICKSTART",
]
