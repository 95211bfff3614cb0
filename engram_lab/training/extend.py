"""Context extension: a trained model goes on for a short stage, its rows and rotary base longer."""

import shutil
from dataclasses import dataclass, replace

import pandas as pd
from filelock import FileLock

from engram_lab import paths
from engram_lab.configs import fingerprint
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.training.config import RunConfig
from engram_lab.training.data import load_data
from engram_lab.training.device import accelerator_for
from engram_lab.training.finished import load_finished, save_finished
from engram_lab.training.fit import TrainedRun, fit, load_or_fit


@dataclass(frozen=True, kw_only=True)
class ExtensionConfig:
    """A run, and the short stage behind it in which its context grows.

    Attributes:
        base: the run to go on from.
        stretch: how many times longer rows and generated documents become.
        train_tokens: tokens of the stage.
        lr_share: highest learning rate of the stage, as a share of that of the run.

    Source: Engram paper, section 5.1 (a stage of context extension behind pre-training).
    """

    base: RunConfig
    stretch: int = 2
    train_tokens: int
    lr_share: float = 0.3

    def __post_init__(self) -> None:
        """Check every rule; those of a run hold for the stage, too."""
        if self.stretch < 2:
            raise ValueError(
                f"ExtensionConfig.stretch must be at least 2, or nothing grows; got {self.stretch}"
            )
        if not 0 < self.lr_share <= 1:
            raise ValueError(
                f"ExtensionConfig.lr_share must lie above 0 and up to 1; got {self.lr_share}"
            )
        _ = self.stage

    @property
    def stage(self) -> RunConfig:
        """The stage as a run: same language and seed, longer rows, as many tokens an update."""
        base = self.base
        return replace(
            base,
            model=stretched_rotary(base.model, self.stretch),
            data=replace(
                base.data,
                document_length=self.stretch * base.data.document_length,
                train_tokens=self.train_tokens,
            ),
            train=replace(
                base.train,
                seq_len=self.stretch * base.train.seq_len,
                batch_size=max(2, base.train.batch_size // self.stretch),
                micro_batches=1,
                lr=self.lr_share * base.train.lr,
                steps=None,
            ),
        )


def stretched_rotary(config: EngramLMConfig, stretch: float | int) -> EngramLMConfig:
    """`config` with a rotary base at which the slowest pair turns `stretch` times slower.

    The fastest pair turns as before, those between by a share of it, so near tokens keep their
    angles and far ones fall into the range that was trained.

    Args:
        config: of the model; heads need more than two dimensions.
        stretch: at least 1.

    Raises:
        ValueError: if a head has only one pair, or `stretch` is below 1.

    Source: arXiv:2309.00071, section 3.1 (NTK-aware interpolation), a change of base alone.
    """
    size = config.head_size
    if size <= 2 or stretch < 1:
        raise ValueError(
            "stretched_rotary needs heads of more than 2 dimensions and a stretch of at least 1; "
            f"got {size} and {stretch}"
        )
    return config.replace(rope_theta=config.rope_theta * stretch ** (size / (size - 2)))


def load_or_extend(
    config: ExtensionConfig, *, progress: bool = True, fresh: bool = False
) -> TrainedRun:
    """The model behind the stage: loaded if it is kept, else trained from that of the run and kept.

    Args:
        config: the run and the stage.
        progress: whether to show a bar.
        fresh: train anew, the run too, in place of what is kept.

    Returns:
        A run whose config is that of the stage; an interrupted one is not kept.

    Raises:
        ValueError: as `load_or_fit`.
    """
    folder = paths.checkpoints_dir() / fingerprint(config)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        found = load_finished(folder, config.stage)
        if found is not None:
            return _loaded(config.stage, *found)
        base = load_or_fit(config.base, progress=progress, fresh=fresh)
        if base.interrupted:
            return base
        longer = EngramLM(config.stage.model, base.compression)
        longer.load_state_dict(base.model.state_dict())
        run = fit(config.stage, progress=progress, model=longer)
        if not run.interrupted:
            save_finished(folder, run, folder.with_suffix(".steps"))
        return run


def _loaded(stage: RunConfig, model: EngramLM, history: pd.DataFrame, seconds: float) -> TrainedRun:
    data = load_data(stage)
    return TrainedRun(
        model=model.to(accelerator_for(stage.train.device).device).eval(),
        config=stage,
        history=history,
        validation=data.validation,
        tokenizer=data.tokenizer,
        compression=data.compression,
        seconds=seconds,
    )
