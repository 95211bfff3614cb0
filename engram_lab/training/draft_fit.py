"""`fit_drafter` and `load_or_fit_drafter`: from a `DraftRunConfig` to a drafter and its history.

Training is online: the frozen target reads each batch when it is needed, and the drafter learns
from its states at random anchors. The loop is that of every other training.
"""

import json
import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock
from safetensors.torch import load_file, save_file
from torch import nn

from engram_lab import paths
from engram_lab.configs import fingerprint, same_config, to_json
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.eagle import EagleConfig, EagleDrafter
from engram_lab.draft.memory_head import MemoryDrafter, MemoryRows
from engram_lab.draft.mtp import MtpConfig, MtpDrafter
from engram_lab.draft.released import ReleasedDrafter
from engram_lab.draft.released_config import ReleasedConfig
from engram_lab.draft.target import Target, tap_of
from engram_lab.training.checkpoint import model_tensors, whole_folder
from engram_lab.training.draft_config import DraftRunConfig
from engram_lab.training.draft_data import load_answers
from engram_lab.training.draft_loss import DraftLossFunction, block_loss
from engram_lab.training.draft_objective import DraftObjective
from engram_lab.training.fit import HISTORY, TrainedRun, load_or_fit, own_randomness
from engram_lab.training.loop import Loop
from engram_lab.training.unrolled_loss import eagle_loss, mtp_loss


@dataclass(kw_only=True, eq=False)
class TrainedDrafter:
    """A trained drafter and what is known about its training.

    Attributes:
        drafter: in evaluation mode, attached to its target; any `Proposer`.
        target: the frozen target.
        target_run: the run the target came from.
        config: the run the drafter came from, or the simple drafter's config.
        history: one row per update, as of `TrainedRun`; empty where nothing was trained.
        seconds: time spent training.
        interrupted: whether training stopped before its last step.
    """

    drafter: Any
    target: Target
    target_run: TrainedRun
    config: Any
    history: pd.DataFrame
    seconds: float
    interrupted: bool = False

    @property
    def model(self) -> nn.Module:
        """The target's model, on whose device all is computed."""
        return self.target.model


@dataclass(frozen=True, kw_only=True)
class DraftEstimate:
    """What a training will take, told before it starts.

    Attributes:
        steps: updates.
        tokens: positions the target reads.
        parameters: trained numbers.
        batch_bytes: states and logits of one batch.
        cache_bytes: what a cache of the target's states for all texts would take; none is written.
        seconds: of training, from one trial batch; answers not included.
    """

    steps: int
    tokens: int
    parameters: int
    batch_bytes: int
    cache_bytes: int
    seconds: float

    def __str__(self) -> str:
        """One line to read."""
        return (
            f"{self.steps:,} updates on {self.tokens:,} tokens, {self.parameters:,} parameters: "
            f"about {self.seconds / 60:.1f} minutes, {self.batch_bytes / 2**20:,.0f} MiB a batch "
            f"(nothing is cached; the target's states would take "
            f"{self.cache_bytes / 2**20:,.0f} MiB)"
        )


def build_drafter(
    config: DraftRunConfig, target: Target, *, progress: bool = True
) -> tuple[nn.Module, DraftLossFunction]:
    """A fresh drafter of a config, and its loss.

    Where another run's rows are read, its model is loaded, or trained first.

    Args:
        config: which drafter.
        target: the model it drafts for.
        progress: whether to show bars where something is trained.
    """
    if isinstance(config.drafter, EagleConfig):
        return EagleDrafter(config.drafter, target), eagle_loss
    if isinstance(config.drafter, MtpConfig):
        return MtpDrafter(config.drafter, target), mtp_loss
    loss = partial(block_loss, config=config.loss)
    if isinstance(config.drafter, ReleasedConfig):
        return ReleasedDrafter(config.drafter, target), loss
    if config.rows_of is None:
        return Drafter(config.drafter, target), loss
    own = fingerprint(config.rows_of) == fingerprint(config.target)
    model = target.model if own else load_or_fit(config.rows_of, progress=progress).model
    return MemoryDrafter(config.drafter, target, MemoryRows(model)), loss


