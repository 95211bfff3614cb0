"""D5: homes, guests and twins, against a reader that was written apart."""

import dataclasses

import numpy as np
import pytest

from engram_lab.configs import from_json, to_json
from engram_lab.tokens.synthetic import (
    PolysemyConfig,
    polysemy,
    polysemy_language,
    polysemy_twins,
    token_strings,
)
from tests.tokens.fact_readers import read_polysemy
from tests.tokens.floors import assert_floor_is_paid

D5 = PolysemyConfig()
SMALL = PolysemyConfig(
    topics=3, phrases=25, first_tokens=6, second_tokens=7, completion_tokens=9, document_length=24
)
MIXTURES = {
    "d5": D5,
    "small": SMALL,
    "at home": dataclasses.replace(SMALL, static_share=1.0),
    "guests": dataclasses.replace(SMALL, static_share=0.0, zipf=1.3),
    "short documents": dataclasses.replace(SMALL, document_length=7),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_floor_is_what_a_reader_pays_who_finds_every_rule_kept(name):
    config = MIXTURES[name]
    documents = polysemy(config, 40_000, seed=5)
    assert_floor_is_paid(config, documents, list(read_polysemy(config, documents)))


def test_the_same_phrase_goes_on_in_two_ways():
    language, table = polysemy_language(SMALL), polysemy(SMALL, 20_000, 0).ids.reshape(-1, 24)
    a, b = language.openings[0]
    ways = {
        (int(row[0]), *row[place + 2 : place + 4].tolist())
        for row in table
        for place in range(1, 20)
        if (row[place], row[place + 1]) == (a, b)
    }
    assert (
        len(ways) == SMALL.topics
    )  # one way for each topic: its own at home, the topic's elsewhere
    assert (4 + language.home[0], *language.own[0].tolist()) in ways


def test_twins_hold_the_same_phrases_under_two_topics():
    twins = polysemy_twins(SMALL, 30, seed=2)
    pairs = list(zip(twins.first, twins.second, strict=True))
    assert all(one[0] != other[0] for one, other in pairs)
    names = token_strings(SMALL)
    for one, other in pairs:
        assert [i for i in one if names[i][0] in "ab"] == [i for i in other if names[i][0] in "ab"]
    for side in (twins.first, twins.second):
        assert list(read_polysemy(SMALL, side))  # the reader asserts the rules


def test_places_of_twins_are_ends_of_openings_with_one_home():
    twins, language = polysemy_twins(SMALL, 30, seed=2), polysemy_language(SMALL)
    assert set(twins.places["home"]) == {"first", "second"}
    sides = {"first": twins.first, "second": twins.second}
    for place in twins.places.itertuples():
        at_home = []
        for side in sides.values():
            ids = side[place.document]
            opening = ids[place.position - 1 : place.position + 1]
            assert np.array_equal(opening, language.openings[place.phrase])
            at_home.append(language.home[place.phrase] == ids[0] - 4)
        assert at_home == [place.home == "first", place.home == "second"]
    assert twins.places["position"].min() == 6  # the first phrase has the topic in its trigram


def test_language_hangs_on_the_seed_and_not_on_the_mixture():
    other = polysemy_language(dataclasses.replace(SMALL, static_share=0.1, document_length=50))
    assert np.array_equal(polysemy_language(SMALL).own, other.own)
    other = polysemy_language(dataclasses.replace(SMALL, seed=1))
    assert not np.array_equal(polysemy_language(SMALL).own, other.own)


def test_equal_seeds_give_equal_documents_and_others_share_none():
    first, again, other = (polysemy(D5, 5_000, seed) for seed in (3, 3, 4))
    assert np.array_equal(first.ids, again.ids)
    assert not {document.tobytes() for document in first} & {d.tobytes() for d in other}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"static_share": -0.1}, "static_share"),
        ({"topics": 1}, r"topics must lie in 2..phrases \(25\).*got 1"),
        ({"phrases": 43}, "at most first_tokens x second_tokens = 42, got 43"),
        ({"completion_tokens": 0}, "completion_tokens must be at least 1"),
        ({"seed": -1}, "zipf and seed"),
        ({"document_length": 5}, "at least 6"),
    ],
)
def test_impossible_configs_are_refused_with_the_rule(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_no_twins_are_refused():
    with pytest.raises(ValueError, match="pairs must be at least 1, got 0"):
        polysemy_twins(SMALL, 0)


def test_config_survives_json_and_ids_have_names():
    assert from_json(PolysemyConfig, to_json(SMALL)) == SMALL
    names = token_strings(D5)
    assert len(set(names)) == len(names) == D5.vocab_size
