"""Several processes: killed and resumed, asking at once, training together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engram_lab import paths
from engram_lab.configs import to_json
from engram_lab.training.checkpoint import checkpoint_paths
from engram_lab.training.fit import fit, load_or_fit
from tests.training.runs import assert_equal_weights, small_run

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = """
import os
import sys
from pathlib import Path
from safetensors.torch import save_file
from engram_lab.configs import from_json
from engram_lab.training.config import RunConfig
from engram_lab.training.checkpoint import model_tensors
from engram_lab.training.fit import fit, load_or_fit
run_config = from_json(RunConfig, Path(sys.argv[2]).read_text())
if sys.argv[1] == "fit":
    run = fit(run_config, progress=False, checkpoint_dir=sys.argv[3])
else:
    run = load_or_fit(run_config, progress=False)
name = f"{sys.argv[2]}.{os.environ['NAME']}"
save_file(model_tensors(run.model), f"{name}.safetensors")
Path(f"{name}.seconds").write_text(repr(run.seconds))
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))


def start(config, tmp_path: Path, *, mode: str = "fit", **environment: str) -> subprocess.Popen:
    """Train `config` in another process; it leaves weights and seconds in `run.json.<NAME>.*`."""
    file = tmp_path / "run.json"
    file.write_text(to_json(config))
    arguments = [sys.executable, "-c", SCRIPT, mode, str(file), str(tmp_path / "steps")]
    return subprocess.Popen(arguments, env=os.environ | {"NAME": "a"} | environment, cwd=REPOSITORY)


def test_a_killed_run_loses_at_most_the_steps_since_its_last_checkpoint(tmp_path):
    config = small_run(steps=2_000, checkpoint_every=3, warmup_share=0.0, schedule="constant")
    process = start(config, tmp_path)
    deadline = time.time() + 120
    while len(checkpoint_paths(tmp_path / "steps")) < 2 and process.poll() is None:
        assert time.time() < deadline
        time.sleep(0.01)
    time.sleep(0.05)  # into the middle of whatever it does next
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    reached = int(checkpoint_paths(tmp_path / "steps")[-1].name.removeprefix("step_"))
    assert reached >= 6

    # the rest is cut short: a constant rate does not depend on the number of steps
    target = small_run(steps=reached + 4, checkpoint_every=3, warmup_share=0.0, schedule="constant")
    for path in checkpoint_paths(tmp_path / "steps"):
        state = json.loads((path / "state.json").read_text())
        state["config"] = to_json(target)
        (path / "state.json").write_text(json.dumps(state))
    resumed = fit(target, progress=False, checkpoint_dir=tmp_path / "steps")
    whole = fit(target, progress=False)
    assert_equal_weights(resumed.model, whole.model)
    assert resumed.history["loss_nats"].tolist() == whole.history["loss_nats"].tolist()


def test_two_processes_that_ask_at_once_train_once(tmp_path):
    config = small_run(steps=150)
    processes = [start(config, tmp_path, mode="load", NAME=name) for name in "ab"]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    # two trainings would not take equally long to the last bit
    seconds = {float((tmp_path / f"run.json.{name}.seconds").read_text()) for name in "ab"}
    assert seconds == {load_or_fit(config, progress=False).seconds}
    assert not list(paths.checkpoints_dir().glob(".*"))
    assert not list(paths.checkpoints_dir().glob("*.steps"))


@pytest.mark.parametrize("sparse_grad", [True, False])
def test_two_processes_train_the_model_of_one(tmp_path, sparse_grad):
    config = small_run(engram={"sparse_grad": sparse_grad}, micro_batches=2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        start(
            config,
            tmp_path,
            NAME=rank,
            RANK=rank,
            LOCAL_RANK=rank,
            ACCELERATE_USE_CPU="true",
            **common,
        )
        for rank in "01"
    ]
    assert [process.wait(timeout=240) for process in ranks] == [0, 0]
    first, second = (load_file(tmp_path / f"run.json.{rank}.safetensors") for rank in (0, 1))
    alone = dict(fit(config, progress=False).model.state_dict())
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
        # sums in another order, through 8 steps of an optimiser that divides by small numbers
        torch.testing.assert_close(tensor, alone[name], rtol=1e-3, atol=2e-4, msg=name)
