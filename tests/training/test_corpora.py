"""Every generated corpus as data of a run: its rules, its vocabulary, its two samples."""

import dataclasses

import numpy as np
import pytest

from engram_lab import paths
from engram_lab.configs import fingerprint
from engram_lab.tokens.synthetic import entropy_floor
from engram_lab.tokens.tokenizer import RESERVED
from engram_lab.training.config import DataConfig
from engram_lab.training.data import corpus_data, language, needle_filler, vocab_size

SMALL = DataConfig(train_tokens=3_000, eval_tokens=600, topics=2)
needs_bundle = pytest.mark.skipif(
    not (paths.PACKAGE.parent / "data" / "corpora").is_dir(), reason="the text bundle is not here"
)


@pytest.mark.parametrize("corpus", ["d1", "d3", "d4", "d5", "d8"])
def test_a_generated_corpus_has_rules_two_samples_and_ids_that_stand_for_themselves(corpus):
    data = dataclasses.replace(SMALL, corpus=corpus, document_length=128, static_share=0.3)
    found, rules = corpus_data(data), language(data)
    assert found.train.vocab_size == vocab_size(data) == rules.vocab_size
    assert found.train.name == corpus and found.tokenizer is None
    assert {len(document) for document in found.train} == {128}
    train = {document.tobytes() for document in found.train}
    assert not train & {document.tobytes() for document in found.validation}
    assert np.array_equal(found.compression.table.numpy(), np.arange(rules.vocab_size))
    share = rules.plain_share if corpus == "d4" else rules.static_share
    assert share == 0.3 and entropy_floor(rules)["share"].sum() == pytest.approx(1)


def test_entities_and_topics_reach_the_rules():
    assert language(dataclasses.replace(SMALL, corpus="d3", entities=17)).entities == 17
    assert language(dataclasses.replace(SMALL, corpus="d5", topics=3)).topics == 3
    assert language(dataclasses.replace(SMALL, corpus="d8", pairs=99)).pairs == 99
    needles = language(dataclasses.replace(SMALL, corpus="d4", needle_keys=9, needle_values=5))
    assert (needles.keys, needles.values) == (9, 5)


def test_fields_of_other_corpora_leave_stored_names_alone():
    assert fingerprint(DataConfig()) == fingerprint(DataConfig(entities=200, filler="words"))
    assert fingerprint(DataConfig()) != fingerprint(DataConfig(entities=201))


def test_text_has_no_rules_and_unknown_corpora_are_refused():
    with pytest.raises(ValueError, match="only generated corpora have rules of their own"):
        language(DataConfig(corpus="text"))
    with pytest.raises(Exception, match="corpus|d99"):  # by the type check or by us
        DataConfig(corpus="d99")


@needs_bundle
@pytest.mark.slow
def test_needles_lie_in_running_text_under_the_token_map_of_the_text():
    data = dataclasses.replace(SMALL, corpus="d4", filler="text", static_share=0.0)
    found, rules = corpus_data(data), language(data)
    assert found.train.vocab_size == vocab_size(data) == rules.vocab_size
    table = found.compression.table.numpy()
    assert len(table) == rules.vocab_size and table.max() < rules.vocab_size - 1
    needles = np.arange(rules.token_ranges["!"].start, rules.vocab_size)
    assert len(set(table[needles]) - set(table[: needles[0]])) == len(needles)


def test_needles_lie_in_phrases_of_d1_and_nothing_else_of_it():
    data = dataclasses.replace(SMALL, corpus="d4", filler="phrases", static_share=0.0)
    found, rules = corpus_data(data), language(data)
    assert found.train.vocab_size == vocab_size(data) == rules.vocab_size
    phrases = language(dataclasses.replace(data, corpus="d1", filler="words", static_share=1.0))
    words = phrases.token_ranges["w"]
    filler = found.train.ids[found.train.ids < rules.token_ranges["!"].start]
    assert set(filler[filler >= len(RESERVED)]) <= set(words)
    longer = dataclasses.replace(data, document_length=2 * data.document_length)
    assert language(longer).token_ranges == rules.token_ranges
    assert needle_filler(data).validation.vocab_size == words.stop
    assert needle_filler(dataclasses.replace(data, filler="words")) is None
