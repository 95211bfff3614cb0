"""What a reader meets: docstrings, short files, a README that runs, links that lead somewhere."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

import engram_lab
from engram_lab.memory.gate import context_gate

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "engram_lab"
MODULES = sorted(PACKAGE.rglob("*.py"))
READMES = sorted(REPOSITORY.glob("README*.md"))
PAGES = READMES + sorted((REPOSITORY / "docs").rglob("*.md"))
LONGEST_FILE, LONGEST_FUNCTION = 300, 50
TEXT_FILES = {".py", ".md", ".toml", ".yml", ".ipynb", ".sh", ".lock", ".cfg", ".in", ""}

each_module = pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE))
)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public_definitions(body: list[ast.stmt], prefix: str = "") -> list[tuple[str, Definition]]:
    """Public functions and classes of a module, and public methods of its public classes."""
    found = []
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            found.append((prefix + node.name, node))
            if isinstance(node, ast.ClassDef):
                found += public_definitions(node.body, f"{prefix}{node.name}.")
    return found


@each_module
def test_every_public_name_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = [name for name, node in public_definitions(tree.body) if not ast.get_docstring(node)]
    assert not bare
    assert ast.get_docstring(tree), "the first line of a file says what it is for"


@each_module
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST_FILE
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = {node.name: node.end_lineno - node.lineno + 1 for node in functions}
    assert not {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION}


@each_module
def test_annotations_are_real_so_that_shapes_can_be_checked(path: Path) -> None:
    assert "from __future__ import annotations" not in path.read_text(encoding="utf-8")


def test_a_wrong_shape_is_caught_in_tests() -> None:
    with pytest.raises(TypeCheckError):
        context_gate(torch.zeros(1, 2, 1, 4), torch.zeros(1, 3, 1, 4))


@pytest.mark.parametrize("name", engram_lab.__all__)
def test_every_exported_name_can_be_imported(name: str) -> None:
    assert getattr(engram_lab, name) is not None


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.name)
def test_the_code_of_the_readme_runs(path: Path, tmp_path: Path) -> None:
    snippets = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    if not snippets:
        pytest.skip(f"{path.name} shows no Python")
    script = tmp_path / "readme.py"
    script.write_text("\n".join(snippets), encoding="utf-8")
    environment = os.environ | {"PLOTLY_RENDERER": "json", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target and "mailto:" not in target]
    assert not [target for target in local if not (path.parent / target).exists()]


def test_every_command_the_pages_name_is_a_target_of_the_makefile() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))
    }
    assert named <= targets


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [REPOSITORY / line for line in listed.stdout.splitlines()]
    return [path for path in files if path.suffix in TEXT_FILES and path.is_file()]


def test_no_file_names_a_folder_of_one_machine() -> None:
    folders = re.compile(
        r"(?<![\w.])/(?:" + "|".join(["work", "root", "home", "opt", "Users"]) + ")/"
    )
    found = [
        f"{path.relative_to(REPOSITORY)}: {line.strip():.80}"
        for path in tracked_files()
        if "corpora" not in path.parts
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if folders.search(line)
    ]
    assert not found
