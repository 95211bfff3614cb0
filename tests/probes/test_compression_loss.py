"""Loss by spelling: classes by the token before, and equal tokens in every arm."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from engram_lab.experiments.catalog.engram_compression_loss import ENGRAM_COMPRESSION_LOSS, map_run
from engram_lab.model.modeling import EngramLM
from engram_lab.probes import compression_loss
from engram_lab.probes.compression_loss import (
    SPELLINGS,
    by_last_spelling,
    spelling_loss,
    spellings_of,
)
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from engram_lab.training.config import DataConfig, RunConfig
from engram_lab.training.data import RunData
from engram_lab.training.fit import TrainedRun

TEXTS = ["the", " the", "The", " THE", "é", "e", "x", "１", "1"]


def a_map() -> VocabCompression:
    return VocabCompression(torch.tensor([0, 0, 0, 0, 1, 1, 2, 3, 3]), tokens=TEXTS)


def test_the_usual_spelling_is_the_most_frequent_one():
    names = np.array(SPELLINGS)[spellings_of(a_map(), np.array([5, 9, 0, 0, 0, 1, 7, 4, 4]))]
    assert names.tolist() == [
        "space", "usual", "several", "case", "accent", "usual", "single", "usual", "form"
    ]  # fmt: skip


def test_tokens_take_the_class_of_the_one_before_in_their_document():
    documents = Documents.from_lists([[0, 6, 1], [6, 0]], vocab_size=9)
    classes = by_last_spelling(documents, np.arange(9) % 7).classes
    assert classes.tolist() == [0, 0, 6, 6, 6]


def trained(tiny_config, monkeypatch, *, tokens=TEXTS) -> TrainedRun:
    compression = VocabCompression(a_map().table, tokens=tokens)
    generator = np.random.default_rng(0)
    text = Documents.from_lists([generator.integers(0, 9, 40) for _ in range(4)], vocab_size=9)
    config = RunConfig(model=tiny_config.replace(vocab_size=9), data=DataConfig(corpus="text"))
    config = replace(config, train=replace(config.train, seq_len=32))
    monkeypatch.setattr(
        compression_loss, "load_data", lambda _: RunData(text, text, None, compression)
    )
    return TrainedRun(
        model=EngramLM(config.model, compression),
        config=config,
        history=pd.DataFrame({"tokens": [100]}),
        validation=text,
        tokenizer=None,
        compression=compression,
        seconds=1.0,
    )


def test_classes_add_up_to_all_tokens(tiny_config, monkeypatch):
    frame = spelling_loss(trained(tiny_config, monkeypatch))
    assert set(frame["token_class"]) <= {"all", *SPELLINGS}
    totals = frame.assign(sum=frame["loss_nats"] * frame["eval_tokens"])
    whole = totals["token_class"] == "all"
    for column in ("sum", "eval_tokens"):
        parts = totals[~whole].groupby("document")[column].sum()
        whole_sums = totals[whole].set_index("document")[column]
        # losses are rounded to six digits
        assert parts.to_numpy() == pytest.approx(whole_sums.to_numpy(), rel=1e-5)


def test_a_run_without_texts_is_refused(tiny_config, monkeypatch):
    with pytest.raises(ValueError, match="needs a run on text.*corpus 'text'"):
        spelling_loss(trained(tiny_config, monkeypatch, tokens=None))


@pytest.mark.parametrize("scale", ["tiny", "workshop", "full"])
def test_arms_differ_in_the_map_alone(scale, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_SCALE", scale)
    points = ENGRAM_COMPRESSION_LOSS.points()
    ratio = points[0]["allocation_ratio"]
    canonical, raw = (map_run(arm, ratio, 0) for arm in ("canonical", "raw"))
    assert canonical.model.engram == replace(raw.model.engram, compress=True)
    assert (canonical.data, canonical.train) == (raw.data, raw.train)
    assert map_run("experts", 1.0, 0).model.engram is None
    assert scale != "workshop" or {point["seed"] for point in points} == {0, 1, 2}


def test_an_unknown_arm_is_refused():
    with pytest.raises(ValueError, match="canonical, raw or experts; got 'folded'"):
        map_run("folded", 0.5, 0)
