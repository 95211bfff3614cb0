"""Drafters in files: our own folders, and checkpoints of the `speculators` library.

A checkpoint of a drafter must say three things that its tensors do not show: whether the anchor's
slot predicts, at which blocks the target is read and on which side of them, and which id masks a
slot. Read with another answer it loads without an error and drafts nonsense.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engram_lab.configs import from_dict, to_dict
from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.speculators_config import (
    TAP_POINT,
    check_tap_point,
    from_speculators,
    settled_layout,
    to_speculators,
)
from engram_lab.draft.target import Target

FORMAT = 1
"""Version of our own folders."""
CONFIG, WEIGHTS = "config.json", "model.safetensors"
TARGETS_OWN = (
    "embed_tokens.weight",
    "lm_head.weight",
    "verifier_lm_head.weight",
    "verifier_norm.weight",
    "t2d",
    "d2t",
)
"""Tensors in checkpoints of `speculators` that belong to the target, which brings its own."""


def save_drafter(drafter: Drafter, folder: Path | str) -> Path:
    """Write a drafter as safetensors beside a `config.json` that has every field of its config.

    The target's embedding and head are not part of it.

    Args:
        drafter: any shape of DSpark or DFlash.
        folder: made where it is missing; an older drafter in it is replaced.

    Returns:
        The folder.

    Raises:
        ValueError: if the drafter is in production form, reads a memory, or does not read outputs.
    """
    _check_kept(drafter)
    values = {
        "drafter_format": FORMAT,
        "tap_point": TAP_POINT,
        "config": to_dict(drafter.config),
    }
    return _write(Path(folder), values, drafter)


def load_drafter(
    folder: Path | str, target: Target, *, sample_from_anchor: bool | None = None
) -> Drafter:
    """The drafter that `save_drafter` wrote, for a target of the shape it was trained with.

    Args:
        folder: where it is.
        target: the model it drafts for, read at the drafter's blocks.
        sample_from_anchor: layout of the block, for a file that does not name it.

    Returns:
        The drafter in evaluation mode, on the target's device.

    Raises:
        ValueError: if the folder holds no drafter, a field is unknown, the layout is not named, the
            states were taken elsewhere, tensors are missing or left over, or the target has another
            shape.
    """
    folder = Path(folder)
    values = _read(folder)
    if values.get("drafter_format") != FORMAT:
        raise ValueError(
            f"{folder / CONFIG} must say drafter_format {FORMAT}; it says "
            f"{values.get('drafter_format')}. Checkpoints of the speculators library are read by "
            "load_speculators."
        )
    check_tap_point(values.get("tap_point", "an unnamed place"))
    fields = dict(values["config"])
    slots = fields.get("block_size", DraftConfig.block_size)
    fields["sample_from_anchor"] = settled_layout(
        fields.get("sample_from_anchor"), sample_from_anchor, DraftConfig.sample_from_anchor, slots
    )
    return _filled(from_dict(DraftConfig, fields), target, _tensors(folder), folder)


def save_speculators(drafter: Drafter, folder: Path | str, *, verifier: str | None = None) -> Path:
    """Write a drafter as a checkpoint that release 0.9 of the `speculators` library loads.

    It becomes a DSpark there, or a DFlash where it has no heads and its anchor predicts nothing.
    The tensors have the names that DeepSpec and that library share with ours.

    Args:
        drafter: any shape that the format has words for.
        folder: made where it is missing; an older checkpoint in it is replaced.
        verifier: name or folder of the target, from which that library takes embedding, head and
            final norm; None leaves them unset there.

    Returns:
        The folder.

    Raises:
        ValueError: if a block is causal without a window, or a recurrent head leaves out the
            anchor's slot, or the drafter is in production form or does not read outputs.
    """
    _check_kept(drafter)
    model = drafter.target.model
    values = to_speculators(
        drafter.config,
        verifier=verifier,
        architectures=(type(model).__name__,),
        context=drafter.target.context,
    )
    return _write(Path(folder), values, drafter)


def load_speculators(
    folder: Path | str, target: Target, *, sample_from_anchor: bool | None = None
) -> Drafter:
    """A DSpark or DFlash checkpoint of the `speculators` library, as a drafter of ours.

    Args:
        folder: where it is.
        target: the model it drafts for, read at the drafter's blocks (`checkpoint_taps`).
        sample_from_anchor: layout of the block, for a file that does not name it.

    Returns:
        The drafter in evaluation mode, on the target's device.

    Raises:
        ValueError: if it is no such checkpoint, does not name its layout, has a part that ours
            lacks, tensors are missing or left over, or the target has another shape.
    """
    folder = Path(folder)
    values = _read(folder)
    config = from_speculators(
        values, target_depth=target.depth, sample_from_anchor=sample_from_anchor
    )
    tensors = {k: v for k, v in _tensors(folder).items() if k not in TARGETS_OWN}
    unread = config.confidence and not values.get("confidence_head_with_markov", True)
    if unread and config.markov_rank and "confidence_head.proj.weight" in tensors:
        # a head that does not read the previous token is one that gives it no weight
        weight = tensors["confidence_head.proj.weight"]
        tensors["confidence_head.proj.weight"] = torch.nn.functional.pad(
            weight, (0, config.markov_rank)
        )
    return _filled(config, target, tensors, folder)


def checkpoint_taps(folder: Path | str) -> tuple[int, ...]:
    """Blocks of the target that a saved drafter reads, in our count, so that one can be built.

    Args:
        folder: written by `save_drafter`, `save_speculators` or the `speculators` library.

    Raises:
        ValueError: if the folder holds no drafter.
    """
    values = _read(Path(folder))
    if "aux_hidden_state_layer_ids" in values:
        return tuple(layer - 1 for layer in values["aux_hidden_state_layer_ids"])
    if "target_layer_ids" in values.get("config", {}):
        return tuple(values["config"]["target_layer_ids"])
    raise ValueError(f"{Path(folder) / CONFIG} must name the target's blocks; it names none")


def _write(folder: Path, values: Mapping[str, Any], drafter: Drafter) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)  # a folder that has one is complete
    tensors = {name: value.detach().contiguous() for name, value in drafter.state_dict().items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    text = json.dumps(values, indent=2, ensure_ascii=False)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    return folder


def _read(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"a drafter's folder must hold {CONFIG}; {folder} does not")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} must be JSON; {error}") from error


def _tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, which may be spread over several files."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"a drafter's folder must hold {WEIGHTS}; {folder} does not")
    found: dict[str, Tensor] = {}
    for file in files:
        try:
            found |= load_file(file)
        except SafetensorError as error:
            raise ValueError(f"{file} is damaged or cut short: {error}") from error
    return found


def _check_kept(drafter: Drafter) -> None:
    config = drafter.config
    if type(drafter) is not Drafter or config.tap != "output":
        raise ValueError(
            "these files hold drafters of the class Drafter that read outputs of blocks; got a "
            f"{type(drafter).__name__} with tap={config.tap!r}. load_or_fit_drafter keeps any."
        )


def _filled(
    config: DraftConfig, target: Target, tensors: Mapping[str, Tensor], folder: Path
) -> Drafter:
    drafter = Drafter(config, target)
    wanted = {name: value.shape for name, value in drafter.state_dict().items()}
    missing, extra = sorted(wanted.keys() - tensors), sorted(tensors.keys() - wanted)
    if missing or extra:
        raise ValueError(
            f"the tensors in {folder} must be those of its config; missing: "
            f"{', '.join(missing) or 'none'}; left over: {', '.join(extra) or 'none'}"
        )
    for name, shape in wanted.items():
        if tensors[name].shape != shape:
            raise ValueError(
                f"{name} in {folder} must have shape {tuple(shape)} by its config; it has "
                f"{tuple(tensors[name].shape)}"
            )
    drafter.load_state_dict(tensors)
    return drafter.to(target.device).eval()
