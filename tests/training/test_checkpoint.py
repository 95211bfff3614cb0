"""Checkpoints: whole or not there, and never trusted without their checksums."""

import errno
import json

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from engram_lab.training import checkpoint as checkpoints
from engram_lab.training.checkpoint import (
    Checkpoint,
    checkpoint_paths,
    load_checkpoint,
    load_model_tensors,
    load_newest,
    model_tensors,
    save_checkpoint,
)


def some_checkpoint(step: int) -> Checkpoint:
    return Checkpoint(
        step=step,
        model={"weight": torch.full((3, 2), float(step)), "half": torch.ones(2).bfloat16()},
        optimizer={"weight/step": torch.tensor(step)},
        random={"cpu": torch.get_rng_state()},
        state={"history": [{"loss_nats": 0.1 + 0.2}], "config": "{}"},
    )


def test_everything_comes_back_as_it_was(tmp_path):
    written = some_checkpoint(7)
    read = load_checkpoint(save_checkpoint(tmp_path, written))
    assert (read.step, read.state) == (7, written.state)
    for name in ("model", "optimizer", "random"):
        ours, theirs = getattr(written, name), getattr(read, name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_only_the_newest_two_are_kept(tmp_path):
    for step in (5, 10, 15):
        save_checkpoint(tmp_path, some_checkpoint(step))
    assert [path.name for path in checkpoint_paths(tmp_path)] == ["step_00000010", "step_00000015"]


def test_a_folder_without_checkpoints_has_no_newest(tmp_path):
    assert load_newest(tmp_path / "nowhere") is None


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path, file, damage):
    save_checkpoint(tmp_path, some_checkpoint(5))
    victim = save_checkpoint(tmp_path, some_checkpoint(10)) / file
    content = bytearray(victim.read_bytes())
    if damage == "gone":
        victim.unlink()
    else:
        content[-1] ^= 1
        victim.write_bytes(content if damage == "changed" else content[: len(content) // 2])
    with pytest.warns(UserWarning, match="step_00000010 is damaged"):
        assert load_newest(tmp_path).step == 5


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("no space")]
)
def test_a_full_disk_leaves_the_checkpoint_before_it_untouched(tmp_path, monkeypatch, error):
    save_checkpoint(tmp_path, some_checkpoint(5))
    save = checkpoints.save_file

    def fills_the_disk(tensors, file):
        save(tensors, file)
        if file.name.startswith("optimizer"):
            raise error

    monkeypatch.setattr(checkpoints, "save_file", fills_the_disk)
    with pytest.raises(OSError, match="(?i)no space"):
        save_checkpoint(tmp_path, some_checkpoint(10))
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000005"]
    assert load_newest(tmp_path).step == 5


def test_leftovers_of_a_killed_writer_are_neither_read_nor_in_the_way(tmp_path):
    leftover = tmp_path / ".step_00000010.partial"
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_bytes(b"half")
    assert load_newest(tmp_path) is None
    save_checkpoint(tmp_path, some_checkpoint(10))
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000010"]


def test_an_older_folder_stays_until_the_new_one_is_whole(tmp_path):
    save_checkpoint(tmp_path, some_checkpoint(5))
    with pytest.raises(KeyboardInterrupt), checkpoints.whole_folder(tmp_path / "step_00000005"):
        raise KeyboardInterrupt
    assert load_newest(tmp_path).step == 5


def test_state_is_plain_json(tmp_path):
    path = save_checkpoint(tmp_path, some_checkpoint(7))
    assert json.loads((path / "state.json").read_text())["step"] == 7
    assert {file.suffix for file in path.iterdir()} == {".safetensors", ".json"}


def test_tied_weights_are_written_once_and_stay_tied():
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    tensors = {name: tensor + 1 for name, tensor in model_tensors(model).items()}
    assert list(tensors) == ["a.weight"]
    load_model_tensors(model, tensors)
    assert model["b"].weight is model["a"].weight
    assert torch.equal(model["b"].weight, tensors["a.weight"])


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_tensors_of_another_model_are_refused(change):
    model = nn.Linear(2, 3)
    tensors = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
    if change == "missing":
        del tensors["bias"]
    elif change == "extra":
        tensors["strange"] = torch.zeros(1)
    else:
        tensors["bias"] = torch.zeros(4)
    with pytest.raises(ValueError, match="bias|strange"):
        load_model_tensors(model, tensors)
