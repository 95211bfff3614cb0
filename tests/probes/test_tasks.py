"""Scored tasks: planted readers score what they can, and no more."""

import numpy as np
import pytest
import torch

from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.task_sets import class_tasks, fact_tasks, needle_tasks, tasks_of
from engram_lab.probes.tasks import Task, item_frame, task_frame
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.synthetic import (
    FactbookConfig,
    NeedlesConfig,
    TwoCapacitiesConfig,
    fact_book,
    two_capacities,
    two_capacities_language,
)
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.fit import fit
from tests.probes.planted import Follower, copies, knows

D3 = FactbookConfig(entities=30, words=40, relations=4, values=16)
COLUMNS = ["family", "task", "arm", "layer", "seed", "score", "stderr", "chance", "items"]
COLUMNS += ["loss_nats", "retained", "retained_corrected"]


def by_task(frame):
    return frame.set_index("task")["score"].round(3).to_dict()


@pytest.fixture(scope="module")
def facts():
    return fact_tasks(D3, items=30)


def test_a_reader_of_passages_scores_with_a_passage_and_not_closed_book(facts):
    frame = task_frame(Follower(D3.vocab_size, copies(3)), facts)
    assert list(frame.columns) == COLUMNS
    scores = by_task(frame)
    assert scores["passage"] == scores["passage_known"] == 1
    assert scores["closed_book"] == scores["asked_before"] == 0
    assert frame.set_index("task")["family"].to_dict() == {
        "closed_book": "recall",
        "asked_before": "recall",
        "passage": "reading",
        "passage_known": "reading",
    }


def test_a_knower_of_the_book_scores_wherever_the_book_is_asked(facts):
    book, relation = fact_book(D3), D3.token_ranges["r"].start
    known = {
        (
            *book.names[entity, book.lengths[entity] - 2 : book.lengths[entity]].tolist(),
            relation + r,
        ): int(book.values[entity, r])
        for entity in range(D3.entities)
        for r in range(D3.relations)
    }
    scores = by_task(task_frame(Follower(D3.vocab_size, knows(known, 3)), facts))
    assert scores == {"closed_book": 1, "asked_before": 1, "passage": 0, "passage_known": 1}


def test_standard_error_and_chance_are_those_of_shares(facts):
    first_value = Follower(D3.vocab_size, lambda ids: ids[4] if len(ids) > 4 else -1)
    frame = task_frame(first_value, facts, seed=3).set_index("task")
    p, n = frame.loc["passage", ["score", "items"]]
    assert 0 < p < 1 and frame.loc["passage", "stderr"] == pytest.approx((p * (1 - p) / n) ** 0.5)
    assert frame["chance"].to_dict() == {
        "closed_book": 1 / 16,
        "asked_before": 1 / 16,
        "passage": 1 / 3,
        "passage_known": 1 / 3,
    }
    assert (frame["seed"] == 3).all() and (frame["items"] == 30).all()


def test_needles_are_found_by_their_keys_and_chains_by_following_them():
    config = NeedlesConfig(keys=8, document_length=64)
    frame = task_frame(
        Follower(config.vocab_size, copies(config.key_length)), needle_tasks(config, items=6)
    )
    scores = by_task(frame)
    assert scores["single"] == scores["multikey"] == scores["multiquery"] == 1
    assert scores["multivalue"] < 1 and scores["tracking"] == 0
    assert frame.set_index("task")["chance"].to_dict() == {
        "single": 1 / 64,
        "multikey": 1 / 4,
        "multivalue": 1 / 4,
        "multiquery": 1 / 4,
        "tracking": 1 / 2,
    }


def test_classes_of_tokens_are_tasks_and_chance_is_the_most_frequent_token():
    config = TwoCapacitiesConfig(topics=2, pairs=20, keys=9, document_length=32)
    documents = two_capacities(config, 640, 0)
    tasks = class_tasks(documents)
    assert [task.name for task in tasks] == ["static", "computed"]
    for task in tasks:
        ids = documents.ids[task.marked]
        assert task.chance == pytest.approx(np.unique(ids, return_counts=True)[1].max() / len(ids))
    phrases = two_capacities_language(config).phrases.tolist()
    pairs = {(a, b): first for a, b, first, _ in phrases}
    triples = {(a, b, first): second for a, b, first, second in phrases}

    def rule(ids: list[int]) -> int:
        return triples.get(tuple(ids[-3:]), pairs.get(tuple(ids[-2:]), -1))

    scores = by_task(task_frame(Follower(config.vocab_size, rule), tasks))
    assert scores == {"static": 1, "computed": 0}
    with pytest.raises(ValueError, match="needs? tokens of the classes dynamic"):
        class_tasks(documents, classes=("dynamic",))


