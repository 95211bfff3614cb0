"""A sweep without training: configs of two numbers, frames of two rows, a count of executions."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from engram_lab.experiments import Sweep


@dataclass(frozen=True, kw_only=True)
class FakeConfig:
    ratio: float
    seed: int


def configure(ratio: float, seed: int) -> FakeConfig:
    return FakeConfig(ratio=ratio, seed=seed)


def execute(config: FakeConfig) -> FakeConfig:
    """Leave a mark for each execution, so that tests can count them across processes."""
    marks = Path(os.environ["ENGRAM_LAB_HOME"]) / "marks"
    marks.mkdir(parents=True, exist_ok=True)
    (marks / f"{config.ratio}-{config.seed}-{os.getpid()}-{time.time_ns()}").touch()
    return config


def slowly(config: FakeConfig) -> FakeConfig:
    time.sleep(0.3)
    return execute(config)


def measure(config: FakeConfig) -> pd.DataFrame:
    loss = 1 / 3 + config.ratio + config.seed
    return pd.DataFrame({"token_class": ["static", "NA"], "loss_nats": [loss, 2 * loss]})


def fail_at_half(config: FakeConfig) -> FakeConfig:
    if config.ratio == 0.5:
        raise RuntimeError("no luck at a half")
    return execute(config)


def executions() -> int:
    marks = Path(os.environ["ENGRAM_LAB_HOME"]) / "marks"
    return len(list(marks.glob("*"))) if marks.exists() else 0


def fake_sweep(**changes) -> Sweep:
    settings = {
        "name": "fake",
        "grid": {"ratio": (0.0, 0.5, 1.0), "seed": (0, 1)},
        "configure": configure,
        "measure": measure,
        "execute": execute,
    }
    return Sweep(**settings | changes)
