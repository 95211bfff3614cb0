"""The device and the processes of a run, by way of `accelerate`."""

import os
import warnings

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedDataParallelKwargs
from torch import nn

from engram_lab.training.config import Device


def accelerator_for(device: Device) -> Accelerator:
    """An accelerator on the device asked for: fp32 on a CPU, bf16 autocast on CUDA.

    Several processes need no other call: start the script with `accelerate launch` or `torchrun`.

    Raises:
        ValueError: if a device is asked for that is not there.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there[device]:
        raise ValueError(
            f"TrainConfig.device={device!r} is not available here; there is "
            f"{', '.join(name for name, found in there.items() if found)}. Use device='auto'."
        )
    if device == "mps":
        warnings.warn(
            "MPS may give other numbers than CPU and CUDA; compare results within one device only.",
            stacklevel=3,
        )
    precision = "bf16" if device == "cuda" else "no"
    _forget_other_settings(device, precision)
    # a rank's expert load must not be overwritten by rank 0's between micro-batches
    wrapper = DistributedDataParallelKwargs(broadcast_buffers=False)
    return Accelerator(cpu=device == "cpu", mixed_precision=precision, kwargs_handlers=[wrapper])


def data_parallel(model: nn.Module, tables: list[str], accelerator: Accelerator) -> nn.Module:
    """The model on its device and, for several processes, wrapped so that gradients are averaged.

    Args:
        tables: names of parameters whose gradient may be sparse; the wrapper takes none, so these
            are left to `gradients.average_over_processes`.
    """
    model.to(accelerator.device)
    if accelerator.num_processes == 1:
        return model
    model._ddp_params_and_buffers_to_ignore = tables
    return accelerator.prepare_model(model)


def process_count() -> int:
    """Processes that train together, known before an accelerator exists."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _forget_other_settings(device: str, precision: str) -> None:
    """Let a second run in one process use another device; accelerate keeps one global state."""
    if process_count() > 1 or not AcceleratorState._shared_state:
        return
    state = AcceleratorState()
    if (state.device.type, state.mixed_precision) != (device, precision):
        AcceleratorState._reset_state()
        PartialState._reset_state()
