"""The circumstances of a result: code, packages, device, date."""

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import engram_lab

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pandas")


def circumstances(model: object = None) -> dict[str, Any]:
    """Revision, versions, device, threads and date of a result, for its record.

    Args:
        model: what was measured; names the device if it is a module with parameters.
    """
    return {
        "revision": code_revision(),
        "versions": package_versions(),
        "device": _device(model),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def code_revision(root: Path | None = None) -> str:
    """Commit of the checkout the package runs from, `+changes` if its code differs; else a version.

    Args:
        root: folder that holds the package; None takes where it was imported from.
    """
    root = root or Path(engram_lab.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return f"engram-lab {engram_lab.__version__}"
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return f"engram-lab {engram_lab.__version__}"
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "engram_lab")
    return f"{head}+changes" if changed else head


def package_versions() -> dict[str, str]:
    """Versions of Python, of this package and of the packages that numbers depend on."""
    found = {"python": platform.python_version(), "engram-lab": engram_lab.__version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _device(model: object) -> str:
    parameter = next(model.parameters(), None) if isinstance(model, torch.nn.Module) else None
    if parameter is not None and parameter.device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name(parameter.device)}"
    kind = parameter.device.type if parameter is not None else "cpu"
    return f"{kind}: {platform.machine()}"
