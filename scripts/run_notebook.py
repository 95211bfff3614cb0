"""Execute notebooks top to bottom in this interpreter's own kernel, without touching the originals.

    python scripts/run_notebook.py notebooks/00_quickstart.ipynb --output build/demo

Writes the executed notebook and an HTML page of it below --output. What the cells print appears in
the terminal as it comes, and so does the value of a cell that carries the tag `report`. A cell that
fails ends the run with its traceback and exit code 1; the notebook so far is written all the same.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

from engram_lab.paths import figures_dir

REPOSITORY = Path(__file__).resolve().parent.parent


class OwnKernel(AsyncKernelManager):
    """Starts the kernel of the running interpreter, whatever kernels the user has registered."""

    @property
    def kernel_spec_manager(self) -> KernelSpecManager:
        """A look-up that knows no folder of kernels, so only the interpreter's own is left."""
        return KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True)


class EchoingClient(NotebookClient):
    """A notebook client that says what it is doing while it does it."""

    def process_message(self, message: dict, cell: dict, cell_index: int) -> object:
        """Echo printed text, and the value of a cell tagged `report`, then go on as usual."""
        content = message["content"]
        if message["msg_type"] == "stream":
            print(content["text"], end="", flush=True)
        elif "report" in cell.metadata.get("tags", []) and "data" in content:
            print(content["data"].get("text/plain", ""), flush=True)
        return super().process_message(message, cell, cell_index)


def notebooks_in(paths: list[Path]) -> list[Path]:
    """The notebooks named, and those in the folders named, in order."""
    found = []
    for path in paths:
        found += sorted(path.rglob("*.ipynb")) if path.is_dir() else [path]
    return [path for path in found if ".ipynb_checkpoints" not in path.parts]


def execute(path: Path, output: Path, *, page: bool = True) -> None:
    """Execute one notebook from its own folder and write it, and a page of it, below `output`.

    Raises:
        CellExecutionError: if a cell raises; what ran before it is written first.
    """
    notebook = nbformat.read(path, as_version=4)
    code_cells = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    started = time.perf_counter()

    def announce(cell: dict, cell_index: int, **_: object) -> None:
        if cell.cell_type != "code":
            return
        title = next((line for line in cell.source.splitlines() if line.strip()), "")
        seconds = time.perf_counter() - started
        number = code_cells.index(cell_index) + 1
        print(f"[{seconds:6.1f} s] cell {number} of {len(code_cells)}: {title:.70}", flush=True)

    client = EchoingClient(
        notebook,
        kernel_manager_class=OwnKernel,
        kernel_name="python3",
        timeout=None,
        startup_timeout=300,  # seconds; a busy machine takes more than the usual one minute
        extra_arguments=["--log-level=ERROR"],  # or it warns of its own loopback socket each time
        resources={"metadata": {"path": str(path.resolve().parent)}},
        on_cell_start=announce,
    )
    try:
        client.execute()
    finally:
        written = write(notebook, output / path.name, page=page)
        seconds = time.perf_counter() - started
        print(f"[{seconds:6.1f} s] {path.name} done; wrote {' and '.join(map(str, written))}")


def write(notebook: nbformat.NotebookNode, target: Path, *, page: bool) -> list[Path]:
    """The executed notebook, and one page of HTML beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target)
    if not page:
        return [target]
    html = target.with_suffix(".html")
    html.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")
    return [target, html]


def figures_since(moment: float) -> list[Path]:
    """Figures that were written at or after `moment`, in seconds since the epoch."""
    files = sorted(figures_dir().glob("*")) if figures_dir().is_dir() else []
    return [file for file in files if file.stat().st_mtime >= moment]


def main() -> int:
    """Execute what the command line names; the exit code is 1 if a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, help="notebooks, or folders of notebooks")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "build" / "notebooks")
    parser.add_argument("--no-page", action="store_true", help="write no HTML")
    arguments = parser.parse_args()
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype+notebook")  # figures in the page too
    started = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        # no start-up file and no setting of the user's takes part
        os.environ["IPYTHONDIR"] = os.environ["JUPYTER_CONFIG_DIR"] = scratch
        for path in notebooks_in(arguments.paths):
            try:
                execute(path, arguments.output, page=not arguments.no_page)
            except CellExecutionError as error:
                print(f"{path} failed.\n{error}", file=sys.stderr)
                return 1
    if figures := figures_since(started):
        print("figures:", *figures, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
