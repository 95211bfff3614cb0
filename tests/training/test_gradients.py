"""Gradients as one vector: a table counts the same whether its gradient is sparse or dense."""

import pytest
import torch
from torch import nn

from engram_lab.training.gradients import clip_gradients, sum_duplicates, touched_rows

READ = torch.tensor([3, 1, 3, 3, 0, 1])


def table_with_gradient(*, sparse: bool, rows: torch.Tensor = READ) -> nn.Parameter:
    """A table of 6 rows, read at `rows` (some twice), with the gradient of a loss."""
    table = nn.Parameter(torch.zeros(6, 2))
    slope = torch.arange(1.0, 2 * len(rows) + 1).view(-1, 2)
    (nn.functional.embedding(rows, table, sparse=sparse) * slope).sum().backward()
    return table


def test_a_row_read_often_has_the_sum_of_its_gradients():
    rows = torch.full((100,), 2)
    sparse = table_with_gradient(sparse=True, rows=rows)
    summed = sum_duplicates(sparse.grad)
    assert summed.indices().tolist() == [[2]]
    torch.testing.assert_close(summed.to_dense(), table_with_gradient(sparse=False, rows=rows).grad)


def test_the_norm_is_the_root_of_all_squares_with_duplicates_summed():
    weight = nn.Parameter(torch.zeros(3))
    weight.grad = torch.tensor([1.0, -2.0, 2.0])
    table = table_with_gradient(sparse=True)
    by_hand = (table_with_gradient(sparse=False).grad.square().sum() + 9).sqrt()
    torch.testing.assert_close(clip_gradients([table, weight], None), by_hand)


@pytest.mark.parametrize("max_norm", [0.5, 1e4])
def test_clipping_scales_tables_like_everything_else(max_norm):
    results = []
    for sparse in (True, False):
        weight = nn.Parameter(torch.zeros(3))
        weight.grad = torch.tensor([1.0, -2.0, 2.0])
        table = table_with_gradient(sparse=sparse)
        norm = clip_gradients([table, weight], max_norm)
        dense = table.grad.to_dense() if sparse else table.grad
        results.append((norm, dense, weight.grad))
        length = torch.cat([dense.flatten(), weight.grad]).norm()
        torch.testing.assert_close(length, torch.minimum(norm, torch.tensor(max_norm)))
    torch.testing.assert_close(results[0], results[1])


def test_rows_without_gradient_are_not_touched_whichever_the_layout():
    for sparse in (True, False):
        table = nn.Parameter(torch.zeros(6, 2))
        read = nn.functional.embedding(torch.tensor([4, 2, 1]), table, sparse=sparse)
        (read * torch.tensor([[1.0], [0.0], [2.0]])).sum().backward()
        rows, grad = touched_rows(table.grad)
        assert rows.tolist() == [1, 4]
        assert grad.tolist() == [[2, 2], [1, 1]]


def test_clipping_without_gradients_says_what_to_do():
    with pytest.raises(ValueError, match=r"backward\(\)"):
        clip_gradients([nn.Parameter(torch.zeros(2))], 1.0)
