"""The floors of the library: a module imports from its own floor or one to its left."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "engram_lab"
BASE = {"hooks", "configs", "scales", "paths", "published"}
FLOORS = ["base", "tokens", "memory", "storage", "model", "adapt", "draft", "training"]
FLOORS += ["probes", "experiments", "figures", "workshop", "widgets"]
FIGURES_MAY_IMPORT = {"pandas", "numpy", "plotly"}
# the package's own __init__ names things of every floor, lazily
MODULES = sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / "__init__.py"})


def floor_of(dotted: str) -> str:
    """Floor of "engram_lab.<name>...": the folder, or "base" for the modules beside __init__."""
    name = (dotted.split(".") + [""])[1]
    return "base" if name in BASE | {"", "__version__"} else name


def imports(path: Path) -> list[str]:
    """Every dotted name a file imports, relative ones made absolute, also inside functions."""
    package = ["engram_lab", *path.relative_to(PACKAGE).parts[:-1]]
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*stem, node.module] if node.module else stem)
            deeper = module == "engram_lab"  # `from engram_lab import paths` means a module
            names += [f"{module}.{alias.name}" for alias in node.names] if deeper else [module]
    return names


def violations(path: Path) -> list[str]:
    relative = path.relative_to(PACKAGE)
    here = "base" if len(relative.parts) == 1 else relative.parts[0]
    found = []
    for name in imports(path):
        top = name.split(".")[0]
        if top != "engram_lab":
            if here == "figures" and top not in FIGURES_MAY_IMPORT | sys.stdlib_module_names:
                found.append(name)
            continue
        there = floor_of(name)
        if here == "figures":
            allowed = there == "figures" or name.startswith("engram_lab.paths")
        else:
            allowed = there in FLOORS and FLOORS.index(there) <= FLOORS.index(here)
            allowed &= there != "figures" or here in {"workshop", "widgets"}
        if not allowed:
            found.append(name)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_to_the_left(path: Path) -> None:
    assert not violations(path), f"{path.relative_to(PACKAGE)} must not import these"


def test_the_check_sees_an_import_to_the_right(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    (tmp_path / "memory").mkdir()
    module = tmp_path / "memory" / "gate.py"
    module.write_text(
        "def f():\n    from ..probes import gates\n    from engram_lab.tokens import corpus\n"
    )
    assert violations(module) == ["engram_lab.probes"]
