"""What a drafter's training is: a target, a shape, a loss and texts, under one seed."""

from dataclasses import dataclass, field
from typing import Any

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.eagle import EagleConfig
from engram_lab.draft.mtp import MtpConfig
from engram_lab.draft.released_config import ReleasedConfig
from engram_lab.training.config import RunConfig, TrainConfig
from engram_lab.training.draft_data import AnswerConfig
from engram_lab.training.draft_loss import DraftLossConfig


@dataclass(frozen=True, kw_only=True)
class DraftRunConfig:
    """One drafter, complete: equal configs give equal numbers on one device.

    Attributes:
        target: the run whose model is drafted for.
        drafter: shape of the drafter; its class says which kind it is.
        loss: what a block drafter is trained for; EAGLE-3 and MTP have losses of their own.
        answers: the texts it is trained on.
        train: how; `seq_len` is not used, rows are as long as the texts.
        seed: of its weights, of anchors and of the order of texts.
        rows_of: the run whose memory the sequential head reads beside the previous token, the
            target's own or another's; None for a head that reads none.
    """

    target: RunConfig
    drafter: DraftConfig | ReleasedConfig | EagleConfig | MtpConfig
    loss: DraftLossConfig = field(default_factory=DraftLossConfig)
    answers: AnswerConfig = field(default_factory=AnswerConfig)
    train: TrainConfig = field(default_factory=lambda: draft_train_config())
    seed: int = 0
    rows_of: RunConfig | None = None

    def __post_init__(self) -> None:
        """Check the rules that join target and drafter."""
        model = self.target.model
        for name, ours, theirs in (
            ("vocab_size", self.drafter.vocab_size, model.vocab_size),
            ("hidden_size", self.drafter.hidden_size, model.hidden_size),
            ("target_depth", self.drafter.target_depth, model.num_hidden_layers),
        ):
            if ours != theirs:
                raise ValueError(
                    f"{type(self.drafter).__name__}.{name} must be that of the target, {theirs}; "
                    f"got {ours}"
                )
        if self.rows_of is not None:
            self._check_rows(self.rows_of)

    def _check_rows(self, rows_of: RunConfig) -> None:
        kind = type(self.drafter)
        if kind is not DraftConfig or not self.drafter.markov_rank:
            raise ValueError(
                "DraftRunConfig.rows_of needs a block drafter with a sequential head, which alone "
                f"can read rows; got {self.drafter}. Give it a markov_rank."
            )
        if rows_of.model.engram is None:
            raise ValueError(
                "DraftRunConfig.rows_of must be the run of a model with a memory; its model has "
                "engram=None"
            )

    @property
    def steps(self) -> int:
        """Updates of the run: `TrainConfig.steps`, else one pass over the texts."""
        return self.train.steps or max(1, self.answers.rows // self.train.batch_size)


def draft_train_config(**changes: Any) -> TrainConfig:
    """How drafters are trained unless something else is asked for.

    Source: DeepSpec config/dspark (AdamW without decay, 4 % warm-up, cosine, clip 1.0).
    """
    settings = {"lr": 1e-3, "weight_decay": 0.0, "warmup_share": 0.04, "clip_norm": 1.0}
    return TrainConfig(**(settings | changes))
