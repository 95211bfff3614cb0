"""Muon for matrices and stacks of matrices."""

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

MUON_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
MUON_STEPS = 5


class Muon(Optimizer):
    """Momentum whose update is made orthogonal, for matrices and stacks of matrices (experts).

    `torch.optim.Muon` takes single matrices only and multiplies in bf16 throughout; this one treats
    the leading axes as a stack and stays in fp32 on a CPU, where bf16 products are slow. The update
    is scaled to the size of Adam's (0.2 root mean square), so that learning rate and decay can be
    shared.

    Source: K. Jordan, "Muon" (the iteration); arXiv:2502.16982 (the scale).
    """

    def __init__(
        self,
        params: list[nn.Parameter],
        *,
        lr: float,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
    ):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonal(parameter.grad.lerp(momentum, group["momentum"]))
                scale = 0.2 * math.sqrt(max(parameter.shape[-2:]))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * scale)


def orthogonal(matrices: Tensor, eps: float = 1e-7) -> Tensor:
    """Each matrix of a stack with its singular values moved close to 1 (0.7 to 1.2)."""
    a, b, c = MUON_COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x.to(torch.bfloat16 if x.is_cuda else torch.float32)
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=eps)
    for _ in range(MUON_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)
