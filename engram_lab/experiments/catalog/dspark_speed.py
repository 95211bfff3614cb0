"""Drafters whose wall clock is measured: for a target that is large enough to be worth drafting.

Target and drafters know country profiles alone. The drafters learn from the target's greedy
answers, since greedy decoding is what is timed (`benchmarks/bench_drafting.py`).
"""

from typing import Any, Literal, get_args

from engram_lab.experiments.catalog.dspark_targets import DOMAINS, drafter_shape, large_target
from engram_lab.scales import pick
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig
from engram_lab.training.draft_loss import DraftLossConfig, dflash_loss

SpeedDrafter = Literal["dspark", "dflash"]
SHAPES: dict[str, dict[str, Any]] = {
    "dspark": {"markov_rank": 32, "confidence": True},
    "dflash": {"sample_from_anchor": False},
}
"""What sets the drafters apart; "dflash" is in the layout that `transformers` decodes as well."""
STEPS = {"dspark": 800, "dflash": 200}
"""Updates at workshop scale; what the clock says of two libraries does not take a good "dflash"."""


def speed_run(drafter: SpeedDrafter, seed: int) -> DraftRunConfig:
    """Config of a drafter for `large_target`.

    Args:
        drafter: "dspark" or "dflash".
        seed: of target, drafter, anchors and order of texts.

    Raises:
        ValueError: if the drafter is not known.
    """
    if drafter not in SHAPES:
        raise ValueError(
            f"drafter must be one of {', '.join(get_args(SpeedDrafter))}; got {drafter!r}"
        )
    target = large_target(seed)
    loss = DraftLossConfig if drafter == "dspark" else dflash_loss
    return DraftRunConfig(
        target=target,
        drafter=drafter_shape(
            target, block_size=pick(tiny=4, workshop=10, full=10), **SHAPES[drafter]
        ),
        loss=loss(num_anchors=pick(tiny=2, workshop=16, full=64)),
        answers=greedy_answers(
            rows=pick(tiny=16, workshop=4_000, full=200_000), split="train", seed=0
        ),
        train=draft_train_config(
            batch_size=pick(tiny=4, workshop=16, full=64),
            steps=pick(tiny=3, workshop=STEPS[drafter], full=20_000),
            lr=pick(tiny=2e-3, workshop=2e-3, full=6e-4),
        ),
        seed=seed,
    )


def greedy_answers(**changes: Any) -> AnswerConfig:
    """Country profiles that the target has not seen, with its greedy answers.

    Args:
        changes: fields of `AnswerConfig` that are to differ.
    """
    settings: dict[str, Any] = {
        "rows": 16,
        "prompt_tokens": pick(tiny=16, workshop=32, full=32),
        "answer_tokens": pick(tiny=16, workshop=64, full=240),
        "temperature": 0.0,
        "split": "validation",
        "parts": (DOMAINS["structured"],),
        "seed": 1,
    }
    return AnswerConfig(**(settings | changes))
