"""Lazy Adam: the optimiser of memory tables, which costs what the rows of a step cost."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.adam import adam

from engram_lab.training.gradients import touched_rows

# Rows are updated in parts small enough (bytes per operand) that all operands stay in a core's
# cache.
CHUNK_BYTES = 2**18


class LazyAdam(Optimizer):
    """Adam that updates and ages only the rows of a table that have a gradient in this step.

    Rows that were not read keep their weight and moments bit for bit, so a step costs what its rows
    cost, however large the table. Takes sparse and dense gradients alike. Moments are fp32; bf16
    rows are rounded to nearest when written. The bias correction counts steps of the table, not of
    the row, as `torch.optim.SparseAdam` does.
    """

    def __init__(
        self,
        params: list[nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the rows that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.int64)
                    for moment in ("exp_avg", "exp_avg_sq"):
                        state[moment] = torch.zeros_like(parameter, dtype=torch.float32)
                state["step"] += 1
                self._update(parameter, group, state)

    @staticmethod
    def _update(parameter: nn.Parameter, group: dict, state: dict[str, Tensor]) -> None:
        rows, grad = touched_rows(parameter.grad)
        if not len(rows):
            return
        beta1, beta2 = group["betas"]
        # what the fused kernel takes as the count before this step, and counts up itself
        before = torch.full((), float(state["step"]) - 1, device=parameter.device)
        chunk = len(rows) if grad.is_cuda else max(1, CHUNK_BYTES // (4 * parameter.shape[1]))
        for here, part in zip(rows.split(chunk), grad.float().split(chunk), strict=True):
            weight = parameter.index_select(0, here).float()
            first = state["exp_avg"].index_select(0, here)
            second = state["exp_avg_sq"].index_select(0, here)
            adam(
                [weight],
                [part],
                [first],
                [second],
                [],
                [before.clone()],
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                eps=group["eps"],
                weight_decay=0.0,
                amsgrad=False,
                maximize=False,
                fused=True,
            )
            parameter.index_copy_(0, here, weight.to(parameter.dtype))
            state["exp_avg"].index_copy_(0, here, first)
            state["exp_avg_sq"].index_copy_(0, here, second)
