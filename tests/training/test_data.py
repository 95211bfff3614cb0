"""Documents of a run: which seed decides what, and which model fits."""

import dataclasses

import numpy as np
import pytest

from engram_lab import paths
from engram_lab.training.config import DataConfig
from engram_lab.training.data import corpus_data, load_data, vocab_size
from tests.training.runs import DATA, small_run

needs_bundle = pytest.mark.skipif(
    not (paths.PACKAGE.parent / "data" / "corpora").is_dir(), reason="the text bundle is not here"
)


@pytest.mark.parametrize("corpus", ["d1", "d8"])
def test_generated_data_follow_the_data_seed_alone(corpus):
    data = dataclasses.replace(DATA, corpus=corpus)
    first, again = load_data(small_run(data=data)), load_data(small_run(data=data, seed=5))
    other = corpus_data(dataclasses.replace(data, seed=1))
    assert np.array_equal(first.train.ids, again.train.ids)
    assert not np.array_equal(first.train.ids[:500], other.train.ids[:500])


def test_training_and_validation_share_no_document():
    data = corpus_data(DATA)
    train = {document.tobytes() for document in data.train}
    assert not train & {document.tobytes() for document in data.validation}
    assert data.validation.token_count >= DATA.eval_tokens


def test_more_training_tokens_leave_the_validation_documents_alone():
    longer = corpus_data(dataclasses.replace(DATA, train_tokens=20_000))
    assert np.array_equal(longer.validation.ids, corpus_data(DATA).validation.ids)
    assert np.array_equal(longer.train.ids[:8_000], corpus_data(DATA).train.ids[:8_000])


def test_generated_ids_stand_for_themselves():
    data = corpus_data(DATA)
    assert data.tokenizer is None
    assert data.compression.canonical_vocab_size == data.compression.vocab_size == vocab_size(DATA)


def test_a_model_of_another_vocabulary_is_refused_with_both_numbers():
    run = small_run()
    run = dataclasses.replace(run, model=run.model.replace(vocab_size=500))
    with pytest.raises(ValueError, match=rf"must be {vocab_size(DATA)}.*got 500"):
        load_data(run)


@needs_bundle
@pytest.mark.slow
def test_text_is_cut_to_the_tokens_asked_for_and_carries_its_token_map():
    data = corpus_data(DataConfig(corpus="text", train_tokens=30_000, eval_tokens=5_000))
    assert 30_000 <= data.train.token_count < 30_000 + 1024
    assert 5_000 <= data.validation.token_count < 5_000 + 1024
    assert data.compression.vocab_size == data.tokenizer.vocab_size == data.train.vocab_size
    assert data.compression.canonical_vocab_size < data.compression.vocab_size


@needs_bundle
@pytest.mark.slow
def test_more_validation_text_than_there_is_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"at most \d+, .*got 1000000000"):
        corpus_data(DataConfig(corpus="text", eval_tokens=10**9))
