"""`fit` and `load_or_fit`: from a `RunConfig` to a trained model with its history."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from filelock import FileLock
from torch import nn

from engram_lab import paths
from engram_lab.configs import fingerprint
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.corpus import Documents
from engram_lab.tokens.tokenizer import Tokenizer
from engram_lab.training.config import RunConfig
from engram_lab.training.data import RunData, load_data
from engram_lab.training.device import accelerator_for
from engram_lab.training.finished import load_finished, save_finished
from engram_lab.training.loop import Loop
from engram_lab.training.objective import NextToken

HISTORY = ("step", "tokens", "loss_nats", "lr", "grad_norm", "tokens_per_s", "seconds")


@dataclass(kw_only=True, eq=False)
class TrainedRun:
    """A trained model and what is known about its training.

    Attributes:
        model: in evaluation mode, on the device it was trained on.
        config: the run it came from.
        history: one row per update: step, tokens (positions read so far), loss_nats (cross-entropy
            on the update's batch, without balance losses), lr (of the backbone), grad_norm (before
            clipping), tokens_per_s and seconds.
        validation: documents it has not seen.
        tokenizer: of a text corpus; None for generated corpora.
        compression: token map of the corpus.
        seconds: time spent training, without evaluation and saving.
        interrupted: whether training stopped before its last step.
    """

    model: nn.Module
    config: RunConfig
    history: pd.DataFrame
    validation: Documents
    tokenizer: Tokenizer | None
    compression: VocabCompression
    seconds: float
    interrupted: bool = False

    @property
    def train_tokens(self) -> int:
        """Token positions trained on."""
        return int(self.history["tokens"].iloc[-1]) if len(self.history) else 0


def fit(
    run_config: RunConfig,
    *,
    progress: bool = True,
    checkpoint_dir: Path | str | None = None,
    model: nn.Module | None = None,
) -> TrainedRun:
    """Train a model from scratch, or go on where the newest checkpoint in `checkpoint_dir` stands.

    An interrupt (Ctrl-C, the stop button of a notebook) returns what there is, with `interrupted`
    set. A resumed run gives the numbers of an uninterrupted one, bit for bit on one device. The
    global random generators are left as found.

    Args:
        run_config: what to train on what; equal configs give equal models.
        progress: whether to show a bar with loss, tokens per second and time left.
        checkpoint_dir: folder of checkpoints, written every `TrainConfig.checkpoint_every` steps
            and at the end; None writes none.
        model: a model to go on training instead of a new one; trained in place.

    Raises:
        ValueError: if the model does not fit the corpus, or the checkpoints belong to another run.
        NonFiniteLoss: a FloatingPointError that names the step and the last good checkpoint.
    """
    data = load_data(run_config)
    with own_randomness(run_config.seed):
        if model is None:
            model = EngramLM(run_config.model, data.compression)
        loop = Loop(
            model,
            NextToken(data.train, run_config.train, run_config.seed),
            run_config.train,
            steps=run_config.steps,
            identity=run_config,
        )
        finished = loop.run(
            progress=progress, folder=None if checkpoint_dir is None else Path(checkpoint_dir)
        )
    history = pd.DataFrame(loop.history, columns=list(HISTORY))
    return _trained(run_config, data, model, history, seconds=loop.seconds, finished=finished)


def load_or_fit(run_config: RunConfig, *, progress: bool = True, fresh: bool = False) -> TrainedRun:
    """The trained model of a config: loaded if it was trained before, else trained and kept.

    Models live in `paths.checkpoints_dir()`, in a folder named by the config's fingerprint, written
    by `save_pretrained`. Two processes that ask at once train once. An interrupted or killed run
    goes on from its last checkpoint when asked again.

    Args:
        run_config: what to train on what.
        progress: whether to show a bar.
        fresh: train anew, in place of what is kept.

    Raises:
        ValueError: if the folder holds a model of another config, or one whose memory does not fit
            its config.
    """
    name = fingerprint(run_config)
    folder = paths.checkpoints_dir() / name
    steps_folder = paths.checkpoints_dir() / f"{name}.steps"
    accelerator = accelerator_for(run_config.train.device)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{folder}.lock") if accelerator.is_main_process else nullcontext()
    with lock:
        accelerator.wait_for_everyone()
        if fresh and accelerator.is_main_process:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(steps_folder, ignore_errors=True)
        accelerator.wait_for_everyone()
        found = load_finished(folder, run_config)
        if found is not None:
            model, history, seconds = found
            model.to(accelerator.device)
            return _trained(run_config, load_data(run_config), model, history, seconds=seconds)
        run = fit(run_config, progress=progress, checkpoint_dir=steps_folder)
        if not run.interrupted and accelerator.is_main_process:
            save_finished(folder, run, steps_folder)
        accelerator.wait_for_everyone()
        return run


def _trained(
    run_config: RunConfig,
    data: RunData,
    model: nn.Module,
    history: pd.DataFrame,
    *,
    seconds: float,
    finished: bool = True,
) -> TrainedRun:
    return TrainedRun(
        model=model.eval(),
        config=run_config,
        history=history,
        validation=data.validation,
        tokenizer=data.tokenizer,
        compression=data.compression,
        seconds=seconds,
        interrupted=not finished,
    )


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Seed the global generators for a while, and put them back afterwards."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
