"""Tiny, workshop, full: one switch that changes sizes and no code.

`tiny` takes seconds and serves tests, `workshop` is what notebooks and committed results use on two
CPU cores, `full` wants one GPU. The switch is the environment variable `ENGRAM_LAB_SCALE`, so
notebooks need no edit.
"""

import os
from typing import TypeVar

SCALES = ("tiny", "workshop", "full")

Value = TypeVar("Value")


def current_scale() -> str:
    """Name of the scale in force.

    Raises:
        ValueError: if `ENGRAM_LAB_SCALE` is set to something else than tiny, workshop or full.
    """
    scale = os.environ.get("ENGRAM_LAB_SCALE", "workshop")
    if scale not in SCALES:
        raise ValueError(f"ENGRAM_LAB_SCALE must be one of {', '.join(SCALES)}; got {scale!r}")
    return scale


def pick(*, tiny: Value, workshop: Value, full: Value) -> Value:
    """The value for the scale in force."""
    return {"tiny": tiny, "workshop": workshop, "full": full}[current_scale()]
