"""E30 to E32: how far the drafts of different drafters survive, and what that hangs on.

All drafters draft for the same frozen targets, learn from the same answers of the target, for the
same number of updates. `DSPARK_DRAFTERS` is the accepted length by prompt, `DSPARK_POSITIONS` the
same decodings by position; `DSPARK_RANK`, `DSPARK_DEPTH` and `DSPARK_LENGTH` change one thing of
the drafter each: rank and kind of the sequential head, blocks, tokens drafted.

"parallel" is the block drafter without heads, trained on cross-entropy (DFlash); "parallel_same"
is trained on DSpark's loss, so that what the sequential head adds can be told from what the loss
adds.

Source: DSpark paper, table 1, figures 2 to 4.
"""

from collections.abc import Callable
from typing import Any

import pandas as pd

from engram_lab.draft.eagle import EagleConfig
from engram_lab.draft.generate import GenerationConfig
from engram_lab.draft.mtp import MtpConfig
from engram_lab.draft.rounds import Generation
from engram_lab.draft.sampling import Sampling
from engram_lab.experiments.catalog.dspark_targets import (
    DOMAINS,
    chain_shape,
    drafter_shape,
    small_model,
    text_target,
    training_answers,
    unseen_prompts,
)
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.acceptance import acceptance_frame, accepted_lengths, decode
from engram_lab.scales import pick
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import load_answers
from engram_lab.training.draft_fit import TrainedDrafter
from engram_lab.training.draft_loss import DraftLossConfig, dflash_loss
from engram_lab.training.draft_simple import (
    SimpleDrafterConfig,
    load_any_drafter,
    parameter_count,
)

RANK = 32
TEMPERATURES = (0.0, 1.0)
HEADS: dict[str, dict[str, Any]] = {
    "parallel": {},
    "parallel_same": {},
    "dspark": {"markov_rank": RANK, "confidence": True},
    "dspark_gated": {"markov_rank": RANK, "markov_head_type": "gated", "confidence": True},
    "dspark_rnn": {"markov_rank": RANK, "markov_head_type": "rnn", "confidence": True},
}
CHAINS = {"eagle3": EagleConfig, "mtp": MtpConfig}
SIMPLE = ("lookup", "bigram", "parallel_bigram", "small")
RANKS = (0, 4, 16, 64)
DEPTHS = (1, 2)
LENGTHS = (4, 8, 16)


def drafter_run(drafter: str, seed: int, **changes: Any) -> DraftRunConfig | SimpleDrafterConfig:
    """Config of a drafter.

    Args:
        drafter: one of `HEADS`, `CHAINS` and `SIMPLE`.
        seed: of target, drafter, anchors and order of texts.
        changes: fields of the drafter's shape that are to differ.

    Raises:
        KeyError: if the drafter is not known.
    """
    target = text_target(seed)
    if drafter in SIMPLE:
        return _simple(drafter, seed)
    if drafter in CHAINS:
        shape = chain_shape(CHAINS[drafter], target, **changes)
    else:
        shape = drafter_shape(target, **(HEADS[drafter] | changes))
    anchors = pick(tiny=2, workshop=8, full=64)
    loss = dflash_loss if drafter == "parallel" else DraftLossConfig
    return DraftRunConfig(
        target=target,
        drafter=shape,
        loss=loss(num_anchors=anchors),
        answers=training_answers(),
        train=training(),
        seed=seed,
    )


def _simple(kind: str, seed: int) -> SimpleDrafterConfig:
    target = text_target(seed)
    parts: dict[str, Any] = {"answers": training_answers()}
    if kind == "small":
        parts = {"small": small_model(seed)}
    if kind == "lookup":
        parts = {}
    if kind == "parallel_bigram":
        parts["base"] = drafter_run("parallel", seed)
    return SimpleDrafterConfig(
        kind=kind, target=target, block_size=drafter_shape(target).block_size, seed=seed, **parts
    )


