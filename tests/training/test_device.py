"""The device of a run: the CPU unless there is CUDA, never by surprise."""

import pytest
import torch

from engram_lab.training.device import accelerator_for, data_parallel


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens without CUDA")
def test_a_device_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match=r"'cuda' is not available here; there is cpu"):
        accelerator_for("cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens without CUDA")
def test_auto_takes_the_cpu_in_fp32():
    accelerator = accelerator_for("auto")
    assert accelerator.device.type == "cpu"
    assert accelerator.mixed_precision == "no"


def test_one_process_trains_the_model_itself():
    accelerator, model = accelerator_for("cpu"), torch.nn.Linear(2, 2)
    assert data_parallel(model, [], accelerator) is model
