"""Rows: offsets, gradients that reach only what was read, bfloat16 storage."""

from dataclasses import replace

import pytest
import torch

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.table import MemoryTable

CONFIG = EngramConfig(
    layer_ids=(1, 4), engram_vocab_size=(5, 7), n_head_per_ngram=2, n_embed_per_ngram=4
)  # layer 1: 5, 7 and 11, 13 rows


def test_tables_lie_one_behind_the_other():
    table = MemoryTable(CONFIG, 1)
    assert table.weight.shape == (5 + 7 + 11 + 13, 2)
    addresses = torch.tensor([[[0, 0, 0, 0], [4, 6, 10, 12]]])
    assert table.row_ids(addresses).tolist() == [[[0, 5, 12, 23], [4, 11, 22, 35]]]
    assert torch.equal(table(addresses)[0, 1, 3], table.weight[35])


def test_padding_rows_come_last():
    assert (
        MemoryTable(replace(CONFIG, make_ngram_vocab_size_divisible_by=8), 1).weight.shape[0] == 40
    )


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_reach_rows_that_were_read_and_add_up(sparse, dtype):
    table = MemoryTable(replace(CONFIG, sparse_grad=sparse, row_dtype=dtype), 1)
    addresses = torch.tensor([[[1, 2, 3, 4]] * 100 + [[0, 0, 0, 0]]])  # one n-gram a hundred times
    rows = table(addresses).float()
    rows.sum().backward()
    gradient = table.weight.grad
    assert gradient.is_sparse is sparse
    dense = gradient.to_dense().float() if sparse else gradient.float()
    expected = torch.zeros_like(dense)
    expected[[1, 7, 15, 27]] = 100
    expected[[0, 5, 12, 23]] = 1
    assert torch.equal(dense, expected)


def test_rows_keep_their_storage():
    assert MemoryTable(replace(CONFIG, row_dtype="bfloat16"), 1).weight.dtype == torch.bfloat16


def test_initial_rows_have_the_configured_scale():
    table = MemoryTable(replace(CONFIG, init_std=0.5, engram_vocab_size=(5_000, 5_000)), 1)
    assert table.weight.std().item() == pytest.approx(0.5, rel=0.02)  # 40,000 draws: 0.4 % spread


def test_other_offsets_in_a_checkpoint_are_refused():
    table = MemoryTable(CONFIG, 1)
    table.check_constants()
    table.offsets[2] += 1
    with pytest.raises(ValueError, match=r"offsets .* must be \[0, 5, 12, 23\]"):
        table.check_constants()
    table.reset_buffers()
    table.check_constants()
