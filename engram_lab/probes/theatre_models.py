"""The small target and the drafters that ship, so that the draft theatre opens at once."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

from engram_lab import paths
from engram_lab.configs import from_dict, to_dict
from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.target import Target
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.tokenizer import Tokenizer, load_tokenizer
from engram_lab.training.checkpoint import model_tensors, whole_folder
from engram_lab.training.draft_fit import TrainedDrafter
from engram_lab.training.finished import without_bars

THEATRE, RECORD, TARGET = "theatre", "runs.json", "target"


class ShippedDrafters(NamedTuple):
    """A target that ships, and drafters for it.

    Attributes:
        target: its model in evaluation mode, in float32 on the CPU.
        drafters: by name, in evaluation mode; all read the same blocks of the target.
        tokenizer: of the target's training text.
        record: how they were made: configs, seconds, versions, and `accepted_length` of every
            drafter on unseen prompts, by temperature.
    """

    target: Target
    drafters: dict[str, Drafter]
    tokenizer: Tokenizer
    record: dict[str, Any]


def load_theatre(name: str = THEATRE) -> ShippedDrafters:
    """The target and the drafters of `data/models/theatre`, ready to decode.

    Args:
        name: their folder. "theatre" was made by `scripts/train_theatre.py`: a target that has
            read country profiles, a DSpark and a DFlash.

    Raises:
        FileNotFoundError: if there is no such folder, naming where it was looked for.
    """
    folder = paths.models_dir() / name
    if not (folder / RECORD).is_file():
        raise FileNotFoundError(
            f"no drafters in {folder}: {RECORD} is not there. scripts/train_theatre.py makes them."
        )
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    configs = {
        drafter: from_dict(DraftConfig, run["config"]["drafter"])
        for drafter, run in record["drafters"].items()
    }
    with without_bars():
        model = EngramLM.from_pretrained(folder / TARGET, dtype=torch.float32).eval()
    target = Target(model, next(iter(configs.values())).target_layer_ids)
    drafters = {}
    for drafter, config in configs.items():
        drafters[drafter] = Drafter(config, target).eval()
        stored = load_file(folder / f"{drafter}.safetensors")
        drafters[drafter].load_state_dict({key: part.float() for key, part in stored.items()})
    tokenizer = load_tokenizer(record["target"]["config"]["data"]["tokenizer"])
    return ShippedDrafters(target, drafters, tokenizer, record)


def save_theatre(
    folder: Path,
    trained: Mapping[str, TrainedDrafter],
    *,
    accepted_lengths: Mapping[str, Mapping[str, float]],
    circumstances: Mapping[str, Any],
) -> None:
    """Write drafters with their common target as `load_theatre` reads them, in half precision.

    Args:
        folder: written in one piece, in place of an older one.
        trained: block drafters by name; left as they were.
        accepted_lengths: of every drafter, by temperature.
        circumstances: revision, versions, threads and date, as `experiments.provenance` gives them.

    Raises:
        ValueError: if there is no drafter, one is no block drafter, or their targets differ.
    """
    runs = _one_target(trained)
    with whole_folder(folder) as partial:
        with without_bars():
            copy.deepcopy(runs.target_run.model).half().save_pretrained(partial / TARGET)
        for name, run in trained.items():
            halves = {key: part.half() for key, part in model_tensors(run.drafter).items()}
            save_file(halves, partial / f"{name}.safetensors")
        record = {
            "target": _summary(runs.target_run.config, runs.target_run.seconds),
            "drafters": {
                name: _summary(run.config, run.seconds)
                | {"accepted_length": dict(accepted_lengths[name])}
                for name, run in trained.items()
            },
        }
        text = json.dumps(record | dict(circumstances), indent=1)
        (partial / RECORD).write_text(text + "\n", encoding="utf-8")


def _summary(config: object, seconds: float) -> dict[str, Any]:
    return {"config": to_dict(config), "seconds": round(seconds, 1)}


def _one_target(trained: Mapping[str, TrainedDrafter]) -> TrainedDrafter:
    """Any of the drafters, all of which draft for one target."""
    others = [name for name, run in trained.items() if not isinstance(run.drafter, Drafter)]
    targets = {id(run.target_run.model) for run in trained.values()}
    taps = {run.drafter.layer_ids for run in trained.values()} if not others else set()
    if others or len(targets) != 1 or len(taps) != 1:
        raise ValueError(
            "save_theatre needs block drafters (DSpark, DFlash) of one target that read the same "
            f"blocks; got {len(targets)} targets, blocks {sorted(taps)} and of another kind: "
            f"{', '.join(others) or 'none'}"
        )
    return next(iter(trained.values()))
