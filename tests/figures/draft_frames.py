"""Frames of drafters for the figure tests: accepted lengths and rates that are known."""

import itertools

import pandas as pd

GAINS = {"dspark": 20, "parallel": 10, "lookup": 5}


def length_rows(*, seeds=(0, 1), **factor) -> pd.DataFrame:
    """Two prompts of 10 rounds each; tokens gained are 10, a drafter's gain, seed and level."""
    (column, levels) = next(iter(factor.items()), ("drafter", tuple(GAINS)))
    rows = [
        {
            column: level,
            "seed": seed,
            "domain": domain,
            "temperature": temperature,
            "sequence": sequence,
            "rounds": 10,
            "emitted": 10 + GAINS.get(level, 0) + seed + 2 * levels.index(level),
            "draft_params": 0 if level == "lookup" else 1_000 * (1 + levels.index(level)),
        }
        for level, seed, domain, temperature, sequence in itertools.product(
            levels, seeds, ("structured", "prose"), (0.0, 1.0), (0, 1)
        )
    ]
    return pd.DataFrame(rows)


def position_rows(*, drafters=("parallel", "dspark"), seeds=(0, 1)) -> pd.DataFrame:
    """Rates of 0.8 that fall by 0.1 a position for every drafter but DSpark."""
    rows = [
        {
            "drafter": drafter,
            "seed": seed,
            "domain": domain,
            "temperature": 1.0,
            "position": position,
            "reached": 40 // position**2,
            "conditional_rate": 0.8 - 0.1 * (position - 1) * (drafter != "dspark") + 0.02 * seed,
        }
        for drafter, seed, domain, position in itertools.product(
            drafters, seeds, ("structured", "prose"), (1, 2, 3)
        )
    ]
    return pd.DataFrame(rows)
