"""Several residual branches: mixtures are what they claim, and those of another implementation."""

import pytest
import torch
from torch import nn
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4

from engram_lab.model.hyper import HyperConnection, HyperHead, doubly_stochastic
from tests.model.foreign import CONFIGS


def ruffled(module: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return module


def some_branches(count: int = 4, width: int = 32) -> torch.Tensor:
    return torch.randn(2, 5, count, width, generator=torch.Generator().manual_seed(4))


def test_rows_and_columns_of_a_mixture_sum_to_one():
    scores = 3 * torch.randn(7, 4, 4, generator=torch.Generator().manual_seed(0))
    matrix = doubly_stochastic(scores, 20)
    assert (matrix > 0).all()
    for axis, error in ((-2, 1e-5), (-1, 2e-2)):  # columns come last, rows are still closing in
        torch.testing.assert_close(matrix.sum(axis), torch.ones(7, 4), atol=error, rtol=0)


def test_reading_writing_and_mixing_are_those_of_transformers():
    config = CONFIGS["deepseek_v4"]()
    theirs = ruffled(v4.DeepseekV4HyperConnection(config))
    ours = HyperConnection(32, config.hc_mult, sinkhorn_iters=config.hc_sinkhorn_iters)
    ours.load_state_dict(theirs.state_dict())
    branches = some_branches()
    write, mix, read = theirs(branches)
    seen = []
    after = ours(branches, lambda hidden: seen.append(hidden) or torch.tanh(hidden))
    torch.testing.assert_close(seen[0], read)
    update = torch.tanh(read)
    expected = write[..., None] * update[..., None, :] + mix.transpose(-1, -2) @ branches
    torch.testing.assert_close(after, expected)


def test_the_head_is_that_of_transformers():
    theirs = ruffled(v4.DeepseekV4HyperHead(CONFIGS["deepseek_v4"]()))
    ours = HyperHead(32, 4)
    ours.load_state_dict({n.removeprefix("hc_"): v for n, v in theirs.state_dict().items()})
    branches = some_branches()
    torch.testing.assert_close(ours(branches), theirs(branches))


def test_the_sum_of_the_branches_changes_by_what_is_written_alone():
    connection = ruffled(HyperConnection(32, 4, sinkhorn_iters=40))
    branches = some_branches()
    written = connection.weights(branches)[1].sum(-1, keepdim=True)
    after = connection(branches, torch.tanh)
    read = connection.weights(branches)[0]
    update = torch.tanh((read[..., None] * branches).sum(2))
    torch.testing.assert_close(
        after.sum(2), branches.sum(2) + written * update, atol=1e-2, rtol=1e-3
    )


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fresh_branches_do_not_stay_alike_and_all_parts_learn(count: int):
    torch.manual_seed(0)
    connection, head = HyperConnection(8, count), HyperHead(8, count)
    branches = torch.randn(1, 3, 1, 8).expand(-1, -1, count, -1)
    after = connection(connection(branches, torch.tanh), torch.sin)
    assert count == 1 or not torch.equal(after[:, :, 0], after[:, :, 1])
    head(after).square().sum().backward()
    parameters = [*connection.parameters(), *head.parameters()]
    assert all(parameter.grad is not None for parameter in parameters)
    assert all(parameter.grad.any() for parameter in parameters)


def test_branches_in_half_precision_stay_in_half_precision():
    connection = HyperConnection(8, 2).to(torch.bfloat16)
    branches = torch.randn(1, 3, 2, 8, dtype=torch.bfloat16)
    assert connection(branches, torch.tanh).dtype == torch.bfloat16
    assert connection.weights(branches)[2].dtype == torch.float32
