"""Patches: a state that carries the entity makes a neutral prompt tell its value."""

from dataclasses import replace

import pytest
import torch

from engram_lab.model.presets import tiny
from engram_lab.probes.entity_patch import Patch, patch_accuracy, patch_frame, text_patch
from engram_lab.probes.entity_sets import fact_patches, trained_entities
from engram_lab.tokens.factbook import FactbookConfig, fact_book
from engram_lab.tokens.tokenizer import load_tokenizer
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.fit import fit
from tests.model.foreign import foreign
from tests.probes.planted_depth import PlantedReader

BOOK = FactbookConfig(entities=24, words=14, relations=2, values=8, passage_facts=2)
PATCH = Patch(entity=0, source=(5, 6, 7), prompt=(8, 9, 10), placeholder=1, answers=((11,),))


def test_patches_tell_the_value_between_knowing_and_telling():
    model = PlantedReader(BOOK, knows=1, tells=3, blocks=4)
    frame = patch_accuracy(patch_frame(model, fact_patches(BOOK)), resamples=50)
    hits = frame.set_index("layer")["accuracy"]
    assert hits.index.tolist() == [1, 2, 3, 4]
    assert (hits[[2, 3]] == 1).all()
    assert hits[1] < 0.7  # the prompt brings another word before the last one
    assert hits[4] == frame["control_accuracy"].iloc[0] < 0.7  # too late to be told


def test_a_state_may_enter_at_another_layer_than_its_own():
    model = PlantedReader(BOOK, knows=1, tells=3, blocks=4)
    frame = patch_frame(model, fact_patches(BOOK), into=3)
    hits = frame.groupby("layer")["hit"].mean()
    assert hits[2] == hits[3] == 1
    assert hits[1] < 0.7
    late = patch_frame(model, fact_patches(BOOK), into=4).groupby("layer")["hit"].mean()
    assert late.nunique() == 1  # nothing reads the placeholder after the last block


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "gemma2", "deepseek_v4"])
def test_decoders_of_others_take_patches_and_stay_as_they_were(name):
    model = foreign(name).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    frame = patch_frame(model, [PATCH, PATCH], new_tokens=2)
    assert frame["layer"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    last, plain = (frame[frame["layer"] == layer]["generated"].iloc[0] for layer in (3, 0))
    assert last == plain  # behind the last block nothing is left to read it
    assert model.training and all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_patch_into_its_own_text_changes_nothing():
    model = foreign("llama")
    same = Patch(entity=0, source=(5, 6, 7), prompt=(5, 6, 7, 8), placeholder=2, answers=((1,),))
    frame = patch_frame(model, [same], new_tokens=3)
    assert frame["generated"].nunique() == 1


def test_hooks_are_gone_after_a_failure():
    model = foreign("llama")
    broken = Patch(entity=0, source=(5, 600), prompt=(5, 6), placeholder=0, answers=((1,),))
    with pytest.raises(IndexError):
        patch_frame(model, [broken])
    assert not any(module._forward_hooks for module in model.modules())


def test_a_hit_is_an_answer_anywhere_in_what_is_said():
    model = foreign("llama")
    said = patch_frame(model, [PATCH], new_tokens=3)["generated"].iloc[0]
    ids = tuple(int(word[1:]) for word in said.split())
    for answer, hit in (((ids[1:],), True), (((60, 60, 60),), False), ((ids * 2,), False)):
        patch = Patch(entity=0, source=(5, 6, 7), prompt=(8, 9, 10), placeholder=1, answers=answer)
        assert patch_frame(model, [patch], new_tokens=3)["hit"].iloc[0] == hit


def test_texts_become_patches_at_the_placeholder():
    tokenizer = load_tokenizer("bpe4k")
    patch = text_patch(tokenizer, "the city of Rome", ["Italy"], prompt="cat -> cat; x -> ")
    before = tokenizer.encode_ids("cat -> cat; x")
    assert list(patch.prompt[: patch.placeholder + 1]) == before
    assert tuple(tokenizer.encode_ids(" Italy")) in patch.answers
    with pytest.raises(ValueError, match="placeholder"):
        text_patch(tokenizer, "Rome", ["Italy"], prompt="cat -> cat; ", placeholder="y")


def test_fact_patches_ask_about_somebody_else_than_they_show():
    book = fact_book(BOOK)
    patches = fact_patches(BOOK, items=10)
    assert len(patches) == 10
    assert len({(len(patch.source), len(patch.prompt)) for patch in patches}) == 1
    for patch in patches:
        length = book.lengths[patch.entity]
        assert list(patch.source[-length:]) == book.names[patch.entity, :length].tolist()
        relation = patch.prompt[-1] - BOOK.token_ranges["r"].start
        assert patch.answers == ((int(book.values[patch.entity, relation]),),)
        assert patch.placeholder == len(patch.prompt) - 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patches": []}, "at least one"),
        ({"new_tokens": 0}, "new token"),
        ({"into": 4}, "1..3"),
        ({"new_tokens": 30}, "context"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        patch_frame(foreign("llama"), **{"patches": [PATCH]} | arguments)
    with pytest.raises(ValueError, match="0..2"):
        Patch(entity=0, source=(5,), prompt=(8, 9, 10), placeholder=3, answers=((1,),))


def test_a_trained_model_gives_rows_for_book_nobody_and_patches():
    data = DataConfig(
        corpus="d3", entities=14, document_length=64, train_tokens=128, eval_tokens=64
    )
    config = tiny(vocab_size(data))
    run = RunConfig(model=config, data=data, train=TrainConfig(batch_size=2, seq_len=64))
    trained = fit(run, progress=False)
    frame = trained_entities(trained)
    assert set(frame["names"]) == {"book", "nobody"}
    assert {"stream", "patch"} <= set(frame["probe"])
    assert (frame["train_tokens"] == 128).all() and frame["params"].gt(0).all()
    patched = frame[frame["probe"] == "patch"]
    assert patched["said"].str.match(r"[nrv\d?\[<|]").all() and patched["asked"].nunique() == 1
    assert patched["known_accuracy"].between(0, 1).all()
    if config.engram is not None:
        assert {"with_row", "without_rows"} <= set(frame["probe"])
    other = RunConfig(model=tiny(vocab_size(DataConfig(corpus="d5"))), data=DataConfig(corpus="d5"))
    with pytest.raises(ValueError, match="fact book"):
        trained_entities(replace(trained, config=other))