def training() -> Any:
    """How every drafter is trained."""
    return draft_train_config(
        batch_size=pick(tiny=4, workshop=16, full=64),
        steps=pick(tiny=3, workshop=400, full=20_000),
        lr=pick(tiny=2e-3, workshop=2e-3, full=6e-4),
    )


def lengths_by_prompt(trained: TrainedDrafter) -> pd.DataFrame:
    """Accepted length on unseen prompts, a row each, and the size of the drafter."""
    frame = on_unseen_text(trained, accepted_lengths)
    parameters = parameter_count(trained.drafter)
    return frame.assign(draft_params=parameters, train_steps=trained.config.steps)


def rates_by_position(trained: TrainedDrafter) -> pd.DataFrame:
    """Rates of acceptance on unseen prompts: `domain temperature position ...`."""
    return on_unseen_text(trained, _rates)


def _rates(generation: Generation) -> pd.DataFrame:
    """Rates by position; a look-up may have found nothing to propose anywhere."""
    if generation.positions().empty:
        nothing = {"position": 1, "offered": 0, "reached": 0, "accepted": 0}
        rates = dict.fromkeys(("survival", "conditional_rate", "expected_rate"), float("nan"))
        return pd.DataFrame([nothing | rates])
    return acceptance_frame([generation])


def on_unseen_text(
    trained: TrainedDrafter, measure: Callable[[Generation], pd.DataFrame]
) -> pd.DataFrame:
    """Measurements of unseen prompts of every kind of text at every temperature.

    Args:
        trained: target and drafter.
        measure: from a generation to a frame.

    Returns:
        The frames below each other, with `domain` and `temperature` as first columns.
    """
    frames = []
    for domain in DOMAINS:
        answers = load_answers(trained.target_run, unseen_prompts(domain), progress=False)
        for temperature in TEMPERATURES:
            config = GenerationConfig(
                max_new_tokens=answers.token_ids.shape[1] - answers.prompt_tokens,
                sampling=Sampling(temperature=temperature),
                whole_blocks=True,
                seed=trained.config.seed,
            )
            found = measure(decode(trained.target, trained.drafter, answers, config))
            found.insert(0, "domain", domain)
            found.insert(1, "temperature", temperature)
            frames.append(found)
    return pd.concat(frames, ignore_index=True)


def _heads() -> list[Point]:
    return product(drafter=(*HEADS, *CHAINS, *SIMPLE), seed=seeds())


def _ranks() -> list[Point]:
    """Every rank of the plain head, and the other heads at the middle one."""
    plain = product(markov_rank=RANKS, markov_head_type=("vanilla",), seed=seeds())
    return plain + product(markov_rank=(16,), markov_head_type=("gated", "rnn"), seed=seeds())


def _rank(markov_rank: int, markov_head_type: str, seed: int) -> DraftRunConfig:
    return drafter_run("dspark", seed, markov_rank=markov_rank, markov_head_type=markov_head_type)


def _depths() -> list[Point]:
    return product(drafter=("parallel", "dspark"), num_hidden_layers=DEPTHS, seed=seeds())


def _lengths() -> list[Point]:
    kinds = ("parallel", "dspark", "dspark_rnn")
    return product(
        drafter=kinds, block_size=pick(tiny=(4,), workshop=LENGTHS, full=LENGTHS), seed=seeds()
    )


def _sweep(name: str, grid: Any, configure: Any, measure: Any) -> Sweep:
    return Sweep(
        name=name, grid=grid, configure=configure, measure=measure, execute=load_any_drafter
    )


DSPARK_DRAFTERS = _sweep("dspark_drafters", _heads, drafter_run, lengths_by_prompt)
DSPARK_POSITIONS = _sweep("dspark_positions", _heads, drafter_run, rates_by_position)
DSPARK_RANK = _sweep("dspark_rank", _ranks, _rank, lengths_by_prompt)
DSPARK_DEPTH = _sweep("dspark_depth", _depths, drafter_run, lengths_by_prompt)
DSPARK_LENGTH = _sweep("dspark_length", _lengths, drafter_run, lengths_by_prompt)
