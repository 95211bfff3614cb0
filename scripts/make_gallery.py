"""Write docs/gallery.md: every stored figure with its picture, its notebook and the runs behind it.

    python scripts/make_gallery.py            writes the page
    python scripts/make_gallery.py --check    says whether the page is as it would be written

What a figure is called stands in the figure; where it comes from stands in the notebook that saves
it: the function that draws it, and the sweeps of the catalogue whose rows it is given.
"""

import argparse
import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = Path("docs") / "gallery.md"
PERSONAL = "quickstart_"  # what the quickstart saves is everyone's own
HEAD = """# Gallery

Every figure in `figures/`: its picture, and its plotly JSON, which `plotly.io.read_json` opens.
Written by `python scripts/make_gallery.py`; a figure is made anew by running its notebook.
"""
EMPTY = "\nNo figure is stored yet: `make figures` runs the paper notebooks, which save theirs.\n"


@dataclass
class Origin:
    """Where the value of a notebook's variable comes from.

    Attributes:
        sweeps: constants of the catalogue whose rows went into it.
        drawn_by: dotted name of the figure function that made it, or "".
        notebook: path of the notebook, from the root of the repository.
    """

    sweeps: set[str] = field(default_factory=set)
    drawn_by: str = ""
    notebook: str = ""


def gallery(repository: Path = REPOSITORY) -> str:
    """The page as Markdown."""
    origins = saved_figures(repository)
    entries: dict[str, list[str]] = {}
    for path in stored_figures(repository):
        origin = origins.get(path.stem, Origin())
        entries.setdefault(origin.notebook, []).append(entry(path, origin, repository))
    parts = [HEAD if entries else HEAD + EMPTY]
    for notebook in sorted(entries, key=lambda name: (name == "", name)):
        parts.append(f"\n## {heading(notebook)}\n\n| figure | what it shows |\n|---|---|\n")
        parts += entries[notebook]
    return "".join(parts)


def stored_figures(repository: Path) -> list[Path]:
    """The stored figures, in order of their names."""
    paths = sorted((repository / "figures").glob("*.json"))
    return [path for path in paths if not path.name.startswith(PERSONAL)]


def heading(notebook: str) -> str:
    """Heading of the figures of one notebook."""
    if not notebook:
        return "Saved by no notebook"
    name = notebook.removeprefix("notebooks/").removesuffix(".ipynb")
    return f"[{name}](../{notebook})"


def entry(path: Path, origin: Origin, repository: Path) -> str:
    """A row of the page: the picture, title and sentence, and the way to rows and JSON."""
    text = title(path)
    picture = path.with_suffix(".png")
    shown = "no picture stored"
    if picture.exists():
        source = f"../figures/{picture.name}"
        shown = f'<a href="{source}"><img src="{source}" width="420" alt="{text}"></a>'
    runs = []
    for name in sorted(sweep.lower() for sweep in origin.sweeps):
        results = f"data/results/{name}"
        stored = (repository / results).is_dir()
        runs.append(f"[{name}](../{results})" if stored else f"{name} (not stored)")
    links = [f"[{path.stem}](../figures/{path.name})"]
    if runs:
        links.append(f"runs: {', '.join(runs)}")
    said = " ".join(filter(None, (f"**{text}.**", sentence(origin.drawn_by))))
    return f"| {shown} | {said}<br>{' · '.join(links)} |\n"


def title(path: Path) -> str:
    """Title of a stored figure: its first line, without markup; else the name of the file."""
    layout = json.loads(path.read_text(encoding="utf-8"))["layout"]
    first = layout.get("title", {}).get("text", "").split("<br>")[0]
    return re.sub(r"<[^>]*>", "", first).strip().replace("|", "\\|") or path.stem


def sentence(drawn_by: str) -> str:
    """What a figure function says of itself in its first sentence."""
    if not drawn_by:
        return ""
    module, _, name = drawn_by.rpartition(".")
    text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def saved_figures(repository: Path) -> dict[str, Origin]:
    """Origin of every figure that a notebook saves, by the name it saves it under."""
    found: dict[str, Origin] = {}
    for path in sorted((repository / "notebooks").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in path.parts:
            notebook = path.relative_to(repository).as_posix()
            for name, origin in saved_by(path):
                origin.notebook = notebook
                found.setdefault(name, origin)
    return found


def saved_by(path: Path) -> Iterator[tuple[str, Origin]]:
    """Names and origins of the figures that a notebook saves, cell after cell."""
    cells = nbformat.read(path, as_version=4).cells
    source = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    known: dict[str, Origin] = {}
    functions: dict[str, str] = {}
    for statement in ast.parse(re.sub(r"^[%!].*$", "", source, flags=re.M)).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                functions[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.For):
                remember(node, known, functions)
            if isinstance(node, ast.Call) and is_save(node):
                yield node.args[1].value, origin_of(node.args[0], known, functions)


def remember(
    node: ast.Assign | ast.AugAssign | ast.For,
    known: dict[str, Origin],
    functions: dict[str, str],
) -> None:
    """Note the origin of the names that a statement gives a value."""
    origin = origin_of(node.iter if isinstance(node, ast.For) else node.value, known, functions)
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                if isinstance(node, ast.AugAssign):  # what was there before stays in it
                    origin.sweeps |= known.get(name.id, Origin()).sweeps
                known[name.id] = origin


def origin_of(value: ast.expr, known: dict[str, Origin], functions: dict[str, str]) -> Origin:
    """Origin of an expression: that of all names in it, and the figure function that it calls."""
    origin = Origin()
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "catalog":
            origin.sweeps.add(node.attr)
        if isinstance(node, ast.Name) and node.id in known:
            origin.sweeps |= known[node.id].sweeps
            origin.drawn_by = origin.drawn_by or known[node.id].drawn_by
        if isinstance(node, ast.Call):
            dotted = functions.get(getattr(node.func, "id", ""), "")
            if dotted.startswith("engram_lab.figures."):
                origin.drawn_by = dotted
    return origin


def is_save(call: ast.Call) -> bool:
    """Whether a call is `save(figure, "name")`."""
    named = getattr(call.func, "id", "") == "save" and len(call.args) == 2
    return named and isinstance(getattr(call.args[1], "value", None), str)


def main() -> int:
    """Write or check the page; the exit code is 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    page, text = REPOSITORY / PAGE, gallery()
    if not parser.parse_args().check:
        page.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE} with {len(stored_figures(REPOSITORY))} figures")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE} is not up to date; run python scripts/make_gallery.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
