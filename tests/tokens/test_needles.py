"""D4: what is hidden, what is asked, and what that costs, against a reader written apart."""

import dataclasses
from collections import Counter
from math import log

import numpy as np
import pytest

from engram_lab.configs import from_json, to_json
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.needles import NEEDLE_KINDS
from engram_lab.tokens.synthetic import (
    CLASS_NAMES,
    NeedlesConfig,
    entropy_floor,
    needle_questions,
    needles,
    needles_language,
    token_strings,
)
from tests.tokens.fact_readers import read_needles

D4 = NeedlesConfig()
SMALL = NeedlesConfig(keys=5, words=11, successors=3, values=6, document_length=48)
TINY = NeedlesConfig(
    keys=2,
    words=2,
    successors=2,
    values=2,
    pairs=2,
    chains=1,
    hops=2,
    zipf=0.5,
    plain_share=0.2,
    document_length=19,
)


@pytest.mark.parametrize(
    "config", [D4, SMALL, dataclasses.replace(SMALL, plain_share=0.3)], ids=["d4", "small", "plain"]
)
def test_documents_keep_every_rule_and_name_their_answers(config):
    documents = needles(config, 30_000, seed=5)
    read = list(read_needles(config, documents))
    kinds = Counter(kind for kind, _ in read)
    assert set(kinds) == {name for name, p in config.kind_probabilities.items() if p}
    for kind, count in kinds.items():
        expected = config.kind_probabilities[kind] * len(documents)
        assert count == pytest.approx(expected, abs=4.5 * expected**0.5)
    classes = [token for _, tokens in read for token in (*tokens, "filler")]
    assert [CLASS_NAMES[i] for i in documents.classes] == classes


@pytest.mark.parametrize("kind", NEEDLE_KINDS)
def test_floor_is_the_entropy_of_the_documents(kind):
    # two words of filler leave so few documents that their entropy can be counted
    config = dataclasses.replace(TINY, kinds=(kind,), plain_share=0.0)
    config = dataclasses.replace(config, document_length=sum(config.lengths(kind)) + 3)
    documents = needles(config, 8_000 * config.document_length, seed=0)
    counts = np.unique(
        documents.ids.reshape(-1, config.document_length), axis=0, return_counts=True
    )
    shares = counts[1] / counts[1].sum()
    entropy = -(shares * np.log(shares)).sum() + (len(shares) - 1) / (2 * len(documents))
    floor = entropy_floor(config, first_token=True)
    total = (floor["share"] * floor["floor_nats"]).sum() * config.document_length
    assert total == pytest.approx(entropy, abs=0.03)


def test_floor_without_the_first_token_leaves_out_what_that_token_says():
    documents = needles(TINY, 150_000, seed=0)
    first = np.bincount(documents.ids[documents.offsets[:-1]]) / len(documents)
    first_nats = -(first[first > 0] * np.log(first[first > 0])).sum()
    totals = []
    for first_token in (True, False):
        floor = entropy_floor(TINY, first_token=first_token)
        tokens = TINY.document_length - (not first_token)
        totals.append((floor["share"] * floor["floor_nats"]).sum() * tokens)
    assert totals[0] - totals[1] == pytest.approx(first_nats, abs=0.01)


def test_floor_knows_the_share_of_answers():
    documents = needles(SMALL, 100_000, seed=0)
    share = (documents.classes == CLASS_NAMES.index("computed")).mean()
    floor = entropy_floor(SMALL, first_token=True).set_index("token_class")
    assert floor.loc["computed", "share"] == pytest.approx(share, rel=0.05)
    assert floor.loc["computed", "floor_nats"] == 0


def test_plain_documents_cost_what_the_chain_of_words_costs():
    config = dataclasses.replace(SMALL, plain_share=1 - 1e-12)
    language = needles_language(config)
    rate = -(language.probability * np.log(language.probability)).sum()
    floor = entropy_floor(config).set_index("token_class").loc["filler", "floor_nats"]
    assert floor == pytest.approx(rate * 46 / 47, abs=1e-6)  # 46 words and eos are predicted
    whole = entropy_floor(config, first_token=True).set_index("token_class")
    assert whole.loc["filler", "floor_nats"] == pytest.approx((rate * 46 + log(11)) / 48, abs=1e-6)


@pytest.mark.parametrize("kind", NEEDLE_KINDS)
def test_questions_use_keys_that_no_document_has(kind):
    questions = needle_questions(SMALL, kind, 25, seed=3)
    read = list(read_needles(SMALL, questions, taught=False))
    assert {found for found, _ in read} == {kind}
    answers = [i == "computed" for _, tokens in read for i in tokens]
    assert [questions.class_names[i] == "answer" for i in questions.classes] == answers


def test_questions_may_use_the_keys_of_documents():
    questions = needle_questions(SMALL, "multikey", 25, seed=3, taught=True)
    assert len(list(read_needles(SMALL, questions, taught=True))) == 25


@pytest.mark.parametrize("length", [256, 512, 2048])
def test_questions_reach_over_long_contexts(length):
    config = dataclasses.replace(D4, document_length=length)
    questions = needle_questions(config, "multikey", 3)
    assert set(questions.lengths) == {length - 1}
    marks = np.flatnonzero(questions[0] == config.token_ranges["!"].start)
    assert len(marks) == 4


def test_running_text_may_be_the_filler():
    rng = np.random.default_rng(0)
    text = Documents.from_lists([rng.integers(4, 100, size=500)], vocab_size=100)
    config = dataclasses.replace(SMALL, words=96)
    for documents in (
        needles(config, 500, 0, filler=text),
        needle_questions(config, "multiquery", 5, filler=text),
    ):
        assert documents.vocab_size == config.vocab_size == 96 + 4 + 2 + 5 + 6
        body = documents[0][documents[0] < 100]
        words = " ".join(map(str, body[body >= 4]))
        assert words in " ".join(map(str, text.ids))
    with pytest.raises(ValueError, match="vocabulary of 100 .* got 101"):
        other = dataclasses.replace(text, vocab_size=101)
        needles(config, 500, 0, filler=other)


def test_equal_seeds_give_equal_documents_and_others_share_none():
    first, again, other = (needles(SMALL, 5_000, seed) for seed in (3, 3, 4))
    assert np.array_equal(first.ids, again.ids)
    assert not {document.tobytes() for document in first} & {d.tobytes() for d in other}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kinds": ("single", "double")}, "kinds must be some of single.*double"),
        ({"kinds": ()}, "kinds must be some of"),
        ({"plain_share": 1.0}, "plain_share"),
        ({"pairs": 1}, "pairs must be at least 2"),
        ({"hops": 1}, "hops must be at least 2"),
        ({"keys": 3}, r"\(9\) must be at least 12"),
        ({"successors": 12}, r"at most words \(11\), got 12"),
        ({"document_length": 32}, "document_length must be at least"),
    ],
)
def test_impossible_configs_are_refused_with_the_rule(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_config_survives_json_and_ids_have_names():
    assert from_json(NeedlesConfig, to_json(TINY)) == TINY
    names = token_strings(D4)
    assert len(set(names)) == len(names) == D4.vocab_size
