"""What a training run is: a model, its data, and how it is trained, under one seed."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from engram_lab.model.config import EngramLMConfig

Corpus = Literal["d8", "d1", "text", "d3", "d4", "d5", "d9"]
Schedule = Literal["cosine", "constant", "step"]
OptimizerName = Literal["adamw", "muon"]
Device = Literal["auto", "cpu", "cuda", "mps"]

# Share of the steps after which the step schedule falls, and the factor it falls to.
STEP_DECAY = ((0.8, 0.316), (0.9, 0.1))
COSINE_FLOOR = 0.1


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which tokens a run sees; equal for all arms of a comparison, whatever their run seed.

    Attributes:
        corpus: "text" is the bundle; "d1" (phrasebook), "d3" (fact book), "d4" (needles), "d5"
            (polysemy), "d8" (two capacities) and "d9" (replies) are generated.
        static_share: share of generated tokens that are fixed phrases, in [0, 1]; of "d3" that
            stand in statements and closed-book questions, of "d4" documents without needles, of
            "d5" phrases that stand at home; unused by "text".
        topics: topics of "d8" and "d5"; of "d8" each has a map of its own: fewer are learned from
            fewer tokens.
        topic_zipf: exponent of the topics' frequencies in "d8"; 0 makes them equally frequent.
        pairs: phrases of "d8": fewer are learned from fewer tokens and fit in fewer rows.
        entities: entities of "d3".
        filler: what needles of "d4" lie in: "words" are generated one by one, "phrases" are the
            fixed phrases of "d1", "text" is the bundle.
        needle_keys: tokens that keys of "d4" are made of; fewer are learned from fewer tokens.
        needle_values: values of "d4"; fewer are learned from fewer tokens.
        modes: replies to each cue of "d9".
        cues: cues of "d9", of each kind.
        document_length: tokens of every generated document.
        train_tokens: tokens to train on; a run longer than that begins again in another order.
        eval_tokens: tokens of the validation documents, which share no document with training.
        tokenizer: shipped tokenizer of "text" and of filler text; generated corpora have ids of
            their own.
        parts: parts of the bundle that "text" is made of; None for all.
        seed: seeds generation and the split, not the order of batches.
    """

    corpus: Corpus = "d8"
    static_share: float = 0.5
    topics: int = 32
    topic_zipf: float = 0.0
    pairs: int = 20_000
    entities: int = 200
    filler: Literal["words", "phrases", "text"] = "words"
    needle_keys: int = 32
    needle_values: int = 64
    modes: int = 2
    cues: int = 16
    document_length: int = 128
    train_tokens: int = 1_000_000
    eval_tokens: int = 50_000
    tokenizer: str = "bpe4k"
    parts: tuple[str, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every rule."""
        _one_of(self, "corpus", get_args(Corpus))
        if self.parts is not None and (self.corpus != "text" or not self.parts):
            raise ValueError(
                f"DataConfig.parts names parts of corpus 'text', or is None for all; got "
                f"{self.parts} for {self.corpus!r}"
            )
        _one_of(self, "filler", ("words", "phrases", "text"))
        _within(self, "static_share", 0.0, 1.0)
        _at_least(self, 1, "topics", "pairs", "entities", "document_length")
        _at_least(self, 1, "cues")
        _at_least(self, 2, "modes")
        _at_least(self, 1, "needle_keys", "needle_values", "train_tokens", "eval_tokens")
        _at_least(self, 0, "seed", "topic_zipf")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained.

    Attributes:
        batch_size: rows of one update, over all micro-batches and processes.
        seq_len: positions per row.
        micro_batches: parts the batch is computed in; the update does not depend on it.
        steps: updates; None for one pass over `DataConfig.train_tokens`.
        lr: highest learning rate of the backbone.
        table_lr_multiplier: factor on `lr` for memory tables, which have no weight decay.
        weight_decay: decoupled decay of matrices; norms, biases and gains have none.
        betas: decay rates of Adam's two moments.
        optimizer: "adamw", or "muon" for the matrices between the embedding and the head.
        schedule: "cosine" down to a tenth, "constant", or "step" (0.316 at 80 %, 0.1 at 90 %).
        warmup_share: share of the steps in which the rate rises from 0.
        clip_norm: longest gradient, tables included; None for no clipping.
        log_every: steps between two looks at the loss (each waits for the device).
        checkpoint_every: steps between two checkpoints, where a folder for them is given.
        device: "auto" takes a CUDA device if there is one, else the CPU, never MPS.

    Source: Engram paper, section 4.1 and appendix A (groups, 5x rate for tables, step decay).
    """

    batch_size: int = 16
    seq_len: int = 128
    micro_batches: int = 1
    steps: int | None = None
    lr: float = 3e-3
    table_lr_multiplier: float = 5.0
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    optimizer: OptimizerName = "adamw"
    schedule: Schedule = "cosine"
    warmup_share: float = 0.05
    clip_norm: float | None = 1.0
    log_every: int = 10
    checkpoint_every: int = 200
    device: Device = "auto"

    def __post_init__(self) -> None:
        """Check every rule."""
        _one_of(self, "optimizer", ("adamw", "muon"))
        _one_of(self, "schedule", ("cosine", "constant", "step"))
        _one_of(self, "device", ("auto", "cpu", "cuda", "mps"))
        _at_least(self, 1, "batch_size", "micro_batches", "log_every", "checkpoint_every")
        _at_least(self, 2, "seq_len")
        _at_least(self, 0, "lr", "table_lr_multiplier", "weight_decay")
        _within(self, "warmup_share", 0.0, 1.0)
        if self.steps is not None:
            _at_least(self, 1, "steps")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(
                "TrainConfig.clip_norm must be positive, or None for no clipping; "
                f"got {self.clip_norm}"
            )
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"TrainConfig.betas must be two numbers in [0, 1); got {self.betas}")
        if self.batch_size % self.micro_batches:
            raise ValueError(
                f"TrainConfig.micro_batches must divide batch_size ({self.batch_size}); "
                f"got {self.micro_batches}"
            )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run, complete: equal configs give equal numbers on one device.

    Attributes:
        model: shape of the model.
        data: which tokens.
        train: how.
        seed: seeds the initial weights and the order of batches.
    """

    model: EngramLMConfig
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the rules that join model, data and training."""
        _at_least(self, 0, "seed")
        if self.train.seq_len > self.model.max_position_embeddings:
            raise ValueError(
                "TrainConfig.seq_len must be at most EngramLMConfig.max_position_embeddings "
                f"({self.model.max_position_embeddings}); got {self.train.seq_len}"
            )
        rows = self.train.batch_size // self.train.micro_batches
        if self.model.engram and self.model.engram.addresses == "neighbour" and rows < 2:
            raise ValueError(
                "EngramConfig.addresses='neighbour' reads the rows of the next sequence, so "
                f"TrainConfig.batch_size / micro_batches must be at least 2; got {rows}"
            )

    @property
    def steps(self) -> int:
        """Updates of the run."""
        per_step = self.train.batch_size * self.train.seq_len
        return self.train.steps or max(1, self.data.train_tokens // per_step)


def rate_factor(train: TrainConfig, step: int, steps: int) -> float:
    """Learning rate of the update after `step` finished ones, as a share of the highest rate.

    A function of the step alone, so a resumed run needs no state for it. The first update is not
    lost to a rate of 0.
    """
    warmup = math.ceil(train.warmup_share * steps)
    if step < warmup:
        return (step + 1) / warmup
    if train.schedule == "constant":
        return 1.0
    if train.schedule == "step":
        return min([factor for share, factor in STEP_DECAY if step >= share * steps], default=1.0)
    progress = (step - warmup) / max(1, steps - warmup)
    return COSINE_FLOOR + (1 - COSINE_FLOOR) * (1 + math.cos(math.pi * progress)) / 2


def _one_of(config: object, name: str, known: tuple[str, ...]) -> None:
    if getattr(config, name) not in known:
        raise ValueError(
            f"{type(config).__name__}.{name} must be one of {', '.join(known)}; "
            f"got {getattr(config, name)!r}"
        )


def _at_least(config: object, least: int, *names: str) -> None:
    for name in names:
        if not getattr(config, name) >= least:
            raise ValueError(
                f"{type(config).__name__}.{name} must be at least {least}; "
                f"got {getattr(config, name)}"
            )


def _within(config: object, name: str, low: float, high: float) -> None:
    if not low <= getattr(config, name) <= high:
        raise ValueError(
            f"{type(config).__name__}.{name} must lie in [{low}, {high}]; "
            f"got {getattr(config, name)}"
        )
