"""Every notebook is thin, stripped, and runs top to bottom in a fresh kernel."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(
    path
    for path in (REPOSITORY / "notebooks").rglob("*.ipynb")
    if ".ipynb_checkpoints" not in path.parts
)
MOST_CODE_CELLS, MOST_LINES = 25, 12

each_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda path: str(path.relative_to(REPOSITORY / "notebooks"))
)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@each_notebook
def test_is_committed_without_outputs(path: Path) -> None:
    left = [cell.source for cell in code_cells(path) if cell.outputs or cell.execution_count]
    assert not left, "strip it: make format"


@each_notebook
def test_is_thin(path: Path) -> None:
    cells = code_cells(path)
    assert len(cells) <= MOST_CODE_CELLS
    too_long = [cell.source for cell in cells if len(cell.source.splitlines()) > MOST_LINES]
    assert not too_long, f"cells of more than {MOST_LINES} lines belong in the library"


@each_notebook
def test_opens_with_a_title_and_closes_with_what_to_try_next(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    assert "Try next" in cells[-1].source


@each_notebook
def test_says_first_which_engram_lab_it_runs(path: Path) -> None:
    # a kernel of another environment is the commonest reason why a notebook does not run
    first = code_cells(path)[0].source
    assert "engram_lab.__version__" in first
    assert "engram_lab.__file__" in first


@pytest.mark.notebook
@each_notebook
def test_runs_top_to_bottom_in_a_fresh_kernel(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "scripts/run_notebook.py", str(path), "--no-page"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1", "ENGRAM_LAB_SCALE": "tiny"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
