"""E13, what the hot tier costs in time: the arms of equal rows, untrained, on the same tokens.

`hash` is the usual memory; `hot_cold` finds hot n-grams by bisection in sorted keys, as the trained
arms do; `hot_cold_perfect` by a minimal perfect hash with a check of 16 bits, as the source does.

Source: arXiv:2601.16531 (table 3), secondary.
"""

from dataclasses import dataclass
from functools import partial

import pandas as pd
import torch

from engram_lab.experiments.catalog.engram_hot_tier import HotTierRun, hot_tier_model, hot_tier_run
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.memory.perfect_hash import MinimalPerfectHash
from engram_lab.model.modeling import EngramLM
from engram_lab.probes.hot_tier_speed import speed_frame
from engram_lab.scales import pick
from engram_lab.training.data import load_data

Timed = tuple[dict[str, EngramLM], torch.Tensor, int]


@dataclass(frozen=True, kw_only=True)
class SpeedRun:
    """Which models are timed, and how often.

    Attributes:
        hashed: the arm without a hot tier.
        hot: the arm with one.
        repeats: timed calls.
    """

    hashed: HotTierRun
    hot: HotTierRun
    repeats: int


def build(config: SpeedRun) -> Timed:
    """The models of both arms, one batch of the training text, and the repeats."""
    run = config.hashed.run
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        models = {
            "hash": hot_tier_model(config.hashed),
            "hot_cold": hot_tier_model(config.hot),
            "hot_cold_perfect": hot_tier_model(
                config.hot, index=partial(MinimalPerfectHash, check_bits=16)
            ),
        }
    batch = run.train.batch_size * run.train.seq_len
    ids = torch.from_numpy(load_data(run).train.ids[:batch].astype("int64"))
    return models, ids.view(run.train.batch_size, run.train.seq_len), config.repeats


def speeds(timed: Timed) -> pd.DataFrame:
    """`probes.hot_tier_speed.speed_frame` of the models."""
    models, token_ids, repeats = timed
    return speed_frame(models, token_ids, repeats=repeats)


def _grid() -> list[Point]:
    return product(rows=pick(tiny=(400,), workshop=(2_000, 8_000, 48_000), full=(500_000,)))


def _speed_run(rows: int) -> SpeedRun:
    return SpeedRun(
        hashed=hot_tier_run(rows, "hash", 0),
        hot=hot_tier_run(rows, "hot_cold", 0),
        repeats=pick(tiny=3, workshop=31, full=31),
    )


ENGRAM_HOT_TIER_SPEED = Sweep(
    name="engram_hot_tier_speed", grid=_grid, configure=_speed_run, measure=speeds, execute=build
)
