"""The gallery shows every stored figure, with the notebook and the runs it comes from."""

import importlib.util
import json
from pathlib import Path

import nbformat
import pytest

from engram_lab.experiments import Sweep, catalog

REPOSITORY = Path(__file__).resolve().parent.parent
SETUP = """
from engram_lab.experiments import catalog, run
from engram_lab.figures.allocation import allocation_curve
from engram_lab.figures.style import save
"""
CELLS = [
    SETUP,
    "rows = run(catalog.ENGRAM_ALLOCATION)",
    "half = rows[rows['seed'] == 0]\nfigure = allocation_curve(half)\nsave(figure, 'made')",
    "parts = [run(catalog.QUICKSTART)]\nparts += [half]\nsave(allocation_curve(parts), 'mixed')",
    "for sweep in (catalog.ENGRAM_ALLOCATION_D1,):\n    save(allocation_curve(run(sweep)), 'loop')",
    "%matplotlib inline\nsave(some_other(rows), 'other')",
]


@pytest.fixture(scope="module")
def script():
    location = REPOSITORY / "scripts" / "make_gallery.py"
    spec = importlib.util.spec_from_file_location("make_gallery", location)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one notebook, one picture and three figures, one of them nobody's."""
    for folder in ("figures", "notebooks/paper", "data/results/engram_allocation"):
        (tmp_path / folder).mkdir(parents=True)
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbformat.write(notebook, tmp_path / "notebooks" / "paper" / "study.ipynb")
    for name in ("made", "mixed", "stray", "quickstart_mine"):
        figure = {"data": [], "layout": {"title": {"text": f"<b>The {name}</b><br>a verdict"}}}
        (tmp_path / "figures" / f"{name}.json").write_text(json.dumps(figure))
    (tmp_path / "figures" / "made.png").touch()
    return tmp_path


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| ") and "**" in line]


def test_the_page_is_as_it_would_be_written_today(script):
    page = (REPOSITORY / script.PAGE).read_text(encoding="utf-8")
    assert page == script.gallery(), "run python scripts/make_gallery.py"


def test_the_page_lists_every_stored_figure(script):
    page = (REPOSITORY / script.PAGE).read_text(encoding="utf-8")
    stored = script.stored_figures(REPOSITORY)
    assert len(rows(page)) == len(stored)
    assert all(f"(../figures/{path.name})" in page for path in stored)


def test_a_figure_is_traced_to_its_sweeps_and_its_function(script, checkout):
    found = script.saved_figures(checkout)
    assert found["made"].sweeps == {"ENGRAM_ALLOCATION"}
    assert found["mixed"].sweeps == {"ENGRAM_ALLOCATION", "QUICKSTART"}
    assert found["loop"].sweeps == {"ENGRAM_ALLOCATION_D1"}
    assert found["made"].drawn_by == "engram_lab.figures.allocation.allocation_curve"
    assert found["other"].drawn_by == ""
    assert {origin.notebook for origin in found.values()} == {"notebooks/paper/study.ipynb"}


def test_an_entry_has_picture_title_sentence_and_links(script, checkout):
    page = script.gallery(checkout)
    made, mixed, stray = rows(page)
    assert 'src="../figures/made.png"' in made
    assert "**The made.** Loss against the share of the sparse parameters" in made
    assert "(../data/results/engram_allocation)" in made
    assert "no picture stored" in mixed
    assert "quickstart (not stored)" in mixed
    assert page.index("[paper/study](../notebooks/paper/study.ipynb)") < page.index("The made")
    assert page.index("Saved by no notebook") < page.index("The stray")
    assert stray.startswith("| no picture")


def test_figures_of_the_quickstart_are_left_out(script, checkout):
    assert "quickstart_mine" not in script.gallery(checkout)


def test_without_figures_the_page_says_how_to_make_them(script, tmp_path):
    (tmp_path / "notebooks").mkdir()
    assert "No figure is stored yet" in script.gallery(tmp_path)


@pytest.mark.parametrize("name", catalog.__all__)
def test_results_lie_in_a_folder_named_as_the_constant(name):
    sweep = getattr(catalog, name)
    if isinstance(sweep, Sweep):
        assert sweep.name == name.lower()
