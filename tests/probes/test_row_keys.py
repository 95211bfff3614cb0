"""The row index: what it says of a row is what reading the training text finds there."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from engram_lab.memory.hot import KeyDictionary, add_hot_tier
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.row_keys import row_index, row_index_of_run, sharing_frame
from engram_lab.probes.rows import RowUses
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.fit import fit

VOCAB = 40


class Letters:
    """Ids 4 on are letters."""

    def tokens(self, ids) -> list[str]:
        return [chr(93 + token_id) for token_id in ids]


@pytest.fixture
def documents() -> Documents:
    generator = np.random.default_rng(0)
    lists = [4 + generator.zipf(1.4, size=size) % 30 for size in (60, 1, 90)]
    return Documents.from_lists(lists, vocab_size=VOCAB)


@pytest.fixture
def model() -> EngramLM:
    table = [*range(30), *range(20, 30)]  # the last ten ids are spelled in two ways
    return EngramLM(tiny(VOCAB), VocabCompression.from_table(table)).eval()


def read_rows(model: EngramLM, documents: Documents) -> dict[tuple, Counter]:
    """Canonical n-grams, oldest first, by layer, order, head and row, position by position."""
    rows = defaultdict(Counter)
    memory_hash = model.memories[1].hash
    for number in range(len(documents)):
        ids = model.compression(torch.from_numpy(documents[number].astype(np.int64))[None])
        padded = [0, 0, *ids[0].tolist()]
        for position, addresses in enumerate(memory_hash.addresses(ids)[0].tolist()):
            for table, row in enumerate(addresses):
                order, head = table // 2 + 2, table % 2
                key = tuple(padded[position + 3 - order : position + 3])
                rows[1, order, head, row][key] += 1
    return rows


@pytest.mark.parametrize("hot", [False, True])
def test_every_row_is_read_by_the_keys_the_text_has(model, documents, hot):
    if hot:
        counts = row_index(model, documents).counts
        chosen = {n: KeyDictionary(one.select(one.most_frequent(9))) for n, one in counts.items()}
        add_hot_tier(model.memories.values(), chosen)
    index = row_index(model, documents, Letters())
    found = read_rows(model, documents)
    for (layer, order, head, row), keys in found.items():
        use = index.use(layer, order, head, row, top=100)
        assert use.times_trained == keys.total() and use.key_count == len(keys)
        named = {one.text: one.count for one in use.keys}
        assert named == {index.text(key): count for key, count in keys.items()}
        assert [one.count for one in use.keys] == sorted(named.values(), reverse=True)
    assert sum(row[3] >= 97 + 9 for row in found) or not hot  # primes differ, hot rows lie behind


def test_a_row_that_was_never_read_has_no_keys(model, documents):
    index = row_index(model, documents)
    read = {row[3] for row in read_rows(model, documents) if row[:3] == (1, 2, 0)}
    unread = min(set(range(index.rows(1, 2, 0))) - read)
    assert index.use(1, 2, 0, unread) == (0, 0, [])


def test_texts_are_the_most_frequent_spelling():
    documents = Documents.from_lists([[24, 34, 34, 34]], vocab_size=VOCAB)
    table = [*range(30), *range(20, 30)]
    model = EngramLM(tiny(VOCAB), VocabCompression.from_table(table))
    index = row_index(model, documents, Letters())
    assert index.spelling([24, 25]) == (34, 25)
    assert index.text([24]) == chr(93 + 34)


def test_the_frame_names_who_shares_the_rows_of_an_ngram(model, documents):
    index = row_index(model, documents, Letters(), passes=2.0)
    bigrams = index.counts[2]
    best = bigrams.select(bigrams.most_frequent(1))
    key = best.key(0)
    frame = sharing_frame(index, key, top=100)
    assert frame["head"].unique().tolist() == [0, 1] and (frame["order"] == 2).all()
    own = frame[frame["own"]]
    assert len(own) == 2 and own["count"].tolist() == best.counts.tolist() * 2
    assert (own["companion"] == own["key"]).all()
    assert frame.groupby("head")["share"].sum().tolist() == pytest.approx([1, 1])
    first = frame.drop_duplicates("head")
    assert (first["times_trained"] == 2 * frame.groupby("head")["count"].sum().array).all()
    strange = sharing_frame(index, [1, 1])
    assert not strange["own"].any()


def test_a_trained_run_brings_its_text():
    data = DataConfig(corpus="d1", train_tokens=2_000, eval_tokens=300)
    model = tiny(vocab_size(data))
    train = TrainConfig(batch_size=2, seq_len=32, steps=100)
    run = fit(RunConfig(model=model, data=data, train=train), progress=False)
    index = row_index_of_run(run)
    total = sum(index.use(1, 2, 0, row).times_trained for row in range(index.rows(1, 2, 0)))
    assert total == pytest.approx(run.train_tokens, rel=0.02)  # each row is rounded
    assert isinstance(index, RowUses)


def test_the_index_leaves_the_model_as_it_was(model, documents):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    row_index(model, documents)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_bad_input_is_refused_with_the_way_out(model, documents):
    index = row_index(model, documents)
    with pytest.raises(ValueError, match=r"layer must be one of \[1\]"):
        index.use(0, 2, 0, 5)
    with pytest.raises(ValueError, match=r"order must be one of \[2, 3\]; got 4"):
        index.use(1, 4, 0, 5)
    with pytest.raises(ValueError, match=r"head must lie in 0..1; got 2"):
        index.use(1, 2, 2, 5)
    with pytest.raises(ValueError, match=r"row must lie in 0..96"):
        index.use(1, 2, 0, 97)
    with pytest.raises(ValueError, match="this EngramLM has none"):
        row_index(EngramLM(tiny(VOCAB).replace(engram=None)), documents)
    with pytest.raises(ValueError, match="model's vocabulary"):
        row_index(model, Documents.from_lists([[1]], vocab_size=9))
    with pytest.raises(ValueError, match="at least one token"):
        row_index(model, Documents.from_lists([], vocab_size=VOCAB))
    with pytest.raises(ValueError, match=r"must lie in 0..29"):
        sharing_frame(index, [30, 30])
