"""Gradients as one vector: sparse tables summed by row, averaged over processes, measured, clipped.

The gradient of a table that was read at a few thousand rows is a sparse matrix in which a row
stands once for every time it was read. Whoever measures it that way counts a row read twice as two
short rows. Everything here first sums the duplicates, so that a table gives the same norm, the same
clipping and the same update whether its gradient is sparse or dense.
"""

from collections.abc import Iterable

import torch
from accelerate import Accelerator
from torch import Tensor, nn


def sum_duplicates(grad: Tensor) -> Tensor:
    """A sparse gradient with each row once, in order, and without rows that are zero throughout.

    Rows without gradient are left out because a dense gradient cannot tell them from rows that were
    never read.
    """
    if grad.is_coalesced():
        return grad
    grad = grad.coalesce()
    alive = _has_gradient(grad.values())
    if bool(alive.all()):
        return grad
    return torch.sparse_coo_tensor(
        grad.indices()[:, alive],
        grad.values()[alive],
        grad.shape,
        is_coalesced=True,
        check_invariants=False,
    )


def touched_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers and gradients of the rows that have one, from a sparse or dense gradient."""
    if grad.is_sparse:
        grad = sum_duplicates(grad)
        return grad.indices()[0], grad.values()
    rows = _has_gradient(grad).nonzero()[:, 0]
    return rows, grad.index_select(0, rows)


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
    """Scale all gradients together so that their common norm is at most `max_norm`.

    Args:
        parameters: those whose gradients form the vector; the sparse ones are replaced by their
            summed form.
        max_norm: longest gradient; None to measure only.

    Returns:
        The norm before clipping: root of the sum of all squares, tables included.
    """
    values = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = sum_duplicates(parameter.grad)
            values.append(parameter.grad.values())
        else:
            values.append(parameter.grad)
    if not values:
        raise ValueError("clip_gradients needs gradients, found none. Call backward() first.")
    norm = nn.utils.get_total_norm(values)
    if max_norm is not None:
        # a factor of exactly 1 changes nothing, and not asking saves waiting for the device
        torch._foreach_mul_(values, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def average_over_processes(parameters: Iterable[nn.Parameter], accelerator: Accelerator) -> None:
    """Mean over processes of gradients that the data-parallel wrapper leaves alone (the tables).

    Sparse gradients travel as rows and numbers, padded to the longest, since not every backend
    reduces sparse tensors.
    """
    for parameter in parameters:
        grad = parameter.grad
        if grad is None or accelerator.num_processes == 1:
            continue
        if not grad.is_sparse:
            parameter.grad = accelerator.reduce(grad, reduction="mean")
            continue
        grad = sum_duplicates(grad)
        rows = accelerator.gather(accelerator.pad_across_processes(grad.indices()[0]))
        values = accelerator.gather(accelerator.pad_across_processes(grad.values()))
        parameter.grad = torch.sparse_coo_tensor(
            rows[None], values / accelerator.num_processes, grad.shape, check_invariants=False
        )


def _has_gradient(grad: Tensor) -> Tensor:
    """Rows whose length is not 0; NaN is not 0. A norm is eight times faster than any()."""
    return torch.linalg.vector_norm(grad.detach(), dim=1) != 0
