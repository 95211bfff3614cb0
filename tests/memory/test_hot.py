"""The hot tier: every chosen key finds its own row, every other key falls through to hashing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.engram import Engram
from engram_lab.memory.history import MemoryContext
from engram_lab.memory.hot import HotHash, KeyDictionary, KeyIndex, add_hot_tier, share_rows
from engram_lab.memory.keys import KeyCodec, KeyCounter, KeyCounts
from engram_lab.memory.perfect_hash import MinimalPerfectHash
from engram_lab.memory.state import MemoryState
from engram_lab.model.cache import EngramCache

V41 = 99_092
KINDS = {
    "dictionary": KeyDictionary,
    "perfect, whole keys": MinimalPerfectHash,
    "perfect, 32 bits": lambda keys: MinimalPerfectHash(keys, check_bits=32),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def chosen(keys: set[tuple[int, ...]], vocab: int = V41) -> KeyCounts:
    """Keys of equal length as `memory.keys` keeps them."""
    order = len(next(iter(keys)))
    codec = KeyCodec(order=order, vocab_size=vocab)
    columns = [np.array(column, dtype=np.int64) for column in zip(*sorted(keys), strict=True)]
    words = codec.pack(columns)
    place = np.lexsort(words[::-1])
    words = tuple(word[place] for word in words)
    return KeyCounts(codec=codec, words=words, counts=np.ones(len(keys), np.int64))


def random_keys(number: int, order: int, seed: int = 0) -> set[tuple[int, ...]]:
    drawn = np.random.default_rng(seed).integers(0, V41, size=(number, order))
    return set(map(tuple, drawn.tolist()))


def find(index: KeyIndex, keys: list[tuple[int, ...]]) -> list[int]:
    window = [torch.tensor(column) for column in zip(*keys, strict=True)]
    return index(window).tolist()


@each_kind
@pytest.mark.parametrize("order", [2, 3, 4])
def test_chosen_keys_have_all_numbers_once_and_others_none(kind, order):
    keys = random_keys(500, order)
    index = KINDS[kind](chosen(keys))
    assert sorted(find(index, list(keys))) == list(range(len(keys)))
    foreign = list(random_keys(2_000, order, seed=1) - keys)
    near = [(key[0], *key[1:-1], (key[-1] + 1) % V41) for key in keys]
    near = [key for key in near if key not in keys]
    assert set(find(index, foreign + near)) == {-1}  # at 32 bits wrong once in a million such runs


@each_kind
@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1))
@settings(deadline=None, max_examples=25, derandomize=True)
def test_any_set_of_keys_is_indexed_without_a_mistake(kind, keys):
    index = KINDS[kind](chosen(keys, vocab=7))
    numbers = find(index, [(a, b) for a in range(7) for b in range(7)])
    expected = [(a, b) in keys for a in range(7) for b in range(7)]
    assert [number >= 0 for number in numbers] == expected
    assert sorted(number for number in numbers if number >= 0) == list(range(len(keys)))


def test_the_check_lets_foreign_keys_through_as_often_as_it_says():
    keys = random_keys(2_000, 3)
    index = MinimalPerfectHash(chosen(keys), check_bits=8)
    foreign = list(random_keys(20_000, 3, seed=1) - keys)
    wrong = np.mean([number >= 0 for number in find(index, foreign)])
    assert wrong == pytest.approx(index.false_hits, abs=4 * (index.false_hits / 20_000) ** 0.5)


def test_the_perfect_hash_is_smaller_than_the_keys():
    keys = chosen(random_keys(20_000, 2))
    assert KeyDictionary(keys).bytes_per_key == 8
    assert MinimalPerfectHash(keys, check_bits=8).bytes_per_key < 1.7
    assert MinimalPerfectHash(keys, check_bits=32).bytes_per_key < 4.7
    assert KeyDictionary(keys).false_hits == MinimalPerfectHash(keys).false_hits == 0


# the module


def memory_and_counts(layer: int = 1, vocab: int = 40) -> tuple[Engram, dict[int, KeyCounts]]:
    config = EngramConfig(
        layer_ids=(1, 2), engram_vocab_size=(31, 29), n_head_per_ngram=2, n_embed_per_ngram=8
    )
    memory = Engram(config, layer, hidden_size=16, canonical_vocab_size=vocab, fill_id=0)
    counter = KeyCounter(memory.hash)
    counter.add(torch.randint(0, vocab, (4, 50)))
    return memory, counter.counts()


def indices(counts, keys: int = 10, kind=KeyDictionary) -> dict[int, KeyIndex]:
    return {order: kind(one.select(one.most_frequent(keys))) for order, one in counts.items()}


@each_kind
def test_hot_keys_get_addresses_behind_the_primes_and_others_keep_theirs(kind):
    memory, counts = memory_and_counts(vocab=6)
    cold, by_order = memory.hash, indices(counts, kind=KINDS[kind])
    hot = HotHash(cold, by_order)
    ids = torch.randint(0, 6, (3, 30))
    before, after = cold.addresses(ids), hot.addresses(ids)
    window = [torch.nn.functional.pad(ids, (lag, 0))[:, : ids.shape[1]] for lag in range(3)]
    for order in (2, 3):
        number = by_order[order](window[:order])
        assert (number >= 0).any() and (number < 0).any()
        for head in (0, 1):
            table = (order - 2) * 2 + head
            expected = torch.where(
                number >= 0, cold.primes[order - 2, head] + number, before[..., table]
            )
            assert torch.equal(after[..., table], expected)


def test_two_hot_keys_never_share_a_row():
    memory, counts = memory_and_counts()
    add_hot_tier([memory], indices(counts))
    bigrams = counts[2]
    best = bigrams.select(bigrams.most_frequent(10))
    newest, before = (torch.from_numpy(c) for c in best.codec.tokens(best.words))
    rows = memory.table.row_ids(memory.hash.addresses(torch.stack([before, newest], 1)))
    last = rows[:, 1, :2]  # both heads of order 2
    assert last.unique().numel() == 20
    assert int(rows.max()) < memory.table.weight.shape[0]


def test_a_hot_tier_and_a_smaller_hash_have_the_rows_of_a_larger_hash():
    memory, counts = memory_and_counts()
    primes = memory.hash.primes.sum()
    add_hot_tier([memory], {2: indices(counts)[2]})
    assert memory.table.weight.shape == (int(primes) + 2 * 10, 4)


def test_decoding_token_by_token_reads_the_rows_of_the_full_pass():
    memory, counts = memory_and_counts()
    add_hot_tier([memory], indices(counts))
    ids = torch.randint(0, 40, (2, 12))
    whole, state = memory.hash.addresses(ids), MemoryState(memory.config)
    for position in range(12):
        chunk = ids[:, position : position + 1]
        state.extend(chunk)
        step = memory.hash.addresses(chunk, state=state)
        assert torch.equal(step, whole[:, position : position + 1])


def test_documents_end_the_windows_of_hot_keys_too():
    memory, _ = memory_and_counts()
    hot = HotHash(memory.hash, {2: KeyDictionary(chosen({(7, 5)}, vocab=40))})
    ids = torch.tensor([[5, 7, 5, 7]])
    context = MemoryContext(document_ids=torch.tensor([[0, 0, 0, 1]]))
    address = hot.addresses(ids, context=context)[0, :, 0]
    assert (address >= hot.primes[0, 0]).tolist() == [False, True, False, False]


def test_only_rows_that_were_read_get_a_gradient():
    memory, counts = memory_and_counts()
    add_hot_tier([memory], indices(counts))
    ids = torch.randint(0, 40, (1, 6))
    memory(torch.randn(1, 6, 1, 16), ids).sum().backward()
    grad = memory.table.weight.grad.coalesce()
    read = memory.table.row_ids(memory.hash.addresses(ids)).unique()
    assert torch.equal(grad.indices()[0], read)


def test_memories_may_share_one_table():
    memories = [memory_and_counts(layer)[0] for layer in (1, 2)]
    share_rows(memories)
    assert memories[0].table is memories[1].table and memories[0].hash is memories[1].hash
    assert memories[0].projection is not memories[1].projection


def test_a_model_with_a_hot_tier_decodes_as_it_reads(tiny_model):
    (memory,) = tiny_model.memories.values()
    counter = KeyCounter(memory.hash)
    ids = torch.randint(4, 30, (2, 16))
    counter.add(ids)
    add_hot_tier([memory], indices(counter.counts(), keys=8))
    cache = EngramCache(tiny_model.config)
    with torch.no_grad():
        whole = tiny_model(ids).logits
        steps = [tiny_model(ids[:, i : i + 1], cache=cache).logits for i in range(16)]
    assert torch.allclose(torch.cat(steps, 1), whole, atol=1e-5)


def test_bad_input_is_refused_with_the_way_out():
    memory, counts = memory_and_counts()
    with pytest.raises(ValueError, match="at least one key"):
        KeyDictionary(counts[2].select(np.zeros(0, np.int64)))
    with pytest.raises(ValueError, match="check_bits must be None, 8, 16 or 32; got 7"):
        MinimalPerfectHash(counts[2], check_bits=7)
    with pytest.raises(ValueError, match=r"order 2\.\.3 .*got 4"):
        HotHash(memory.hash, {4: KeyDictionary(counts[2])})
    with pytest.raises(ValueError, match="Count the keys with this memory's own hash"):
        HotHash(memory.hash, {2: KeyDictionary(counts[3])})
    twice = KeyCounts(codec=counts[2].codec, words=(np.array([5, 5]),), counts=np.ones(2, np.int64))
    with pytest.raises(ValueError, match="keys must be distinct"):
        MinimalPerfectHash(twice)
