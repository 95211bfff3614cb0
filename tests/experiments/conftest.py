import pytest


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    """A results folder for each test; gives the folder of the sweep `fake`."""
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))
    monkeypatch.delenv("ENGRAM_LAB_JOBS", raising=False)
    return tmp_path / "data" / "results" / "fake"
