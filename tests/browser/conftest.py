"""One JupyterLab, one browser, one notebook for all browser tests, or a reason for none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import pytest

from tests.browser.cells import CELLS
from tests.browser.lab import CHROMIUM_FLAGS, Lab, Notebook

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@pytest.fixture(scope="session")
def screenshots(repository: Path) -> Path:
    """Where screenshots stay."""
    folder = repository / "build" / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """A Chromium that the tests drive."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: no chromium and no chromium-browser on the path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(chromium: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab."""
    server = Lab(tmp_path_factory.mktemp("jupyter"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def asked_hosts() -> set[str | None]:
    """Names of the machines that pages have asked for something."""
    return set()


@pytest.fixture(scope="session")
def opened(
    lab: Lab, chromium: object, asked_hosts: set[str | None], screenshots: Path
) -> Iterator[Notebook]:
    """The notebook of `cells.py`, opened; no cell has run."""
    page = chromium.new_page(viewport={"width": 1280, "height": 1400})
    page.on("request", lambda request: asked_hosts.add(urlparse(request.url).hostname))
    try:
        yield Notebook(lab, page, "widgets.ipynb", CELLS)
    finally:
        page.screenshot(path=screenshots / "last.png")
        page.close()


@pytest.fixture
def notebook(
    opened: Notebook, screenshots: Path, request: pytest.FixtureRequest
) -> Iterator[Notebook]:
    """The notebook, in the state in which the test before has left it; a screenshot afterwards."""
    yield opened
    opened.page.screenshot(path=screenshots / f"{request.node.name}.png")
