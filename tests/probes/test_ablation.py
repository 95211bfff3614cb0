"""Ablation: what was written by hand into one memory is found there and nowhere else."""

import numpy as np
import pandas as pd
import pytest
import torch

from engram_lab.hooks import edit
from engram_lab.memory.config import EngramConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.ablation import CUTS, ablation_frame, mean_rows, memory_paths, without_memory
from engram_lab.probes.tasks import Task, item_frame
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from tests.probes.planted import Follower, copies, plant, silent_model

COLUMNS = ["family", "task", "arm", "layer", "seed", "score", "stderr", "chance", "items"]
COLUMNS += ["loss_nats", "retained", "retained_low", "retained_high"]
COLUMNS += ["retained_corrected", "retained_corrected_low", "retained_corrected_high"]
FACTS = {(5, 6): 7, (6, 5): 8, (7, 8): 9, (9, 7): 5}


def task(facts, name="recall", chance=0.0, repeats=10) -> Task:
    """Each fact so often: two ids, and the one that follows them."""
    documents = [[*pair, answer] for pair, answer in facts.items()] * repeats
    return Task(
        family=name,
        name=name,
        documents=Documents.from_lists(
            documents,
            vocab_size=12,
            classes=[[0, 0, 1]] * len(documents),
            class_names=("context", "answer"),
        ),
        chance=chance,
    )


@pytest.fixture
def model() -> EngramLM:
    """Blocks 0 and 1 have memories; the facts stand in block 1 alone."""
    model = silent_model(12, layers=(0, 1))
    for pair, answer in FACTS.items():
        plant(model, pair, answer, layer=1)
    return model


def retained(frame: pd.DataFrame) -> dict:
    return frame.set_index(["arm", "layer"])["retained"].round(3).to_dict()


def test_rows_written_by_hand_are_found_and_localised(model):
    frame = ablation_frame(model, [task(FACTS)], seed=2)
    assert list(frame.columns) == COLUMNS and (frame["seed"] == 2).all()
    assert set(frame["arm"]) == {"intact", *CUTS} and set(frame["layer"]) == {"all", "0", "1"}
    shares = retained(frame)
    assert shares["intact", "all"] == 1
    for cut in ("rows_zero", "gate_zero", "rows_permuted"):
        assert shares[cut, "0"] == 1 and shares[cut, "1"] == shares[cut, "all"] == 0
    assert shares["gate_one", "all"] == 1  # a wider opening shouts the same answers


def test_the_mean_of_what_is_read_holds_no_single_fact(model):
    shares = retained(ablation_frame(model, [task(FACTS)], cuts=["rows_mean"]))
    assert shares["rows_mean", "1"] == 0.25  # one answer for all: right for one fact of four
    means = mean_rows(model, [task(FACTS)])
    assert set(means) == {0, 1} and not means[0].any()
    expected = np.zeros(16)
    expected[[7, 8, 9, 5]] = 100 / 12  # each planted row at one of twelve positions
    assert means[1][0].numpy() == pytest.approx(expected)


def test_tasks_that_do_not_need_the_memory_retain_everything(model):
    def by_context(value: torch.Tensor) -> torch.Tensor:
        """A backbone that answers 11 whatever memory says."""
        answer = torch.zeros_like(value)
        answer[..., 11] = 1e6
        return answer

    with edit(model, {"blocks.1.hook_resid_post": by_context}):
        frame = ablation_frame(model, [task(dict.fromkeys(FACTS, 11), "reading"), task(FACTS)])
    reading = frame[frame["task"] == "reading"]
    assert (reading["retained"] == 1).all() and (reading["retained_low"] == 1).all()
    lost = frame[frame["task"] == "recall"]
    assert lost["retained"].isna().all(), "nothing was known, so nothing can be retained"


