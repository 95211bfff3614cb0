"""Gates as detectors: a planted phrase detector is perfect, a planted topic gate tells topics."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from engram_lab.hooks import HookPoint, edit
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.gate_statistics import (
    detector_scores,
    document_gates,
    surprise_scores,
    topic_difference,
    topic_gates,
)
from engram_lab.probes.gates import gates_of_ids
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.phrase_ends import phrase_places
from engram_lab.tokens.synthetic import (
    PhrasebookConfig,
    PolysemyConfig,
    phrase_book,
    phrasebook,
    polysemy_language,
)
from tests.probes.planted import plant, silent_model

D1 = PhrasebookConfig(  # without copies: their words would form bigrams of the book by accident
    phrases=6, words=30, phrase_lengths=(2, 3), copy_weight=0.0, document_length=40
)
D5 = PolysemyConfig(phrases=12, first_tokens=4, second_tokens=5, completion_tokens=6)
COLUMNS = ["layer", "branch", "measure", "value", "low", "high", "items"]


@pytest.fixture(scope="module")
def documents() -> Documents:
    return phrasebook(D1, 800, seed=0)


@pytest.fixture(scope="module")
def detector() -> EngramLM:
    """Its gate opens where the last two words of a phrase of the book stand."""
    model, book = silent_model(D1.vocab_size), phrase_book(D1)
    for phrase, length in zip(book.phrases.tolist(), book.lengths.tolist(), strict=True):
        plant(model, phrase[length - 2 : length], 5)
    return model


def test_places_of_phrases_are_those_of_the_book(documents):
    places, book = phrase_places(D1, documents), phrase_book(D1)
    whole = {
        tuple(ids[:length])
        for ids, length in zip(book.phrases.tolist(), book.lengths.tolist(), strict=True)
    }
    found = 0
    for document, begin in zip(documents, documents.offsets, strict=False):
        ids = document.tolist()
        for end in range(len(ids)):
            if places.last[begin + end]:
                lengths = [n for n in (2, 3) if tuple(ids[end - n + 1 : end + 1]) in whole]
                assert lengths, "a last word ends a phrase"
                assert places.inside[begin + end - min(lengths) + 1 : begin + end + 1].all()
                found += 1
    runs = np.diff(documents.classes == 0, append=False)  # static is class 0
    assert runs.sum() / 2 - len(documents) <= found <= runs.sum() / 2  # at most one cut a document


def test_places_of_another_book_are_refused(documents):
    with pytest.raises(ValueError, match="must be a phrase of the book"):
        phrase_places(PhrasebookConfig(phrases=6, words=30, seed=1), documents)


def test_a_planted_phrase_detector_is_perfect(detector, documents):
    gates, places = document_gates(detector, documents), phrase_places(D1, documents)
    cut = (
        documents.offsets[1:] - 2
    )  # a phrase cut by the end may look like a whole one's last words
    among = np.ones(documents.token_count, dtype=bool)
    among[cut] = False
    for kept in (among, among & places.inside):
        frame = detector_scores(gates, places.last, among=kept, resamples=50)
        assert list(frame.columns) == COLUMNS
        row = frame.set_index("measure").loc["gate"]
        assert row["value"] == row["low"] == row["high"] == 1
        assert row["items"] == kept.sum()


def test_a_gate_that_says_nothing_has_an_area_of_one_half(detector, documents):
    labels = phrase_places(D1, documents).last
    with edit(detector, {"blocks.*.engram.hook_gate": lambda gate: torch.full_like(gate, 0.3)}):
        gates = document_gates(detector, documents)
    frame = detector_scores(gates, labels, resamples=50).set_index("measure")
    assert frame.loc["gate", "value"] == 0.5


def test_baselines_are_told_beside_the_gates(detector, documents):
    labels = phrase_places(D1, documents).last
    gates = document_gates(detector, documents)
    frame = detector_scores(
        gates,
        labels,
        baselines={"counts": labels.astype(float), "chance": np.zeros(len(labels))},
        resamples=50,
    )
    assert frame["layer"].tolist() == [0, 0, -1, -1]
    assert frame["value"].tolist()[2:] == [1, 0.5]


def test_a_gate_that_opens_at_expected_tokens_falls_with_surprise(detector, documents):
    gates, labels = document_gates(detector, documents), phrase_places(D1, documents).last
    noise = np.random.default_rng(0).random(len(labels))
    frame = surprise_scores(gates, noise - 2 * labels, resamples=50).set_index("measure")
    assert frame.loc["gate", "value"] < -0.3 and frame.loc["gate", "high"] < 0


def test_document_gates_are_those_of_single_texts_whatever_the_batch():
    model = silent_model(D1.vocab_size, (0, 1))
    with torch.no_grad():
        for engram in model.memories.values():
            engram.table.weight.normal_()
            engram.projection.weight.normal_()
    rng = np.random.default_rng(0)
    documents = Documents.from_lists(
        [rng.integers(4, 30, size=size) for size in (7, 3, 9)], vocab_size=D1.vocab_size
    )
    frame = document_gates(model, documents, batch_size=2)
    for number, ids in enumerate(documents):
        own = frame[frame["document"] == number]
        alone = gates_of_ids(model, torch.tensor(ids[None].astype(np.int64)), ["x"] * len(ids))
        assert own["position"].tolist() == alone["position"].tolist()
        for column in ("gate", "value_norm"):
            assert own[column].to_numpy() == pytest.approx(alone[column].to_numpy(), rel=1e-4)
        assert own["place"].tolist() == [*range(*documents.offsets[number : number + 2])] * 2


class TopicGate(nn.Module):
    """A memory of two branches: one gate opens at phrases that are at home, the other ajar."""

    def __init__(self, config: PolysemyConfig):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Module()])
        memory = self.blocks[0].engram = nn.Module()
        memory.hook_gate, memory.hook_value = HookPoint(), HookPoint()
        self.weight = nn.Parameter(torch.zeros(1))
        language = polysemy_language(config)
        self.home = dict(
            zip(map(tuple, language.openings.tolist()), language.home.tolist(), strict=True)
        )

    def forward(self, input_ids, attention_mask):
        gate = torch.full((*input_ids.shape, 2), 0.25)
        for row, ids in enumerate(input_ids.tolist()):
            for place in range(1, len(ids)):
                if self.home.get((ids[place - 1], ids[place])) == ids[0] - 4:
                    gate[row, place, 0] = 0.75
        self.blocks[0].engram.hook_gate(gate)
        self.blocks[0].engram.hook_value(torch.full((*input_ids.shape, 4), 1.0))


def test_a_planted_topic_gate_tells_the_right_topic_from_the_wrong_one():
    frame = topic_gates(TopicGate(D5), D5, pairs=6, seed=1)
    one, other = (frame[frame["branch"] == branch] for branch in (0, 1))
    assert (one["gate_home"] == 0.75).all() and (one["gate_elsewhere"] == 0.25).all()
    assert (other["gate_home"] == 0.25).all() and (one["value_norm_home"] == 1.5).all()
    rows = topic_difference(frame, resamples=50).set_index(["branch", "measure"])
    assert rows.loc[(0, "gate"), "value"] == rows.loc[(0, "gate"), "low"] == 0.5
    assert rows.loc[(1, "gate"), "value"] == 0 and rows.loc[(0, "value_norm"), "value"] == 1.0
    assert (rows["items"] == len(one)).all()


def test_pairs_of_the_same_document_are_drawn_together():
    frame = pd.DataFrame(
        {"layer": 1, "branch": 0, "document": [0] * 9 + [1] * 9, "gate_elsewhere": 0.0}
    )
    frame["gate_home"] = frame["document"].astype(float)
    frame["value_norm_home"] = frame["value_norm_elsewhere"] = 0.0
    row = topic_difference(frame, resamples=200).iloc[0]
    assert (row["value"], row["low"], row["high"]) == (0.5, 0, 1)


def test_the_model_is_left_as_it_was(detector, documents):
    detector.train()
    document_gates(detector, documents)
    assert all(module.training for module in detector.modules())
    assert not any(module._forward_hooks for module in detector.modules())
    detector.eval()


def test_models_without_memory_and_labels_of_one_kind_are_refused(detector, documents):
    bare = EngramLM(tiny(D1.vocab_size).replace(engram=None))
    with pytest.raises(ValueError, match="this EngramLM has none"):
        document_gates(bare, documents)
    with pytest.raises(ValueError, match="at least one document"):
        document_gates(detector, documents.select([]))
    with pytest.raises(ValueError, match="got 0 labelled of"):
        detector_scores(
            document_gates(detector, documents), np.zeros(documents.token_count, dtype=bool)
        )
