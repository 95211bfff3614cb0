"""Every experiment of the library, one constant each: `run(catalog.ENGRAM_ALLOCATION)`."""

from engram_lab.experiments.catalog.engram_allocation import (
    ENGRAM_ALLOCATION,
    ENGRAM_ALLOCATION_CONTROLS,
    ENGRAM_ALLOCATION_D1,
    ENGRAM_ALLOCATION_SHARES,
    ENGRAM_ALLOCATION_TEXT,
)

__all__ = [
    "ENGRAM_ALLOCATION",
    "ENGRAM_ALLOCATION_CONTROLS",
    "ENGRAM_ALLOCATION_D1",
    "ENGRAM_ALLOCATION_SHARES",
    "ENGRAM_ALLOCATION_TEXT",
]
