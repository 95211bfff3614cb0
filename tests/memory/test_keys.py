"""Keys: packed without loss, counted as a plain dictionary counts them, chunk by chunk."""

import numpy as np
import pytest
import torch

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.history import MemoryContext
from engram_lab.memory.keys import KeyCodec, KeyCounter, count_keys
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from tests.twins import collisions as twin

FILL = 3


def ngram_hash(vocab: int = 50, **changes) -> NgramHash:
    config = EngramConfig(layer_ids=(1,), max_ngram_size=4, engram_vocab_size=(97,) * 3, **changes)
    return NgramHash(config, 1, canonical_vocab_size=vocab, fill_id=FILL)


def as_counter(counts) -> dict:
    columns = counts.codec.tokens(counts.words)
    keys = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(keys, counts.counts.tolist(), strict=True))


@pytest.mark.parametrize(("order", "vocab", "words"), [(2, 99_092, 1), (4, 99_092, 2), (5, 2, 1)])
def test_packing_is_undone_by_unpacking(order, vocab, words):
    codec = KeyCodec(order=order, vocab_size=vocab)
    window = [torch.randint(0, vocab, (3, 7)) for _ in range(order)]
    window[0][0, 0] = window[-1][0, 0] = vocab - 1
    packed = codec.pack(window)
    assert len(packed) == codec.word_count == words
    assert all(bool((word >= 0).all()) for word in packed)
    for column, ids in zip(codec.tokens(packed), window, strict=True):
        assert torch.equal(column, ids)


def test_the_largest_key_does_not_overflow():
    for order in range(1, 9):
        codec = KeyCodec(order=order, vocab_size=99_092)
        window = [np.full(1, 99_091) for _ in range(order)]
        with np.errstate(all="raise"):
            assert [c.item() for c in codec.tokens(codec.pack(window))] == [99_091] * order


def test_counts_agree_with_a_dictionary():
    texts = torch.randint(0, 9, (3, 40))
    counter = KeyCounter(ngram_hash())
    counter.add(texts)
    for order, counts in counter.counts().items():
        assert as_counter(counts) == dict(twin.keys(texts.tolist(), order, fill=FILL))
        assert counts.total == texts.numel()


def test_counts_do_not_depend_on_the_chunks():
    texts = torch.randint(0, 9, (12, 20))
    whole, parts = KeyCounter(ngram_hash()), KeyCounter(ngram_hash())
    whole.add(texts)
    for first, last in ((0, 1), (1, 2), (2, 9), (9, 12)):
        parts.add(texts[first:last])
        parts.counts()
    for order, counts in whole.counts().items():
        assert as_counter(counts) == as_counter(parts.counts()[order])


def test_dead_positions_are_not_counted_and_stop_the_look_back():
    ids = torch.tensor([[5, 6, 7, 8]])
    counter = KeyCounter(ngram_hash())
    counter.add(ids, context=MemoryContext(attention_mask=torch.tensor([[1, 0, 1, 1]])))
    counts = counter.counts()
    assert as_counter(counts[2]) == {(5, FILL): 1, (7, FILL): 1, (8, 7): 1}


def test_keys_of_documents_stop_at_their_ends_and_are_canonical():
    documents = Documents.from_lists([[4, 5, 4, 5], [6, 7]], vocab_size=8)
    compression = VocabCompression.from_table([0, 1, 2, 3, 4, 4, 5, 6])
    counts = count_keys(ngram_hash(7), documents, compression)
    assert as_counter(counts[2]) == {(4, 3): 1, (4, 4): 3, (5, 3): 1, (6, 5): 1}


def test_documents_are_read_in_parts(monkeypatch):
    generator = np.random.default_rng(0)
    lists = [generator.integers(0, 9, size) for size in (5, 30, 1, 1, 12)]
    documents = Documents.from_lists(lists, vocab_size=9)
    whole = count_keys(ngram_hash(9), documents)
    monkeypatch.setattr("engram_lab.memory.keys.READ", 13)  # less than the longest document
    parts = count_keys(ngram_hash(9), documents)
    assert all(as_counter(whole[order]) == as_counter(parts[order]) for order in whole)


def test_the_most_frequent_keys_come_first():
    counter = KeyCounter(ngram_hash())
    counter.add(torch.tensor([[5, 5, 5, 5, 6, 5]]))
    bigrams = counter.counts()[2]
    best = bigrams.select(bigrams.most_frequent(1))
    assert as_counter(best) == {(5, 5): 3} and best.key(0) == (5, 5)
    assert {bigrams.key(place) for place in range(4)} == {(5, 5), (5, 6), (6, 5), (FILL, 5)}
    with pytest.raises(ValueError, match=r"keys must lie in 0..4, the distinct 2-grams"):
        bigrams.most_frequent(5)


def test_ids_outside_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"must lie in 0..49"):
        KeyCounter(ngram_hash()).add(torch.tensor([[50]]))
    with pytest.raises(ValueError, match="at least one token"):
        count_keys(ngram_hash(), Documents.from_lists([], vocab_size=8))
