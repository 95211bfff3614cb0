"""Checkpoints: folders of safetensors and JSON that are there whole or not at all.

    <folder>/step_00000200/model.safetensors       weights and buffers
                           optimizer.safetensors   optimiser state, by parameter name
                           random.safetensors      state of the random generators
                           state.json              step, history, config, checksums of the other
                           files

A checkpoint is written into a folder of another name, flushed to disk, and then renamed. Whoever is
killed while writing, or finds the disk full, leaves the checkpoints before it untouched. Nothing is
pickled.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

FORMAT = 1
KEPT = 2  # the newest may turn out to be damaged; then the one before it serves
FILES = ("model", "optimizer", "random")
STATE = "state.json"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything a run needs to go on.

    Attributes:
        step: finished updates.
        model: weights and buffers by name.
        optimizer: optimiser state by `<parameter>/<entry>`.
        random: states of the random generators by device.
        state: whatever else, as JSON: history, config.
    """

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    random: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `step_<n>` below `folder` in one piece, then drop all but the newest two.

    Raises:
        OSError: if it cannot be written (a full disk); earlier checkpoints are left as they were.
    """
    path = folder / f"step_{checkpoint.step:08d}"
    with whole_folder(path) as partial:
        sums = {}
        for name in FILES:
            file = partial / f"{name}.safetensors"
            tensors = {key: value.contiguous() for key, value in getattr(checkpoint, name).items()}
            try:
                save_file(tensors, file)
            except SafetensorError as error:  # how safetensors reports a full disk
                raise OSError(f"checkpoint {path} could not be written: {error}") from error
            sums[file.name] = _checksum(file)
        state = {"format": FORMAT, "step": checkpoint.step, "sha256": sums} | checkpoint.state
        (partial / STATE).write_text(json.dumps(state), encoding="utf-8")
    for old in checkpoint_paths(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return path


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill; it gets its name, in place of an older one, once it is filled and on disk.

    If filling it fails, nothing of it stays and the older one is left as it was.
    """
    partial = path.parent / f".{path.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        for written in (*partial.iterdir(), partial):
            _flush(written)
        shutil.rmtree(path, ignore_errors=True)
        os.replace(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _flush(path.parent)


def checkpoint_paths(folder: Path) -> list[Path]:
    """The checkpoints below a folder, oldest first; half-written ones are not among them."""
    return sorted(path for path in folder.glob("step_*") if path.is_dir())


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if none is. Damaged ones cause a warning."""
    for path in reversed(checkpoint_paths(folder)):
        try:
            return load_checkpoint(path)
        except ValueError as error:
            warnings.warn(f"{error} Going back to the checkpoint before it.", stacklevel=2)
    return None


def load_checkpoint(path: Path) -> Checkpoint:
    """One checkpoint, every file compared with its checksum.

    Raises:
        ValueError: if a file is missing, cut short or changed.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        for name, expected in state.pop("sha256").items():
            if _checksum(path / name) != expected:
                raise ValueError(f"{name} has changed since it was written")
        if state.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        files = {n: load_file(path / f"{n}.safetensors") for n in FILES}
        return Checkpoint(step=state.pop("step"), state=state, **files)
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise ValueError(f"checkpoint {path} is damaged: {error}.") from error


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; tensors under two names (tied weights) once."""
    found, seen = {}, set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def load_model_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into a model of the same shape, in place.

    Raises:
        ValueError: if names or shapes differ.
    """
    own = model_tensors(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name, tensor in own.items():
        if shapes.pop(name, None) != tuple(tensor.shape):
            raise ValueError(
                f"the checkpoint must hold {name} of shape {tuple(tensor.shape)}; it does not. "
                "Resume with the config it was written with."
            )
        tensor.copy_(tensors[name])
    if shapes:
        raise ValueError(
            f"the checkpoint holds {sorted(shapes)[:3]}, which this model does not have. "
            "Resume with the config it was written with."
        )


def random_states() -> dict[str, Tensor]:
    """States of the global random generators, CPU and CUDA."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: Mapping[str, Tensor]) -> None:
    """Put the global random generators back to what `random_states` gave."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _checksum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file or folder is on disk, so that the rename cannot overtake its content."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
