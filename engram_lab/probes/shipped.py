"""The trained model that ships, small enough to open at once, with the index of its rows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engram_lab import paths
from engram_lab.configs import from_dict, to_dict
from engram_lab.model.modeling import EngramLM
from engram_lab.probes.row_file import load_index, save_index
from engram_lab.probes.row_keys import RowIndex
from engram_lab.tokens.tokenizer import Tokenizer, load_tokenizer
from engram_lab.training.checkpoint import whole_folder
from engram_lab.training.config import RunConfig
from engram_lab.training.finished import without_bars
from engram_lab.training.fit import TrainedRun

RUN, ROWS, HISTORY = "run.json", "rows.npz", "history.csv"
HISTORY_STEP = 20  # updates between two stored losses


class Shipped(NamedTuple):
    """A model that ships.

    Attributes:
        model: in evaluation mode, in float32 on the CPU.
        tokenizer: of its training text.
        index: which n-grams of that text read each of its rows.
        config: the run that made it.
        losses: held-out losses in nats per token, by what was on.
    """

    model: EngramLM
    tokenizer: Tokenizer
    index: RowIndex
    config: RunConfig
    losses: dict[str, float]


def load_shipped(name: str = "microscope") -> Shipped:
    """A model of `data/models`, ready to look into.

    Args:
        name: its folder. "microscope" has 1.3 million parameters and was trained on 1.5 million
            tokens of the text bundle by `scripts/train_microscope.py`.

    Raises:
        ValueError: if there is no model of that name, or one of its files is damaged.
        FileNotFoundError: if no models are shipped with this installation.
    """
    folder = paths.models_dir() / name
    known = sorted(path.parent.name for path in paths.models_dir().glob(f"*/{RUN}"))
    if name not in known:
        raise ValueError(f"a shipped model is one of {', '.join(known) or 'none'}; got {name!r}")
    record = json.loads((folder / RUN).read_text(encoding="utf-8"))
    config = from_dict(RunConfig, record["config"])
    tokenizer = load_tokenizer(config.data.tokenizer)
    with without_bars():
        model = EngramLM.from_pretrained(folder, dtype=torch.float32).eval()
    index = load_index(folder / ROWS, model, tokenizer)
    return Shipped(model, tokenizer, index, config, record["losses"])


def save_shipped(
    folder: Path,
    run: TrainedRun,
    index: RowIndex,
    *,
    losses: Mapping[str, float],
    circumstances: Mapping[str, Any],
) -> None:
    """Write a trained model as `load_shipped` reads it, its weights in half precision.

    Args:
        folder: written in one piece, in place of an older one.
        run: the model with its config and history; left as it was.
        index: of its rows.
        losses: held-out losses of what is written, by what was on.
        circumstances: revision, versions, threads and date, as `experiments.provenance` gives them.

    Raises:
        ValueError: if the run has no tokenizer (a generated corpus).
    """
    if run.tokenizer is None:
        raise ValueError(
            "a shipped model needs a tokenizer, so that one can type to it; this run was trained "
            f"on the generated corpus {run.config.data.corpus!r}"
        )
    with whole_folder(folder) as partial:
        with without_bars():
            run.model.save_pretrained(partial, state_dict=_halved(run.model))
        save_index(index, partial / ROWS)
        history = run.history.iloc[HISTORY_STEP - 1 :: HISTORY_STEP]
        columns = ["step", "tokens", "loss_nats", "lr"]
        history[columns].to_csv(partial / HISTORY, index=False, float_format="%.5g")
        record = {"config": to_dict(run.config), "seconds": round(run.seconds, 1)}
        record |= {"losses": dict(losses), **circumstances}
        (partial / RUN).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


@torch.no_grad()
def round_to_half(model: nn.Module) -> None:
    """Round parameters, in place, to what half precision holds; they stay in their dtype."""
    for parameter in model.parameters():
        parameter.copy_(parameter.half())


def _halved(model: nn.Module) -> dict[str, Any]:
    """Parameters in half precision and buffers as they are; tied ones stay one tensor."""
    parameters = {id(parameter) for parameter in model.parameters()}
    halves: dict[int, Tensor] = {}
    state = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) in parameters:
            value = halves.setdefault(id(value), value.detach().half())
        state[name] = value
    return state
