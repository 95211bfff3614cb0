"""Installing: pins, the conda file, the wheel, the set-up script, an import that stays light."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import engram_lab

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8").splitlines()
NO_NETWORK = re.compile(r"dns|resolve host|name resolution|timed out|error sending|fetch", re.I)


def run(command: list[str], **options: object) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def pins() -> dict[str, set[str]]:
    """Versions that the lock pins, by normalised name; markers may give a name several."""
    found: dict[str, set[str]] = {}
    for line in LOCK:
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (only,) = requirement.specifier
            assert only.operator == "==", line
            found.setdefault(requirement.name.lower().replace("_", "-"), set()).add(only.version)
    return found


def test_the_lock_pins_everything_the_project_asks_for_within_its_bounds() -> None:
    pinned = pins()
    for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]:
        wanted = Requirement(text)
        versions = pinned.get(wanted.name.lower(), set())
        assert versions, f"{wanted.name} is not pinned: make lock"
        assert all(version in wanted.specifier for version in versions), (text, versions)


def test_torch_is_capped_and_pinned_without_a_build_tag() -> None:
    (torch,) = [text for text in PROJECT["dependencies"] if text.startswith("torch>")]
    assert "<" in torch  # without a cap, a build of several gigabytes is taken instead of ours
    assert all("+" not in version for version in pins()["torch"])


def test_the_lock_names_no_host_and_no_local_file() -> None:
    lines = [line for line in LOCK if not line.startswith("#")]
    assert not [line for line in lines if "://" in line or " @ " in line or line.startswith("-")]
    assert "://" not in "".join(LOCK)


def test_the_version_is_said_once() -> None:
    assert PROJECT["version"] == engram_lab.__version__


def test_conda_reads_the_match_specs_of_environment_yml() -> None:
    rattler = pytest.importorskip("rattler")
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text(encoding="utf-8"))
    specs = [item for item in environment["dependencies"] if isinstance(item, str)]
    names = [rattler.MatchSpec(spec).name.normalized for spec in specs]
    assert names == ["python", "pip"]
    assert environment["name"] == "engram_lab"
    assert environment["channels"]


def test_the_pip_part_of_environment_yml_resolves(tmp_path: Path) -> None:
    if not shutil.which("uv"):
        pytest.skip("needs uv: pip would download every wheel to resolve them")
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text(encoding="utf-8"))
    (pip_part,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    listed = tmp_path / "requirements.in"
    listed.write_text("\n".join(pip_part).replace("-e .", f"-e {REPOSITORY}"), encoding="utf-8")
    links = (
        {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
    )
    done = run(["uv", "pip", "compile", "--quiet", str(listed)], env=os.environ | links)
    if done.returncode and NO_NETWORK.search(done.stderr):
        pytest.skip("no package index can be reached from here")
    assert done.returncode == 0, done.stderr
    assert "\ntorch==2." in done.stdout
    assert "\npytest==" in done.stdout


def test_importing_engram_lab_imports_nothing_heavy() -> None:
    heavy = ("transformers", "plotly", "ipywidgets", "anywidget", "pandas", "accelerate")
    child = f"import sys, engram_lab; print([name for name in {heavy!r} if name in sys.modules])"
    done = run([sys.executable, "-c", child], cwd=REPOSITORY)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what a release contains, without a network."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in ("engram_lab", "data/models", "data/published", "data/tokenizers"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("*.pyc"))
    child = "from setuptools.build_meta import build_wheel; print(build_wheel('dist'))"
    done = run([sys.executable, "-c", child], cwd=source)
    assert done.returncode == 0, done.stderr
    return next((source / "dist").glob("*.whl"))


def test_the_wheel_carries_its_data_and_the_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("models", "published", "tokenizers"):
        for file in (REPOSITORY / "data" / folder).rglob("*"):
            if file.is_file():
                inside = file.relative_to(REPOSITORY / "data").as_posix()
                assert f"engram_lab/data_files/{inside}" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "data/", "benchmarks/"))]


def test_an_installed_wheel_finds_its_published_numbers_and_its_model(
    wheel: Path, tmp_path: Path
) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    child = (
        "from engram_lab.paths import checkout, published_dir, tokenizers_dir\n"
        "from engram_lab.probes.shipped import load_shipped\n"
        "from engram_lab.published import load_published\n"
        "load_published('engram_allocation'), load_shipped('microscope')\n"
        "print(checkout(), published_dir(), tokenizers_dir(), sep='\\n')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ENGRAM_LAB_HOME"}
    environment["PYTHONPATH"] = str(tmp_path)
    done = run([sys.executable, "-c", child], cwd=tmp_path, env=environment)
    assert done.stdout.splitlines() == [
        "None",
        str(tmp_path / "engram_lab" / "data_files" / "published"),
        str(tmp_path / "engram_lab" / "data_files" / "tokenizers"),
    ], done.stderr


@pytest.mark.parametrize("offered", ["no Python at all", "a Python that is too old"])
def test_setup_says_which_python_it_needs(offered: str, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "dirname"):
        (tools / tool).symlink_to(shutil.which(tool))
    if offered == "a Python that is too old":
        (tools / "python3").write_text("#!/bin/bash\nexit 1\n")  # it fails the version check
        (tools / "python3").chmod(0o755)
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(REPOSITORY / "scripts" / "setup_env.sh", tmp_path / "scripts")
    done = run([str(tools / "bash"), str(script)], env={"PATH": str(tools)})
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert "PYTHON=" in done.stderr
