"""D1: the phrase book, the spans between its phrases, and their proportion."""

import dataclasses

import numpy as np
import pytest

from engram_lab.tokens.synthetic import (
    PhrasebookConfig,
    entropy_floor,
    phrase_book,
    phrasebook,
    token_strings,
)

D1 = PhrasebookConfig()


def test_no_phrase_opens_another():
    book = phrase_book(dataclasses.replace(D1, phrases=150, words=18))  # crowded on purpose
    phrases = {
        tuple(ids[:length]) for ids, length in zip(book.phrases.tolist(), book.lengths, strict=True)
    }
    assert len(phrases) == 150
    assert not any(phrase[:end] in phrases for phrase in phrases for end in range(2, len(phrase)))


def test_lengths_cover_the_range_and_do_not_hang_on_the_rank():
    book = phrase_book(D1)
    assert set(book.lengths.tolist()) == {2, 3, 4, 5}
    halves = book.lengths.reshape(2, -1).mean(axis=1)
    assert abs(halves[0] - halves[1]) < 0.15  # 4 standard errors of 0.035


def test_floor_of_phrases_alone_agrees_with_the_formula_of_the_catalogue():
    config = dataclasses.replace(D1, static_share=1.0, document_length=4096)
    book, floor = phrase_book(config), entropy_floor(config)
    entropy = -(book.probability * np.log(book.probability)).sum()
    mean = (floor["share"] * floor["floor_nats"]).sum()
    assert mean == pytest.approx(entropy / (book.lengths @ book.probability), rel=2e-3)


@pytest.mark.parametrize("static_share", [0.2, 0.5, 0.8])
def test_each_kind_of_span_takes_its_share_of_tokens(static_share):
    config = dataclasses.replace(D1, static_share=static_share, sum_weight=2.0)
    table = phrasebook(config, 1_000_000, 0).ids.reshape(-1, config.document_length)
    body = table[:, config.opening_length : -1]
    counts = dict(zip(token_strings(config), np.bincount(body.reshape(-1)), strict=True))
    sums = sum(counts[digit] for digit in "0123456789+=")
    brackets = sum(counts[mark] for mark in "();")
    copies = counts["@"] * (2 + config.copy_length)
    wanted = config.token_shares
    assert sums / body.size == pytest.approx(wanted["sum"], abs=0.01)  # luck and the cut last span
    assert brackets / body.size == pytest.approx(wanted["bracket"], abs=0.01)
    assert copies / body.size == pytest.approx(wanted["copy"], abs=0.01)


def test_documents_without_copies_have_no_opening():
    config = dataclasses.replace(D1, copy_weight=0.0)
    documents = phrasebook(config, 50_000, 0)
    assert config.opening_length == 0
    assert not np.isin(documents.ids, config.token_ranges["slot"]).any()


def test_newest_three_tokens_leave_a_sum_open():
    config = dataclasses.replace(D1, static_share=0.0, bracket_weight=0.0, copy_weight=0.0)
    ids = phrasebook(config, 300_000, 0).ids
    equals = np.flatnonzero(ids[:-1] == config.token_ranges["="].start)
    equals = equals[ids[equals + 1] >= 4]
    context = ids[equals - 2] * 100 + ids[equals - 1]
    answers = {}
    for key, answer in zip(context.tolist(), ids[equals + 1].tolist(), strict=True):
        answers.setdefault(key, set()).add(answer)
    assert all(len(found) == 10 for found in answers.values())


@pytest.mark.parametrize(
    "change, message",
    [
        ({"static_share": -0.1}, "static_share must lie in 0..1, got -0.1"),
        ({"sum_weight": -1.0}, "must be 0 or more"),
        ({"sum_weight": 0.0, "bracket_weight": 0.0, "copy_weight": 0.0}, "not all 0"),
        ({"sum_digits": 0}, "sum_digits must be at least 1, got 0"),
        ({"modulus": 1}, "modulus must be at least 2, got 1"),
        ({"phrase_lengths": (1, 3)}, "phrase_lengths must rise from 2"),
        ({"phrases": 300, "words": 20}, "phrases must be at most half .* = 400"),
        ({"seed": -1}, "zipf and seed must be 0 or more"),
        ({"document_length": 13}, "document_length must be at least 14"),
    ],
)
def test_impossible_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(D1, **change)
