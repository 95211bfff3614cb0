"""Depth of entities: found where it was planted, not where it was not."""

import numpy as np
import pandas as pd
import pytest
import torch

from engram_lab.model.modeling import EngramLM
from engram_lab.probes.entity import entity_frame, linear_guesses, mention_states
from engram_lab.probes.entity_mentions import Mentions, entity_mentions
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.factbook import FactbookConfig, fact_book
from tests.model.foreign import VOCAB, foreign
from tests.probes.planted import plant, silent_model
from tests.probes.planted_depth import PlantedReader

BOOK = FactbookConfig(entities=14, words=9, relations=2, values=8, passage_facts=2)


def at(frame: pd.DataFrame, layer: int, probe: str = "stream") -> pd.Series:
    (row,) = frame[(frame["layer"] == layer) & (frame["probe"] == probe)].to_dict("records")
    return pd.Series(row)


def with_rows_of_the_book() -> EngramLM:
    """A model without attention whose memory in block 1 holds a row for every name."""
    model = silent_model(BOOK.vocab_size, layers=(1,))
    book = fact_book(BOOK)
    for entity, (name, length) in enumerate(zip(book.names, book.lengths, strict=True)):
        plant(model, name[length - 2 : length].tolist(), answer=entity, layer=1)
    return model


def test_the_probe_finds_the_layer_from_which_the_entity_is_known():
    model = PlantedReader(BOOK, knows=2, tells=3, blocks=4)
    frame = entity_frame(model, entity_mentions(BOOK), resamples=50)
    by_layer = frame.set_index("layer")["accuracy"]
    alone = frame["last_token_accuracy"].iloc[0]
    assert (by_layer[[3, 4]] == 1).all()
    # entities with one last word tie, and rounding breaks the ties
    assert by_layer[[0, 1, 2]].to_numpy() == pytest.approx(alone, abs=0.05)
    assert alone < 1
    assert (frame["control_accuracy"] < 0.5).all()
    assert set(frame["stage"]) == {"no memory"}


def test_what_a_probe_reads_from_the_row_itself_is_told_apart():
    model = with_rows_of_the_book()
    frame = entity_frame(model, entity_mentions(BOOK), resamples=50)
    chance = 1 / BOOK.entities
    assert at(frame, 1)["stage"] == "before memory"
    assert at(frame, 1)["accuracy"] == pytest.approx(chance)
    assert at(frame, 1, "with_row")["stage"] == "row read"
    assert at(frame, 1, "with_row")["accuracy"] == 1
    assert at(frame, 2)["stage"] == "after attention"
    assert at(frame, 2)["accuracy"] == 1
    assert at(frame, 2, "without_rows")["accuracy"] == pytest.approx(chance)


def test_names_of_nobody_find_no_rows():
    frame = entity_frame(
        with_rows_of_the_book(), entity_mentions(BOOK, strangers=True), resamples=50
    )
    assert (frame["accuracy"] <= 1 / BOOK.entities + 1e-9).all()


def test_selectivity_is_accuracy_less_that_of_random_labels():
    model = PlantedReader(BOOK, knows=0, tells=1, blocks=2)
    frame = entity_frame(model, entity_mentions(BOOK, per_entity=20), resamples=50)
    assert frame["selectivity"].to_numpy() == pytest.approx(
        (frame["accuracy"] - frame["control_accuracy"]).to_numpy()
    )
    assert (frame["low"] <= frame["accuracy"]).all() and (frame["accuracy"] <= frame["high"]).all()
    # 14 labels, 112 tests: more than 0.2 by luck in fewer than one of a thousand rows
    assert (frame["control_accuracy"] < 0.2).all()


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "deepseek_v4"])
def test_decoders_of_others_can_be_probed_and_stay_as_they_were(name):
    model = foreign(name).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    documents = Documents.from_lists([[5, 6, 7], [9, 6, 7, 8]] * 2, vocab_size=VOCAB)
    mentions = Mentions(
        documents=documents,
        document=np.array([0, 1, 2, 3]),
        position=np.array([1, 2, 1, 2]),
        entity=np.array([0, 1, 0, 1]),
        train=np.array([True, True, False, False]),
    )
    frame = entity_frame(model, mentions, resamples=20)
    assert frame["layer"].tolist() == [0, 1, 2, 3]
    assert frame["accuracy"].iloc[1:].tolist() == [1, 1, 1]  # the same texts once more
    assert model.training and all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_states_come_in_the_order_of_the_mentions():
    model = PlantedReader(BOOK, knows=0, tells=1, blocks=2)
    mentions = entity_mentions(BOOK)
    shuffled = np.random.default_rng(0).permutation(len(mentions.entity))
    other = Mentions(
        documents=mentions.documents,
        **{
            name: getattr(mentions, name)[shuffled]
            for name in ("document", "position", "entity", "train")
        },
    )
    states = mention_states(model, mentions).stream
    assert torch.equal(states[:, shuffled], mention_states(model, other).stream)
    words = torch.from_numpy(mentions.last_tokens)
    assert torch.equal(states[0, :, :48], model.embed(words).detach())


