"""What hot keys answer, in the text that chose them and in another, against a plain count."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.keys import KeyCodec, KeyCounts, count_keys
from engram_lab.probes.hot_tier import coverage_frame, hot_tier_loss, random_keys
from engram_lab.tokens.documents import Documents
from engram_lab.training.data import load_data
from engram_lab.training.fit import TrainedRun

VOCAB = 20


def zipf_text(tokens: int, seed: int) -> Documents:
    drawn = np.random.default_rng(seed).zipf(1.6, size=4 * tokens)
    ids = (drawn[drawn < VOCAB][:tokens]).astype(np.int32)
    offsets = np.array([0, tokens // 2, tokens])
    return Documents(ids=ids, offsets=offsets, vocab_size=VOCAB, name="zipf")


def ngrams(text: Documents, order: int) -> Counter:
    """Plain Python: windows within a document, filled with id 0 before it."""
    found = Counter()
    for first, last in zip(text.offsets[:-1], text.offsets[1:], strict=True):
        ids = [0] * (order - 1) + text.ids[first:last].tolist()
        found.update(tuple(ids[i : i + order]) for i in range(last - first))
    return found


def counted(text: Documents) -> dict[int, KeyCounts]:
    config = EngramConfig(layer_ids=(1,), reset="segments")
    return count_keys(NgramHash(config, 1, canonical_vocab_size=VOCAB, fill_id=0), text)


def test_coverage_equals_a_plain_count():
    chooser, other = zipf_text(600, 0), zipf_text(400, 1)
    frame = coverage_frame(counted(chooser), (0, 1, 5, 20), heard=counted(other))
    assert len(frame) == 8
    for row in frame.itertuples():
        own, heard = ngrams(chooser, row.order), ngrams(other, row.order)
        assert row.keys == len(own)
        best = sorted(own.values(), reverse=True)[: row.hot_keys]
        assert row.coverage == pytest.approx(sum(best) / 600)
        floor = best[-1] if best else 0
        sure = sum(heard[key] for key, count in own.items() if best and count > floor)
        ties = sum(heard[key] for key, count in own.items() if best and count == floor)
        assert sure - 1e-9 <= row.heard_coverage * 400 <= sure + ties + 1e-9


def test_more_hot_keys_cover_more_and_all_of_them_everything():
    keys = counted(zipf_text(500, 0))
    frame = coverage_frame(keys, (1, 10, 10**6))
    assert (frame.groupby("order")["coverage"].diff().dropna() > 0).all()
    assert frame[frame["hot_keys"] == 10**6]["coverage"].tolist() == pytest.approx([1.0, 1.0])
    assert "heard_coverage" not in frame


def test_other_texts_must_be_packed_alike():
    keys = counted(zipf_text(100, 0))
    codec = KeyCodec(order=2, vocab_size=VOCAB + 1)
    foreign = {2: KeyCounts(codec=codec, words=(np.array([1]),), counts=np.array([1]))}
    with pytest.raises(ValueError, match="must be counted for the keys"):
        coverage_frame(keys, (1,), heard=foreign)
    with pytest.raises(ValueError, match="at least 0 keys"):
        coverage_frame(keys, (-1,))


def test_random_keys_are_chosen_once_each_and_by_seed():
    keys = counted(zipf_text(500, 0))[3]
    chosen = random_keys(keys, 20, seed=3)
    assert len(np.unique(chosen.words[0])) == 20 and set(chosen.words[0]) <= set(keys.words[0])
    again, other = random_keys(keys, 20, seed=3), random_keys(keys, 20, seed=4)
    assert np.array_equal(chosen.words[0], again.words[0])
    assert not np.array_equal(chosen.words[0], other.words[0])
    with pytest.raises(ValueError, match=r"number must lie in 1\.\.\d+, the distinct keys"):
        random_keys(keys, len(keys) + 1, seed=0)


def test_a_model_without_memory_is_refused():
    from engram_lab.experiments.catalog.engram_hot_tier import hot_tier_run
    from engram_lab.model.modeling import EngramLM

    run = hot_tier_run(400, "hash", 0).run
    data = load_data(run)
    bare = EngramLM(run.model.replace(engram=None), data.compression)
    trained = TrainedRun(
        model=bare, config=run, history=pd.DataFrame(), validation=data.validation,
        tokenizer=data.tokenizer, compression=data.compression, seconds=0.0,
    )  # fmt: skip
    with pytest.raises(ValueError, match="needs a model with memory"):
        hot_tier_loss(trained)
