"""E36: what a drafter is trained for, and how it keeps up with a target that trains on.

`DSPARK_TRAINING` lets the targets of E30 train on, on a part of the bundle they have not read, with
the drafter left alone, refreshed now and then, or trained beside; the last two make the same number
of updates. `DSPARK_OBJECTIVE` changes one thing of DSpark's loss, or of its texts, at a time; its
"reference" is the drafter of E30.

Source: DSpark paper, section 3.3; DeepSpec loss.py; DeepSeek-V4.1-Flash report, section 2.4.3,
second-hand.
"""

from dataclasses import replace
from typing import Any

import pandas as pd

from engram_lab.experiments.catalog.dspark_drafters import drafter_run, lengths_by_prompt
from engram_lab.experiments.catalog.dspark_targets import training_answers
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.scales import pick
from engram_lab.training.config import TrainConfig
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig
from engram_lab.training.draft_drift import POLICIES, Drift, DriftConfig, run_drift
from engram_lab.training.draft_fit import load_or_fit_drafter

ONTO = "python_manual"
"""Part of the bundle that targets move on to."""
OBJECTIVES: dict[str, dict[str, dict[str, Any]]] = {
    "reference": {},
    "cross_entropy": {"loss": {"cross_entropy": 1.0, "distribution": 0.0}},
    "l1": {"loss": {"cross_entropy": 0.0, "distribution": 1.0}},
    "kl": {"loss": {"cross_entropy": 0.0, "distribution": 1.0, "distance": "kl"}},
    "decay_7": {"loss": {"loss_decay_gamma": 7.0}},
    "no_decay": {"loss": {"loss_decay_gamma": None}},
    "corpus_text": {"answers": {"source": "corpus"}},
    "confidence_detached": {"drafter": {"confidence_detach": True}},
    "no_confidence": {"loss": {"confidence": 0.0}},
}
"""What each objective changes, by part of the drafter's run."""


def drift_run(policy: str, seed: int) -> DriftConfig:
    """Config of a drift.

    Args:
        policy: one of `draft_drift.POLICIES`.
        seed: of target, drafter, orders and draws.
    """
    drafter = drafter_run("dspark", seed)
    data = drafter.target.data
    tokens = pick(tiny=4_000, workshop=400_000, full=20_000_000)
    return DriftConfig(
        drafter=drafter,
        onto=replace(
            data,
            parts=(ONTO,),
            train_tokens=tokens,
            eval_tokens=pick(tiny=2_000, workshop=10_000, full=100_000),
        ),
        move=TrainConfig(
            batch_size=pick(tiny=4, workshop=16, full=64),
            seq_len=drafter.target.train.seq_len,
            steps=pick(tiny=4, workshop=160, full=4_000),
            lr=pick(tiny=3e-3, workshop=1e-3, full=2e-4),
            schedule="constant",
        ),
        follow=draft_train_config(
            batch_size=drafter.train.batch_size, lr=drafter.train.lr / 2, schedule="constant"
        ),
        policy=policy,
        refresh_every=pick(tiny=2, workshop=40, full=1_000),
        measure_every=pick(tiny=2, workshop=20, full=250),
        answers=training_answers(rows=pick(tiny=8, workshop=128, full=16_000)),
        held_out=_held_out(),
        seed=seed,
    )


def drift_frame(drift: Drift) -> pd.DataFrame:
    """Measurements of a drift; columns as `draft_drift.Drift` lists them."""
    return drift.frame


def objective_run(objective: str, seed: int) -> DraftRunConfig:
    """Config of a drafter with another objective.

    Args:
        objective: a key of `OBJECTIVES`.
        seed: of target, drafter, anchors and order of texts.

    Raises:
        KeyError: if the objective is not known.
    """
    run = drafter_run("dspark", seed)
    parts = {
        part: replace(getattr(run, part), **changes)
        for part, changes in OBJECTIVES[objective].items()
    }
    return replace(run, **parts)


def _held_out() -> AnswerConfig:
    return AnswerConfig(
        rows=pick(tiny=3, workshop=24, full=256),
        prompt_tokens=16,
        answer_tokens=pick(tiny=16, workshop=32, full=240),
        split="validation",
        seed=1,
    )


def _drifts() -> list[Point]:
    return product(policy=POLICIES, seed=seeds())


def _objectives() -> list[Point]:
    return product(objective=tuple(OBJECTIVES), seed=seeds())


DSPARK_TRAINING = Sweep(
    name="dspark_training",
    grid=_drifts,
    configure=drift_run,
    measure=drift_frame,
    execute=run_drift,
)
DSPARK_OBJECTIVE = Sweep(
    name="dspark_objective",
    grid=_objectives,
    configure=objective_run,
    measure=lengths_by_prompt,
    execute=load_or_fit_drafter,
)
