"""Drafters that are not trained for their target: look-ups, counts, a small model."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd
import torch

from engram_lab.draft.bigram import BigramCounts, BigramDrafter, with_bigram_bias
from engram_lab.draft.lookup import NgramLookup
from engram_lab.draft.plain import SmallModelDrafter
from engram_lab.draft.proposer import Proposer
from engram_lab.draft.target import Target
from engram_lab.training.config import RunConfig
from engram_lab.training.draft_config import DraftRunConfig
from engram_lab.training.draft_data import AnswerConfig, Answers, load_answers
from engram_lab.training.draft_fit import TrainedDrafter, load_or_fit_drafter
from engram_lab.training.fit import HISTORY, TrainedRun, load_or_fit

SimpleKind = Literal["lookup", "bigram", "parallel_bigram", "small"]


@dataclass(frozen=True, kw_only=True)
class SimpleDrafterConfig:
    """A drafter that is put together, not trained.

    Attributes:
        kind: "lookup" copies what followed the same n-gram before; "bigram" chains counted pairs;
            "parallel_bigram" adds their log ratio to a trained block drafter; "small" decodes a
            small model.
        target: the run whose model is drafted for.
        block_size: most drafts of a round.
        answers: texts of the target that pairs are counted in.
        base: the block drafter of "parallel_bigram".
        small: the run whose model drafts, of "small".
        seed: of decoding.

    Raises:
        ValueError: if a part that the kind needs is missing.
    """

    kind: SimpleKind
    target: RunConfig
    block_size: int = 7
    answers: AnswerConfig | None = None
    base: DraftRunConfig | None = None
    small: RunConfig | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that each kind has its parts."""
        needed = {
            "lookup": (),
            "bigram": ("answers",),
            "parallel_bigram": ("answers", "base"),
            "small": ("small",),
        }[self.kind]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(
                f"SimpleDrafterConfig of kind {self.kind!r} needs {', '.join(missing)}; got None"
            )

    @property
    def steps(self) -> int:
        """Updates of the run: none."""
        return 0


def load_simple(config: SimpleDrafterConfig, *, progress: bool = True) -> TrainedDrafter:
    """The drafter of a config, with what it is made of loaded or trained.

    Args:
        config: which.
        progress: whether to show bars where something is trained.
    """
    if config.kind == "parallel_bigram":
        base = load_or_fit_drafter(config.base, progress=progress)
        counts = _counts(
            load_answers(base.target_run, config.answers, progress=progress), base.target
        )
        drafter = with_bigram_bias(base.drafter, counts)
        return _built(config, base.target_run, base.target, drafter)
    run = load_or_fit(config.target, progress=progress)
    target = Target(run.model)
    if config.kind == "lookup":
        return _built(config, run, target, NgramLookup(block_size=config.block_size))
    if config.kind == "small":
        small = load_or_fit(config.small, progress=progress).model
        drafter = SmallModelDrafter(small, target, block_size=config.block_size)
        return _built(config, run, target, drafter)
    counts = _counts(load_answers(run, config.answers, progress=progress), target)
    return _built(config, run, target, BigramDrafter(counts, target, block_size=config.block_size))


def load_any_drafter(
    config: DraftRunConfig | SimpleDrafterConfig, *, progress: bool = True
) -> TrainedDrafter:
    """A drafter of either kind of config, loaded or made.

    Args:
        config: which.
        progress: whether to show bars.
    """
    if isinstance(config, SimpleDrafterConfig):
        return load_simple(config, progress=progress)
    return load_or_fit_drafter(config, progress=progress)


def parameter_count(drafter: Proposer) -> int:
    """Numbers of a drafter beyond its target: trained ones, and those of a small model."""
    if isinstance(drafter, SmallModelDrafter):
        return sum(p.numel() for p in drafter.model.model.parameters())
    if isinstance(drafter, torch.nn.Module):
        return sum(p.numel() for p in drafter.parameters() if p.requires_grad)
    return 0


def _counts(answers: Answers, target: Target) -> BigramCounts:
    lengths = answers.loss_mask.shape[1] - answers.loss_mask.flip(1).int().argmax(1)
    texts = [row[:length] for row, length in zip(answers.token_ids, lengths, strict=True)]
    return BigramCounts.from_documents(texts, target.vocab_size)


def _built(
    config: SimpleDrafterConfig, run: TrainedRun, target: Target, drafter: Proposer
) -> TrainedDrafter:
    return TrainedDrafter(
        drafter=drafter,
        target=target,
        target_run=run,
        config=config,
        history=pd.DataFrame(columns=list(HISTORY)),
        seconds=0.0,
    )