def estimate(
    config: DraftRunConfig, objective: DraftObjective, drafter: nn.Module
) -> DraftEstimate:
    """What a training will take, from the sizes and one trial batch."""
    share = objective.share(0)
    training = drafter.training
    drafter.eval()  # so that the trial leaves no trace in the load of experts
    started = time.perf_counter()
    loss, _ = objective.loss(drafter, share.parts[0], share)
    loss.backward()
    spent = time.perf_counter() - started
    drafter.train(training).zero_grad(set_to_none=True)
    shape = config.drafter
    states = (len(shape.target_layer_ids) + 1) * shape.hidden_size
    return DraftEstimate(
        steps=config.steps,
        tokens=config.steps * share.tokens,
        parameters=sum(p.numel() for p in drafter.parameters() if p.requires_grad),
        batch_bytes=4 * share.tokens * (states + shape.vocab_size),
        cache_bytes=4 * objective.answers.token_ids.numel() * states,
        seconds=spent * len(share.parts) * config.steps,
    )


def fit_drafter(
    config: DraftRunConfig,
    *,
    progress: bool = True,
    checkpoint_dir: Path | None = None,
    target_run: TrainedRun | None = None,
) -> TrainedDrafter:
    """Train a drafter for a frozen target, or go on where the newest checkpoint stands.

    The target is loaded, or trained first. An interrupt returns what there is.

    Args:
        config: what to train on what.
        progress: whether to tell what it will take and to show a bar.
        checkpoint_dir: folder of checkpoints; None writes none.
        target_run: the target, where it is at hand.

    Raises:
        ValueError: if the checkpoints belong to another run, or the corpus has no such prompts.
        NonFiniteLoss: naming the step.
    """
    run = target_run or load_or_fit(config.target, progress=progress)
    target = Target(run.model, config.drafter.target_layer_ids, tap=tap_of(config.drafter))
    answers = load_answers(run, config.answers, progress=progress)
    with own_randomness(config.seed):
        drafter, loss = build_drafter(config, target, progress=progress)
        drafter.to(target.device)
        objective = DraftObjective(target, answers, loss, config.train, seed=config.seed)
        if progress:
            print(estimate(config, objective, drafter))
        loop = Loop(drafter, objective, config.train, steps=config.steps, identity=config)
        finished = loop.run(progress=progress, folder=checkpoint_dir)
    return TrainedDrafter(
        drafter=drafter.eval(),
        target=target,
        target_run=run,
        config=config,
        history=pd.DataFrame(loop.history, columns=list(HISTORY)),
        seconds=loop.seconds,
        interrupted=not finished,
    )


def load_or_fit_drafter(
    config: DraftRunConfig, *, progress: bool = True, fresh: bool = False
) -> TrainedDrafter:
    """The drafter of a config: loaded if it was trained before, else trained and kept.

    Raises:
        ValueError: if the folder holds a drafter of another config.
    """
    name = fingerprint(config)
    folder = paths.checkpoints_dir() / name
    steps = paths.checkpoints_dir() / f"{name}.steps"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(steps, ignore_errors=True)
        run = load_or_fit(config.target, progress=progress)
        if (folder / "run.json").is_file():
            return _load(folder, config, run, progress=progress)
        trained = fit_drafter(config, progress=progress, checkpoint_dir=steps, target_run=run)
        if not trained.interrupted:
            _save(folder, trained)
            shutil.rmtree(steps, ignore_errors=True)
        return trained


def _save(folder: Path, trained: TrainedDrafter) -> None:
    with whole_folder(folder) as partial_folder:
        save_file(model_tensors(trained.drafter), partial_folder / "model.safetensors")
        trained.history.to_csv(partial_folder / "history.csv", index=False)
        record = {"config": json.loads(to_json(trained.config)), "seconds": trained.seconds}
        (partial_folder / "run.json").write_text(json.dumps(record, indent=1), encoding="utf-8")


def _load(
    folder: Path, config: DraftRunConfig, run: TrainedRun, *, progress: bool
) -> TrainedDrafter:
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if not same_config(record["config"], config):
        raise ValueError(
            f"{folder} must hold the drafter of this run config; its run.json states another one. "
            "Delete the folder to train again."
        )
    target = Target(run.model, config.drafter.target_layer_ids, tap=tap_of(config.drafter))
    drafter, _ = build_drafter(config, target, progress=progress)
    drafter.load_state_dict(load_file(folder / "model.safetensors"))
    return TrainedDrafter(
        drafter=drafter.to(target.device).eval(),
        target=target,
        target_run=run,
        config=config,
        history=pd.read_csv(folder / "history.csv"),
        seconds=record["seconds"],
    )