def test_what_is_above_chance_is_told_apart_from_guessing(model):
    # half of the items are answered by the backbone's constant guess of 7, which memory overrules
    mixed = task({(5, 6): 7, (6, 5): 8}, chance=0.5)
    with torch.no_grad():
        model.embed_tokens.weight[:, 7] = 0.1
    row = ablation_frame(model, [mixed], cuts=["rows_zero"]).iloc[1]
    assert (row["score"], row["retained"]) == (0.5, 0.5)
    assert row["retained_corrected"] == pytest.approx(0)
    assert row["retained_low"] < 0.5 < row["retained_high"]
    assert row["retained_corrected_low"] < 0 < row["retained_corrected_high"]


def test_a_score_near_chance_has_no_corrected_share(model):
    frame = ablation_frame(model, [task(FACTS, chance=0.99, repeats=1)], cuts=["gate_zero"])
    assert frame["retained_corrected"].notna().all()  # 1.00 is above 0.99 without any spread
    with torch.no_grad():
        model.memories[1].table.weight.zero_()
    plant(model, (5, 6), 7, layer=1)
    frame = ablation_frame(model, [task(FACTS, chance=0.2, repeats=1)], cuts=["gate_zero"])
    assert frame["score"].tolist() == [0.25, 0, 0.25, 0]
    assert frame["retained_corrected"].isna().all() and (frame["retained"] == [1, 0, 1, 0]).all()


def test_the_model_is_left_as_it_was_also_after_an_error(model):
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ablation_frame(model, [task(FACTS)])
    long = Documents.from_lists(
        [[5] * 200], vocab_size=12, classes=[[0] * 199 + [1]], class_names=("context", "answer")
    )
    with pytest.raises(ValueError, match="at most 128 positions"):
        ablation_frame(model, [Task(family="f", name="t", documents=long, chance=0.0)])
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_one_memory_is_cut_once(model):
    single = silent_model(12, layers=(1,))
    frame = ablation_frame(single, [task(FACTS)], cuts=["rows_zero"])
    assert frame["layer"].tolist() == ["all", "all"]


def test_zero_rows_and_a_closed_gate_are_the_same_cut_without_biases():
    torch.manual_seed(0)
    config = tiny(12).replace(
        engram=EngramConfig(layer_ids=(1,), engram_vocab_size=(97, 97), n_embed_per_ngram=16)
    )
    model = EngramLM(config, VocabCompression.identity(12)).eval()
    with torch.no_grad():
        model.memories[1].table.weight.mul_(50)
        model.memories[1].conv_weight.normal_()
    tasks = [task(FACTS)]
    losses = {}
    for cut in ("rows_zero", "gate_zero", "gate_one", "rows_permuted"):
        with without_memory(model, cut):
            losses[cut] = item_frame(model, tasks)["loss_nats"].to_numpy()
    assert losses["rows_zero"] == pytest.approx(losses["gate_zero"], abs=1e-6)
    assert np.abs(losses["gate_one"] - losses["gate_zero"]).max() > 1e-3
    assert np.abs(losses["rows_permuted"] - losses["gate_zero"]).max() > 1e-3


def test_a_bf16_model_can_be_cut(model):
    frame = ablation_frame(model.bfloat16(), [task(FACTS)])
    assert frame["score"].dtype == "float64" and frame["loss_nats"].notna().all()


def test_what_has_no_memory_or_no_such_cut_is_refused(model):
    for bare in (EngramLM(tiny(12).replace(engram=None)), Follower(12, copies(1))):
        with pytest.raises(ValueError, match="has none"):
            ablation_frame(bare, [task(FACTS)])
    with pytest.raises(ValueError, match="cuts must be some of rows_zero.*rows_one"):
        ablation_frame(model, [task(FACTS)], cuts=["rows_one"])
    with (
        pytest.raises(ValueError, match="cut must be one of.*rows_mean"),
        without_memory(model, "rows_mean"),
    ):
        pass
    assert memory_paths(model) == {0: "blocks.0.engram", 1: "blocks.1.engram"}
