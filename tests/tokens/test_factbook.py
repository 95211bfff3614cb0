"""D3: names, facts and passages, against a reader that was written apart."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from engram_lab.configs import from_json, to_json
from engram_lab.tokens.factbook_items import QUESTION_KINDS
from engram_lab.tokens.synthetic import (
    CLASS_NAMES,
    FactbookConfig,
    entropy_floor,
    fact_book,
    factbook,
    factbook_questions,
    token_strings,
)
from tests.tokens.fact_readers import read_factbook
from tests.tokens.floors import assert_floor_is_paid

D3 = FactbookConfig()
SMALL = FactbookConfig(
    entities=30, words=12, relations=3, values=7, zipf=1.1, document_length=64, asked_share=0.4
)
MIXTURES = {
    "d3": D3,
    "small": SMALL,
    "recall only": dataclasses.replace(SMALL, static_share=1.0),
    "statements only": dataclasses.replace(SMALL, static_share=1.0, question_share=0.0),
    "reading only": dataclasses.replace(SMALL, static_share=0.0, relations=6, passage_facts=5),
    "short documents": dataclasses.replace(SMALL, document_length=29),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_floor_is_what_a_reader_pays_who_finds_every_rule_kept(name):
    config = MIXTURES[name]
    documents = factbook(config, 40_000, seed=5)
    assert_floor_is_paid(config, documents, list(read_factbook(config, documents)))


def test_names_are_told_apart_by_their_ends():
    book = fact_book(SMALL)
    names = [tuple(row[:end]) for row, end in zip(book.names.tolist(), book.lengths, strict=True)]
    assert {len(name) for name in names} == {2, 3}
    assert len({name[-2:] for name in names}) == len(names)
    assert not {name[:2] for name in names if len(name) == 3} & set(names)


def test_values_are_balanced_so_that_guessing_gains_nothing():
    for column in fact_book(D3).values.T:
        assert set(Counter(column.tolist()).values()) <= {3, 4}  # 200 entities, 64 values


def test_language_hangs_on_the_seed_and_not_on_the_mixture():
    mixed = fact_book(dataclasses.replace(SMALL, static_share=0.1, document_length=50))
    assert np.array_equal(fact_book(SMALL).values, mixed.values)
    other = fact_book(dataclasses.replace(SMALL, seed=1))
    assert not np.array_equal(fact_book(SMALL).values, other.values)


def test_equal_seeds_give_equal_documents_and_others_share_none():
    first, again, other = (factbook(SMALL, 5_000, seed) for seed in (3, 3, 4))
    assert np.array_equal(first.ids, again.ids)
    assert not {document.tobytes() for document in first} & {d.tobytes() for d in other}


def test_held_out_questions_ask_what_documents_only_state():
    asked = {tuple(ids[1:-1].tolist()) for ids in factbook_questions(SMALL, "closed_book", 1_000)}
    before = {tuple(ids[1:-1].tolist()) for ids in factbook_questions(SMALL, "asked_before", 1_000)}
    assert len(asked) == 60 and len(before) == 30  # 30 entities, 1 of 3 relations asked
    assert not asked & before
    mark, relations = SMALL.token_ranges["?"].start, SMALL.token_ranges["r"]
    in_documents = set()
    for document in factbook(dataclasses.replace(SMALL, static_share=1.0), 50_000, 0):
        for question in " ".join(map(str, document)).split(f" {mark} ")[1:]:
            ids = [int(token) for token in question.split()]
            ends = [place for place, token in enumerate(ids) if token in relations]
            in_documents |= {tuple(ids[: end + 1]) for end in ends[:1]}
    assert not in_documents & asked
    assert in_documents & before


@pytest.mark.parametrize("kind", QUESTION_KINDS)
def test_a_question_has_one_answer_and_that_is_last(kind):
    questions = factbook_questions(SMALL, kind, 20, seed=1)
    names = token_strings(SMALL)
    assert questions.class_names == ("context", "answer")
    ends = questions.offsets[1:] - 1
    assert np.array_equal(np.flatnonzero(questions.classes), ends)
    assert all(names[ids[-1]].startswith("v") for ids in questions)


def test_passages_state_the_answer_and_the_book_decides_who_knows_it():
    names, book = token_strings(SMALL), fact_book(SMALL)
    known = {
        (*(names[i] for i in book.names[e, : book.lengths[e]]), f"r{r}"): names[book.values[e, r]]
        for e in range(SMALL.entities)
        for r in range(SMALL.relations)
    }
    for kind in ("passage", "passage_known"):
        for ids in factbook_questions(SMALL, kind, 40):
            text = " ".join(names[i] for i in ids)
            told, question = text.removeprefix("[ ").split(" ? ")
            assert question in told
            *fact, answer = question.split()
            assert (known.get(tuple(fact)) == answer) == (kind == "passage_known")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"static_share": 1.5}, "static_share"),
        ({"entities": 0}, "entities must be at least 1"),
        ({"entities": 37}, r"quarter of the pairs of words \(144\).*got 37"),
        ({"passage_facts": 4}, r"at most 3, .*relations \(3\).*got 4"),
        ({"document_length": 28}, "at least 29"),
        ({"zipf": -1.0}, "zipf and seed"),
    ],
)
def test_impossible_configs_are_refused_with_the_rule(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_impossible_questions_are_refused():
    with pytest.raises(Exception, match="closed_book"):  # by the type check or by us
        factbook_questions(SMALL, "open_book", 3)
    with pytest.raises(ValueError, match="items must be at least 1"):
        factbook_questions(SMALL, "passage", 0)
    everything = dataclasses.replace(SMALL, asked_share=1.0)
    with pytest.raises(ValueError, match="finds no fact: documents ask about 3 of 3"):
        factbook_questions(everything, "closed_book", 3)


def test_config_survives_json_and_ids_have_names():
    assert from_json(FactbookConfig, to_json(SMALL)) == SMALL
    names = token_strings(D3)
    assert len(set(names)) == len(names) == D3.vocab_size
    assert set(entropy_floor(D3)["token_class"]) == set(CLASS_NAMES)
