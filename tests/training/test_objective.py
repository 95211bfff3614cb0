"""NextToken: parts of a batch add up to its mean loss, whoever computes which part."""

import pytest
import torch

from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression
from engram_lab.training.data import corpus_data
from engram_lab.training.objective import NextToken, Objective
from tests.training.runs import DATA, small_run


def next_token(**train) -> NextToken:
    """Rows of 48 of documents of 128, so that documents end inside some rows and not in others."""
    return NextToken(corpus_data(DATA).train, small_run(**{"seq_len": 48} | train).train, seed=0)


def uneven_step(objective: NextToken) -> int:
    """A step in which a document ends inside one row and not inside the first."""
    for step in range(20):
        document_ids = objective.dataset.batch(step).document_ids
        ends = (document_ids[:, 1:] != document_ids[:, :-1]).any(dim=1)
        if ends.any() and not ends[0]:
            return step
    raise AssertionError("no step with rows of different token counts")


def test_it_is_an_objective():
    assert isinstance(next_token(), Objective)


def test_tokens_that_open_a_document_are_not_predicted():
    objective = next_token()
    share = objective.share(uneven_step(objective))
    (batch,) = share.parts
    starts = batch.document_ids[:, 1:] != batch.document_ids[:, :-1]
    assert share.predicted == starts.numel() - starts.sum() < starts.numel()
    assert (share.tokens, share.rows) == (4 * 48, 4)


@pytest.mark.parametrize(("micro_batches", "processes"), [(1, 2), (2, 1), (2, 2)])
def test_parts_of_all_processes_are_the_rows_of_the_batch_once(micro_batches, processes):
    objective = next_token(micro_batches=micro_batches)
    shares = [objective.share(3, process, processes) for process in range(processes)]
    rows = torch.cat([part.input_ids for share in shares for part in share.parts])
    assert torch.equal(rows, objective.dataset.batch(3).input_ids)
    assert len({share.predicted for share in shares}) == 1


def test_the_losses_of_the_parts_add_up_to_the_mean_over_tokens():
    config = small_run().model
    model = EngramLM(config, VocabCompression.identity(config.vocab_size))
    objective = next_token(micro_batches=4)
    step = uneven_step(objective)
    share, batch = objective.share(step), objective.dataset.batch(step)
    mean = model(batch.input_ids, labels=batch.input_ids, document_ids=batch.document_ids).loss
    torch.testing.assert_close(sum(objective.loss(model, p, share)[1] for p in share.parts), mean)


def test_rows_that_cannot_be_dealt_out_evenly_are_refused_with_all_numbers():
    with pytest.raises(ValueError, match=r"\(2 x 3\); got 4"):
        next_token(micro_batches=2).share(0, 0, 3)