def test_the_closed_form_finds_the_labels_of_clouds():
    random = torch.Generator().manual_seed(0)
    centres = 4 * torch.randn(30, 12, generator=random)
    labels = torch.arange(30).repeat(10)
    states = centres[labels] + torch.randn(300, 12, generator=random)
    tested = centres[labels] + torch.randn(300, 12, generator=random)
    guesses = linear_guesses(states, labels, tested)
    assert (guesses == labels).double().mean() > 0.95
    moved = linear_guesses(3 * states + 5, labels, 3 * tested + 5)
    assert torch.equal(guesses, moved)


def test_a_direction_full_of_noise_does_not_hide_the_labels():
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(50)
    states = torch.randn(200, 6, generator=random) * torch.tensor([0.1] * 5 + [100.0])
    states[:, :4] += torch.nn.functional.one_hot(labels, 4)
    guesses = linear_guesses(states[:100], labels[:100], states[100:], ridge=1e-6)
    assert (guesses == labels[100:]).all()


def test_mentions_lie_where_names_end_and_are_spread_evenly():
    mentions = entity_mentions(BOOK, per_entity=5)
    book = fact_book(BOOK)
    ids, lengths = mentions.documents.ids, mentions.documents.lengths
    assert (np.bincount(mentions.entity) == 5).all()
    assert (np.bincount(mentions.entity[mentions.train]) == 3).all()
    assert lengths.max() <= BOOK.document_length
    places = mentions.documents.offsets[mentions.document] + mentions.position
    names = {
        tuple(name[length - 2 : length]): entity
        for entity, (name, length) in enumerate(zip(book.names.tolist(), book.lengths, strict=True))
    }
    found = [names[tuple(ids[place - 1 : place + 1].tolist())] for place in places]
    assert len(set(zip(found, mentions.entity.tolist(), strict=True))) == BOOK.entities
    relations = BOOK.token_ranges["r"]
    assert all(relations.start <= ids[place + 1] < relations.stop for place in places)
    once = list(zip(mentions.document.tolist(), mentions.entity.tolist(), strict=True))
    assert len(set(once)) == len(once)  # no document mentions an entity twice


def test_names_of_nobody_keep_last_words_and_are_in_no_book():
    book = fact_book(BOOK)
    mentions = entity_mentions(BOOK, strangers=True)
    known = {
        tuple(name[length - 2 : length])
        for name, length in zip(book.names.tolist(), book.lengths, strict=True)
    }
    ids = mentions.documents.ids
    places = mentions.documents.offsets[mentions.document] + mentions.position
    pairs = {tuple(ids[place - 1 : place + 1].tolist()) for place in places}
    assert len(pairs) == BOOK.entities and not pairs & known
    same = entity_mentions(BOOK)
    assert np.array_equal(np.sort(mentions.last_tokens), np.sort(same.last_tokens))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": np.array([9, 0])}, "inside"),
        ({"entity": np.array([0, 1])}, "both kinds"),
        ({"train": np.array([True, True])}, "both kinds"),
    ],
)
def test_mentions_outside_documents_or_never_fitted_are_refused(change, message):
    documents = Documents.from_lists([[5, 6], [7, 8]], vocab_size=20)
    fields = {
        "document": np.array([0, 1]),
        "position": np.array([0, 1]),
        "entity": np.array([0, 0]),
        "train": np.array([True, False]),
    }
    with pytest.raises(ValueError, match=message):
        Mentions(documents=documents, **fields | change)


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="per_entity"):
        entity_mentions(BOOK, per_entity=1)
    with pytest.raises(ValueError, match="entities"):
        entity_mentions(BOOK, entities=15)
    with pytest.raises(ValueError, match="ridge"):
        linear_guesses(torch.ones(2, 3), torch.arange(2), torch.ones(1, 3), ridge=0.0)
    with pytest.raises(ValueError, match="finite"):
        linear_guesses(torch.full((2, 3), torch.nan), torch.arange(2), torch.ones(1, 3))
