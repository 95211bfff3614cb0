"""What every test gets: run-time shape checks, tiny scale, one thread, a results folder apart."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

# Set before anything imports torch or engram_lab, and inherited by the processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["ENGRAM_LAB_SCALE"] = "tiny"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
SCRATCH = Path(tempfile.mkdtemp(prefix="engram_lab_tests_"))
os.environ["ENGRAM_LAB_HOME"] = str(SCRATCH)

from jaxtyping import install_import_hook  # noqa: E402

install_import_hook("engram_lab", "beartype.beartype")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)

if TYPE_CHECKING:
    from engram_lab.model.config import EngramLMConfig
    from engram_lab.model.modeling import EngramLM


def pytest_unconfigure() -> None:
    shutil.rmtree(SCRATCH, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    # the long ones first, so that the last test to end is a short one
    items.sort(key=lambda item: item.get_closest_marker("notebook") is None)


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def tiny_config() -> "EngramLMConfig":
    """A config of a few thousand parameters with a memory and experts; `replace` or `copy` it."""
    from engram_lab.model import presets

    return presets.tiny()


@pytest.fixture
def tiny_model(tiny_config: "EngramLMConfig") -> "EngramLM":
    """A randomly initialised model of that shape, the same weights in every test."""
    from engram_lab.model.modeling import EngramLM
    from engram_lab.tokens.compression import VocabCompression

    return EngramLM(tiny_config, VocabCompression.identity(tiny_config.vocab_size)).eval()
