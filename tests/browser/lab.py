"""A JupyterLab of its own, and a notebook in it as a reader has it before him."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = int(os.environ.get("ENGRAM_LAB_BROWSER_PATIENCE", "900"))
"""Seconds that a step may take before its test fails; where the cores are free it takes few."""

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}
}
KERNEL = {
    "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "Python 3 (ipykernel)",
    "language": "python",
}
LIVE = ".engram-lab-live .js-plotly-plot"
STILL = ".jp-RenderedPlotly"
READ_FIGURES = """(plots) => plots.map((plot) => ({
    data: JSON.parse(JSON.stringify(
        plot.data, (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value
    )),
    notes: (plot.layout.annotations || []).map((note) => note.text),
    title: plot.layout.title?.text,
    drawn: plot._fullData.length,
}))"""
Figure = dict[str, Any]
"""data: the traces; title and notes: texts of the layout; drawn: how many traces plotly draws."""


class Lab:
    """JupyterLab on this machine with settings, data and runtime files of its own.

    Attributes:
        folder: where its notebooks lie.
        url: where it answers.
        token: what it asks for.
    """

    def __init__(self, scratch: Path):
        self.folder = scratch / "notebooks"
        self.token = secrets.token_hex(16)
        self._log = scratch / "server.log"
        environment = _prepared(scratch, self.folder)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *_options(self.folder, port, self.token)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait()

    def write(self, name: str, notebook: nbformat.NotebookNode) -> None:
        """Store a notebook without the server knowing, so that it does not trust its outputs."""
        nbformat.write(notebook, self.folder / name)

    def read(self, name: str) -> nbformat.NotebookNode:
        """A notebook as it is stored."""
        return nbformat.read(self.folder / name, as_version=4)

    def end_kernels(self) -> None:
        """Shut every kernel down, as closing a notebook for good does."""
        for session in self._ask("sessions"):
            self._ask(f"sessions/{session['id']}", method="DELETE")

    def stop(self) -> None:
        """End the server with its kernels."""
        self.end_kernels()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        patient_until = time.monotonic() + PATIENCE
        while time.monotonic() < patient_until and self._process.poll() is None:
            try:
                self._ask("status")
                return
            except OSError:
                time.sleep(0.2)
        self._process.kill()
        raise RuntimeError(f"JupyterLab did not start:\n{self._log.read_text()[-2000:]}")

    def _ask(self, what: str, *, method: str = "GET") -> Any:
        request = urllib.request.Request(
            f"{self.url}/api/{what}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text = answer.read()
        return json.loads(text) if text else None


class Notebook:
    """A notebook open in a browser; its cells are called by name.

    Attributes:
        page: the page it is on.
        name: its file on the server.
    """

    def __init__(self, lab: Lab, page: Any, name: str, cells: Mapping[str, str]):
        self.page, self.name = page, name
        self._lab, self._numbers = lab, {cell: number for number, cell in enumerate(cells)}
        self._ran: set[str] = set()
        self._pristine = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source.strip()) for source in cells.values()],
            metadata={"kernelspec": {"name": "python3", "display_name": KERNEL["display_name"]}},
        )
        page.set_default_timeout(1000 * PATIENCE)
        self._start()

    def _start(self) -> None:
        """Open it without outputs."""
        self._lab.write(self.name, self._pristine)
        self.open()
        self._looked_at = False

    def open(self) -> None:
        """Open it as it is stored, to look at; running a cell opens it without outputs first."""
        self._ran.clear()
        self._looked_at = True
        self.page.goto(f"{self._lab.url}/lab/tree/{self.name}?token={self._lab.token}&reset")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        # a cell that runs before the kernel is connected is dropped without a word
        self.page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for()

    def cell(self, name: str) -> Any:
        """A cell with its outputs."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(self._numbers[name])

    def need(self, *names: str) -> None:
        """Run those of the cells that have not run in this kernel."""
        for name in names:
            if name not in self._ran:
                self.run(name)

    def run(self, name: str) -> None:
        """Run a cell, also again, and wait until it has run.

        Raises:
            AssertionError: with the traceback, if it failed.
        """
        if self._looked_at:
            self._start()
        cell = self.cell(name)
        prompt = cell.locator(".jp-InputPrompt")
        before = _execution(prompt.inner_text())
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        self.wait(f"{name} has run", lambda: _execution(prompt.inner_text()) > before)
        failure = cell.locator("[data-mime-type='application/vnd.jupyter.error']")
        assert not failure.count(), failure.first.inner_text()
        self._ran.add(name)

    def figures(self, name: str) -> list[Figure]:
        """The live figures below a cell."""
        self.cell(name).locator(LIVE).first.wait_for(state="attached")
        return self.cell(name).locator(LIVE).evaluate_all(READ_FIGURES)

    def until(
        self, name: str, what: str, holds: Callable[[Figure], bool], *, figure: int = 0
    ) -> Figure:
        """A live figure of a cell, the first by default, as soon as something holds of it."""

        def now() -> bool:
            return len(shown := self.figures(name)) > figure and holds(shown[figure])

        self.wait(f"{name}: {what}", now)
        return self.figures(name)[figure]

    def printed(self, name: str) -> str:
        """What a cell has printed."""
        return self.cell(name).locator(".jp-OutputArea-output").first.inner_text()

    def save(self) -> nbformat.NotebookNode:
        """Save the notebook; returns it as it is stored."""
        file = self._lab.folder / self.name
        before = file.stat().st_mtime_ns
        stored: list[nbformat.NotebookNode] = []

        def saved() -> bool:
            if file.stat().st_mtime_ns > before:
                with suppress(nbformat.reader.NotJSONError):  # it is being written
                    stored[:] = [self._lab.read(self.name)]
            return bool(stored)

        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        self.wait("the notebook is saved", saved)
        return stored[0]

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds; what it is called stands in the error if it never does."""
        patient_until, pause = time.monotonic() + PATIENCE, 50.0
        while not holds():
            assert time.monotonic() < patient_until, f"after {PATIENCE} s still not so: {what}"
            self.page.wait_for_timeout(pause)
            pause = min(1.3 * pause, 1000)  # where it takes long, looking often makes it longer


def _execution(prompt: str) -> int:
    """The number in a prompt; 0 if there is none, as while the cell runs."""
    return int("".join(filter(str.isdigit, prompt)) or 0)


def _prepared(scratch: Path, notebooks: Path) -> dict[str, str]:
    """Environment of the server, whose folders hold its settings and a kernel of this Python."""
    notebooks.mkdir(parents=True)
    folders = {name: scratch / name for name in ("config", "data", "runtime", "ipython", "share")}
    settings = folders["config"] / "labconfig" / "default_setting_overrides.json"
    kernel = folders["share"] / "kernels" / "python3" / "kernel.json"
    for file, content in ((settings, SETTINGS), (kernel, KERNEL)):
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(content), encoding="utf-8")
    return os.environ | {
        "JUPYTER_CONFIG_DIR": str(folders["config"]),
        "JUPYTER_DATA_DIR": str(folders["data"]),
        "JUPYTER_RUNTIME_DIR": str(folders["runtime"]),
        "JUPYTER_PATH": str(folders["share"]),
        "IPYTHONDIR": str(folders["ipython"]),
        "PYTHONPATH": str(REPOSITORY),
    }


def _options(folder: Path, port: int, token: str) -> list[str]:
    return [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={folder}",
        f"--IdentityProvider.token={token}",
        "--LanguageServerManager.autodetect=False",
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
