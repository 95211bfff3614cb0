"""Muon: orthogonal updates, the same for a stack as for its matrices one by one."""

import torch
from torch import nn

from engram_lab.training.muon import Muon, orthogonal


def matrices(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_singular_values_end_close_to_one():
    for shape in ((8, 24), (24, 8), (3, 16, 16)):
        values = torch.linalg.svdvals(orthogonal(matrices(*shape)))
        # the polynomial trades exactness for speed: it aims at 0.7 to 1.2; random square matrices
        # may have a value near 0 that five steps do not lift
        assert values.max() < 1.3
        assert values.median() > 0.6


def test_a_stack_is_treated_matrix_by_matrix():
    stack = matrices(3, 6, 10)
    torch.testing.assert_close(orthogonal(stack), torch.stack([orthogonal(m) for m in stack]))


def test_it_agrees_with_torch_up_to_its_bf16_products():
    ours, theirs = nn.Parameter(matrices(12, 20)), nn.Parameter(matrices(12, 20))
    start = ours.detach().clone()
    options = {"lr": 0.1, "weight_decay": 0.1, "momentum": 0.95}
    mine = Muon([ours], **options)
    other = torch.optim.Muon([theirs], adjust_lr_fn="match_rms_adamw", **options)
    for step in range(3):
        ours.grad = theirs.grad = matrices(12, 20) + step * matrices(20, 12).T
        mine.step()
        other.step()
    moved = (theirs - start).norm()
    # bf16 has 8 bits; five steps of two products each lose a few percent
    assert (ours - theirs).norm() < 0.05 * moved
