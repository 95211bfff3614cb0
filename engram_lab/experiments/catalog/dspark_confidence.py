"""E33: does the confidence head mean what it says, and what does a threshold on it save?

A trained DSpark drafter answers unseen prompts of every kind of text at temperature 1, each block
verified whole, so that no outcome is cut off. Calibrations are fitted on the earlier half of the
rounds and measured on the later one. `DSPARK_RELIABILITY` is calibration error and ranking by
position, `DSPARK_RELIABILITY_BINS` the reliability diagrams, `DSPARK_THRESHOLD` what a threshold
would verify and gain.

Source: DSpark paper, section 3.2.1, figures 5 and 6.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from engram_lab.draft.generate import GenerationConfig
from engram_lab.experiments.catalog.dspark_drafters import drafter_run
from engram_lab.experiments.catalog.dspark_targets import DOMAINS, unseen_prompts
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.acceptance import confidence_records, decode
from engram_lab.probes.confidence import confidence_frame, confidence_summary, threshold_frame
from engram_lab.scales import current_scale, pick
from engram_lab.training.draft_config import DraftRunConfig
from engram_lab.training.draft_data import load_answers
from engram_lab.training.draft_fit import load_or_fit_drafter


@dataclass(frozen=True, kw_only=True)
class ConfidenceRun:
    """Whose confidence is measured.

    Attributes:
        drafter: the run of the drafter.
        prompts: prompts of each kind of text.
        temperature: of drafts and target.
    """

    drafter: DraftRunConfig
    prompts: int
    temperature: float = 1.0


def acceptance_records(domain: str, seed: int) -> pd.DataFrame:
    """Rounds of the trained drafter on unseen text, each verified whole, at temperature 1.

    Args:
        domain: a key of `dspark_targets.DOMAINS`.
        seed: of the drafter's run.

    Returns:
        Columns domain, prompt, round, position (1-based), logit and accepted.
    """
    return _decoded(seed, domain, current_scale())


def confidence_run(seed: int) -> ConfidenceRun:
    """The run of a seed.

    Args:
        seed: of target and drafter.
    """
    prompts = pick(tiny=8, workshop=128, full=500)
    return ConfidenceRun(drafter=drafter_run("dspark", seed), prompts=prompts)


@lru_cache(maxsize=16)
def _decoded(seed: int, domain: str, scale: str) -> pd.DataFrame:
    run = confidence_run(seed)
    trained = load_or_fit_drafter(run.drafter)
    prompts = unseen_prompts(domain, rows=run.prompts)
    answers = load_answers(trained.target_run, prompts, progress=False)
    config = GenerationConfig(
        max_new_tokens=answers.token_ids.shape[1] - answers.prompt_tokens,
        whole_blocks=True,
        seed=seed,
    )
    generation = decode(trained.target, trained.drafter, answers, config)
    records = confidence_records(generation)
    records.insert(0, "domain", domain)
    return records


def all_records(run: ConfidenceRun) -> pd.DataFrame:
    """Records of a run on every kind of text.

    Args:
        run: whose.
    """
    parts = [acceptance_records(domain, run.drafter.seed) for domain in DOMAINS]
    return pd.concat(parts, ignore_index=True)


def _grid() -> list[Point]:
    return product(seed=seeds())


def _sweep(name: str, measure: Callable[[pd.DataFrame], Any]) -> Sweep:
    return Sweep(
        name=name, grid=_grid, configure=confidence_run, measure=measure, execute=all_records
    )


DSPARK_RELIABILITY = _sweep("dspark_reliability", confidence_summary)
DSPARK_RELIABILITY_BINS = _sweep("dspark_reliability_bins", confidence_frame)
DSPARK_THRESHOLD = _sweep("dspark_threshold", threshold_frame)
