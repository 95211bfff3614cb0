"""Where data, results, checkpoints and figures live.

Shipped files (corpora, tokenizers, published numbers) are read from the checkout, or from the copy
inside the wheel. Everything that is written goes below `home()`: `$ENGRAM_LAB_HOME`, else the
checkout, else a folder of the user.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """Root of the git checkout this package runs from, or None for an installed wheel."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").exists() and (root / "data").is_dir() else None


def home() -> Path:
    """Folder below which results, checkpoints and figures are written."""
    chosen = os.environ.get("ENGRAM_LAB_HOME")
    if chosen:
        return Path(chosen).expanduser().resolve()
    return checkout() or Path.home() / "engram_lab"


def data_dir() -> Path:
    """`data/` below `home()`."""
    return home() / "data"


def results_dir() -> Path:
    """Where experiments keep their finished points, one CSV and one JSON each."""
    return data_dir() / "results"


def checkpoints_dir() -> Path:
    """Where trained models live, by fingerprint (not in git)."""
    return data_dir() / "checkpoints"


def cache_dir() -> Path:
    """Where files that can be made again are kept (not in git)."""
    return data_dir() / "cache"


def figures_dir() -> Path:
    """Where `figures.style.save` writes."""
    return home() / "figures"


def corpora_dir() -> Path:
    """The shipped text bundle (checkout only: the wheel does not carry it).

    Raises:
        FileNotFoundError: if no bundle is at hand, saying where it was looked for.
    """
    return _shipped("corpora", in_wheel=False)


def tokenizers_dir() -> Path:
    """The shipped BPE tokenizers."""
    return _shipped("tokenizers")


def models_dir() -> Path:
    """The shipped trained models."""
    return _shipped("models")


def published_dir() -> Path:
    """The papers' numbers as CSV."""
    return _shipped("published")


def _shipped(name: str, *, in_wheel: bool = True) -> Path:
    candidates = [data_dir() / name]
    if checkout():
        candidates.append(checkout() / "data" / name)
    if in_wheel:
        candidates.append(PACKAGE / "data_files" / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    looked = ", ".join(str(folder) for folder in candidates)
    raise FileNotFoundError(
        f"the shipped folder {name!r} was not found; looked in {looked}. "
        "Run from a checkout, or set ENGRAM_LAB_HOME to a folder that has data/" + name
    )
