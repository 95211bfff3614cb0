"""Look at a model without leaving a trace: evaluation mode, no gradients, modes given back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module is in the mode it was in.

    Also after an exception. Parameters, their gradients and hooks are not touched.
    """
    modes = [(module, module.training) for module in model.modules()]
    if any(training for _, training in modes):  # setting a mode costs more than looking at it
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            if module.training != training:
                module.training = training
