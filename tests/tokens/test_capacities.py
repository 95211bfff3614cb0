"""D8: what pairs, topics and keys tell, and in which proportion they come."""

import dataclasses

import numpy as np
import pytest

from engram_lab.tokens.items import zipf
from engram_lab.tokens.synthetic import TwoCapacitiesConfig, two_capacities, two_capacities_language

D8 = TwoCapacitiesConfig()


def conditional_entropy(context: np.ndarray, outcome: np.ndarray) -> float:
    """H(outcome | context) in nats, of the observed frequencies."""

    def entropy(values):
        shares = np.unique(values, axis=0, return_counts=True)[1] / len(values)
        return -(shares * np.log(shares)).sum()

    return entropy(np.column_stack([context, outcome])) - entropy(context)


def test_pair_fixes_both_completions():
    documents = two_capacities(D8, 300_000, 0)
    ids, ranges = documents.ids, D8.token_ranges
    head = np.flatnonzero(np.isin(ids[:-4], ranges["a"]) & np.isin(ids[3:-1], ranges["c"]))
    pairs = np.column_stack([ids[head], ids[head + 1]])
    completions = np.column_stack([ids[head + 2], ids[head + 3]])
    assert len(head) > 10_000
    assert len(np.unique(np.column_stack([pairs, completions]), axis=0)) == len(
        np.unique(pairs, axis=0)
    )


def test_half_a_pair_does_not_fix_the_completion():
    phrases = two_capacities_language(D8).phrases
    for half in (0, 1):
        assert conditional_entropy(phrases[:, half], phrases[:, 2]) > 3.5


def test_second_half_of_a_pair_is_far_from_fixed_by_the_first():
    phrases = two_capacities_language(D8).phrases
    assert conditional_entropy(phrases[:, 0], phrases[:, 1]) > 4


def test_key_alone_leaves_its_answer_open_and_the_topic_closes_it():
    answers = two_capacities_language(D8).key_map
    topic, key = np.indices(answers.shape)
    answer = answers.reshape(-1)
    topic, key = topic.reshape(-1), key.reshape(-1)
    # 32 topics give a key up to 32 answers: log 32 = 3.47 nats, less where two topics agree
    assert conditional_entropy(key, answer) > 0.95 * np.log(D8.topics)
    assert conditional_entropy(topic, answer) == pytest.approx(np.log(D8.keys))
    assert conditional_entropy(np.column_stack([topic, key]), answer) == pytest.approx(0)


def test_pairs_are_distinct_and_every_map_is_a_permutation():
    language = two_capacities_language(D8)
    assert len(np.unique(language.phrases[:, :2], axis=0)) == D8.pairs
    assert (np.sort(language.key_map, axis=1) == np.array(D8.token_ranges["k"])).all()


def test_pair_frequencies_follow_the_zipf_law():
    documents = two_capacities(D8, 1_000_000, 0)
    language, table = two_capacities_language(D8), documents.ids.reshape(-1, D8.document_length)
    code = table[:, :-1] * D8.vocab_size + table[:, 1:]
    top = language.phrases[:200, 0] * D8.vocab_size + language.phrases[:200, 1]
    observed = np.isin(code, top).sum() / np.isin(table[:, :-2], D8.token_ranges["a"]).sum()
    assert observed == pytest.approx(language.pair_probability[:200].sum(), rel=0.03)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_topic_frequencies_follow_their_law(exponent):
    config = dataclasses.replace(D8, topic_zipf=exponent)
    topics = two_capacities(config, 1_000_000, 0).ids.reshape(-1, config.document_length)[:, 0]
    observed = (topics == config.token_ranges["topic"].start).mean()
    assert observed == pytest.approx(zipf(config.topics, exponent)[0], rel=0.1)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_phrases_take_the_share_of_tokens_asked_for(share):
    config = dataclasses.replace(D8, static_share=share)
    body = two_capacities(config, 1_000_000, 0).ids.reshape(-1, config.document_length)[:, 1:-1]
    realised = np.isin(
        body, np.arange(config.token_ranges["a"].start, config.token_ranges["k"].start)
    )
    assert realised.mean() == pytest.approx(
        share, abs=0.006
    )  # 0.005 of edge effects, 0.001 of luck


def test_kinds_of_neighbouring_items_are_independent():
    ids, ranges = two_capacities(D8, 1_000_000, 0).ids, D8.token_ranges
    after_phrase = np.isin(ids[3:-1], ranges["c"]) & np.isin(ids[:-4], ranges["a"])
    following = ids[4:][after_phrase]
    following = following[following >= 4]  # a document may be over
    chance = (D8.static_share / 4) / (D8.static_share / 4 + (1 - D8.static_share) / 3)
    # a phrase that a new one follows must have room for it, which hardly shifts the chance
    assert np.isin(following, ranges["a"]).mean() == pytest.approx(chance, abs=0.01)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"static_share": 1.2}, "static_share must lie in 0..1, got 1.2"),
        ({"topics": 0}, "topics must be at least 1, got 0"),
        ({"pairs": 60_000}, "pairs must be at most .* = 57600, got 60000"),
        ({"zipf": -1.0}, "zipf must be 0 or more, got -1.0"),
        ({"topic_zipf": -1.0}, "topic_zipf must be 0 or more, got -1.0"),
        ({"document_length": 5}, "document_length must be at least 6"),
    ],
)
def test_impossible_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(D8, **change)
