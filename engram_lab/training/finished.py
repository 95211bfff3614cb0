"""Finished models on disk: a folder each, written in one step, refused to another config."""

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import SafetensorError
from transformers.utils import logging

from engram_lab.configs import same_config, to_json
from engram_lab.model.modeling import EngramLM
from engram_lab.training.checkpoint import whole_folder
from engram_lab.training.config import RunConfig

RUN = "run.json"
HISTORY = "history.csv"


def save_finished(folder: Path, run: Any, steps_folder: Path) -> None:
    """Write a `TrainedRun` into `folder`, then drop the checkpoints it was made from.

    Raises:
        OSError: if it cannot be written; the checkpoints stay, so nothing is lost.
    """
    with whole_folder(folder) as partial:
        try:
            with without_bars():
                run.model.save_pretrained(partial)
        except SafetensorError as error:
            raise OSError(f"model {folder} could not be written: {error}") from error
        run.history.to_csv(partial / HISTORY, index=False)
        record = {"config": json.loads(to_json(run.config)), "seconds": run.seconds}
        (partial / RUN).write_text(json.dumps(record, indent=1), encoding="utf-8")
    shutil.rmtree(steps_folder, ignore_errors=True)


def load_finished(
    folder: Path, run_config: RunConfig
) -> tuple[EngramLM, pd.DataFrame, float] | None:
    """Model, history and seconds of a finished run; None if there is none, or it is damaged.

    Raises:
        ValueError: if the folder holds a model of another config, or one whose memory does not fit
            its config.
    """
    if not folder.is_dir():
        return None
    try:
        record = json.loads((folder / RUN).read_text(encoding="utf-8"))
        # numbers are parsed one by one: pandas' fast parser may be off by the last bit
        history = pd.read_csv(folder / HISTORY, dtype=str).astype(float)
        history = history.astype({"step": int, "tokens": int})
        config, seconds = record["config"], record["seconds"]
    except (OSError, KeyError, ValueError) as error:
        return _damaged(folder, error)
    if not same_config(config, run_config):
        raise ValueError(
            f"{folder} must hold the model of this run config; its {RUN} states another one. "
            "Delete the folder to train again."
        )
    try:
        with without_bars():
            return EngramLM.from_pretrained(folder), history, seconds
    except (OSError, SafetensorError) as error:
        return _damaged(folder, error)


@contextmanager
def without_bars() -> Iterator[None]:
    """Files are written and read without the bars of `transformers`."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _damaged(folder: Path, error: Exception) -> None:
    warnings.warn(f"the model in {folder} is damaged ({error}); training it again", stacklevel=4)