def test_an_answer_of_several_tokens_scores_in_parts_and_documents_without_one_have_no_row():
    documents = Documents.from_lists(
        [[5, 6, 7, 8], [5, 6, 7, 9], [5, 6]],
        vocab_size=10,
        classes=[[0, 1, 0, 1], [0, 1, 0, 1], [1, 0]],
        class_names=("context", "answer"),
    )
    task = Task(family="f", name="t", documents=documents, chance=0.0)
    frame = item_frame(Follower(10, knows({(5,): 6, (7,): 8}, 1)), [task])
    assert frame["item"].tolist() == [0, 1]  # the last one's answer opens its document
    assert frame["score"].tolist() == [1.0, 0.5] and frame["tokens"].tolist() == [2, 2]


def test_scores_do_not_depend_on_the_batch_and_the_model_is_left_as_it_was(facts):
    model = EngramLM(tiny(D3.vocab_size).replace(engram=None)).train()
    one, other = (item_frame(model, facts, batch_size=size) for size in (7, 32))
    assert one["loss_nats"].to_numpy() == pytest.approx(other["loss_nats"].to_numpy(), abs=1e-5)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_bf16_model_gives_a_frame_of_float64(facts):
    model = EngramLM(tiny(D3.vocab_size).replace(engram=None)).bfloat16()
    frame = item_frame(model, facts[:1])
    assert frame["loss_nats"].dtype == "float64" and frame["loss_nats"].notna().all()


@pytest.mark.parametrize("corpus", ["d3", "d4", "d5", "d8"])
def test_tasks_of_a_run_fit_its_vocabulary(corpus):
    data = DataConfig(corpus=corpus, topics=2, train_tokens=600, eval_tokens=300)
    train = TrainConfig(batch_size=2, seq_len=32, steps=1, device="cpu")
    run = fit(RunConfig(model=tiny(vocab_size(data)), data=data, train=train), progress=False)
    frame = task_frame(run.model, tasks_of(run, items=3))
    assert frame["score"].between(0, 1).all()
    assert {"recall", "reading", "needles", "tokens"} >= set(frame["family"])


def test_what_cannot_be_scored_is_refused():
    documents = Documents.from_lists(
        [[5, 6]], vocab_size=10, classes=[[1, 0]], class_names=("a", "b")
    )
    with pytest.raises(ValueError, match="class 'answer'; its documents have"):
        Task(family="f", name="t", documents=documents, chance=0.0)
    with pytest.raises(ValueError, match="behind the first"):
        Task(family="f", name="t", documents=documents, scored="b", chance=0.0)
    with pytest.raises(ValueError, match="chance of task 't'.*got 1.0"):
        Task(family="f", name="t", documents=documents, scored="a", chance=1.0)
    task = Task(family="f", name="t", documents=documents, scored="a", chance=0.0)
    model = Follower(10, copies(1))
    for tasks in ([], [task, task]):
        with pytest.raises(ValueError, match="tasks with names of their own"):
            item_frame(model, tasks)
    with pytest.raises(ValueError, match="batch_size must be at least 1; got 0"):
        item_frame(model, [task], batch_size=0)


def test_documents_longer_than_the_context_are_an_error_of_the_model():
    model = EngramLM(tiny(10).replace(engram=None, max_position_embeddings=4))
    documents = Documents.from_lists(
        [[5] * 5], vocab_size=10, classes=[[0, 0, 0, 0, 1]], class_names=("context", "answer")
    )
    with pytest.raises(ValueError, match="at most 4 positions"):
        item_frame(model, [Task(family="f", name="t", documents=documents, chance=0.0)])
    assert torch.is_grad_enabled()
