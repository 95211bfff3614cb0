"""Lazy Adam: the numbers of Adam where a row is read, no change where it is not."""

import pytest
import torch
from torch import nn

from engram_lab.training import lazy_adam
from engram_lab.training.lazy_adam import LazyAdam


def train(
    table: nn.Parameter, optimizer: torch.optim.Optimizer, *, steps: int, sparse: bool = True
):
    """Pull a few rows of `table` per step, some of them twice, towards changing values."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        rows = torch.randint(0, len(table) // 2, (12,), generator=generator)
        goal = torch.randn(12, table.shape[1], generator=generator)
        optimizer.zero_grad()
        read = nn.functional.embedding(rows, table, sparse=sparse)
        (read.float() - goal).square().sum().backward()
        optimizer.step()


def new_table(rows: int = 20, *, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    values = torch.randn(rows, 4, generator=torch.Generator().manual_seed(0))
    return nn.Parameter(values.to(dtype))


@pytest.mark.parametrize("chunk_rows", [1, 3, 100])
def test_it_agrees_with_sparse_adam(monkeypatch, chunk_rows):
    monkeypatch.setattr(lazy_adam, "CHUNK_BYTES", 16 * chunk_rows)
    ours, theirs = new_table(), new_table()
    train(ours, LazyAdam([ours], lr=0.05, betas=(0.9, 0.95)), steps=15)
    train(theirs, torch.optim.SparseAdam([theirs], lr=0.05, betas=(0.9, 0.95)), steps=15)
    # the reference puts eps outside the bias correction; 1e-8 against gradients of order 1
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_rows_never_read_keep_every_bit():
    table = new_table()
    before = table.detach().clone()
    train(table, LazyAdam([table], lr=0.05), steps=10)
    assert torch.equal(table[10:], before[10:])
    assert not torch.equal(table[:10], before[:10])


def test_sparse_and_dense_gradients_give_the_same_rows():
    tables = []
    for sparse in (True, False):
        table = new_table()
        train(table, LazyAdam([table], lr=0.05), steps=10, sparse=sparse)
        tables.append(table)
    torch.testing.assert_close(*tables)


def test_bf16_rows_follow_fp32_rows_within_their_rounding():
    exact, rounded = new_table(), new_table(dtype=torch.bfloat16)
    optimizer = LazyAdam([rounded], lr=0.05)
    train(exact, LazyAdam([exact], lr=0.05), steps=5)
    train(rounded, optimizer, steps=5)
    assert rounded.dtype == torch.bfloat16
    assert optimizer.state[rounded]["exp_avg_sq"].dtype == torch.float32
    # 5 roundings of values up to 3, each off by at most 2^-8 of the value
    torch.testing.assert_close(rounded.float(), exact, rtol=0, atol=5 * 3 * 2**-8)


def test_a_step_without_any_touched_row_changes_nothing():
    table = new_table()
    before = table.detach().clone()
    table.grad = torch.zeros_like(table)
    LazyAdam([table], lr=0.05).step()
    assert torch.equal(table, before)
