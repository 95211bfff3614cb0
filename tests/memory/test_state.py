"""Decoding: any chunking equals one pass, per sequence and absolute position, and rewinds."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.engram import Engram
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.state import MemoryContext, MemoryState

TINY = EngramConfig(
    layer_ids=(1, 3), engram_vocab_size=(50, 70), n_head_per_ngram=2, n_embed_per_ngram=4
)
# the same sums in other orders, in float32
CLOSE = {"atol": 1e-6, "rtol": 1e-6}


def layers_of(config: EngramConfig = TINY) -> list[Engram]:
    layers = [
        Engram(
            config, layer, hidden_size=8, hc_mult=2, canonical_vocab_size=30, fill_id=0, eos_id=3
        )
        for layer in config.layer_ids
    ]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in (p for layer in layers for p in layer.parameters()):
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator) + 0.1)
    return layers


def batch_of(seq: int, *, batch: int = 2, seed: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(batch, seq, 2, 8, generator=generator)
    return hidden, torch.randint(0, 30, (batch, seq), generator=generator)


def step(layers, state, hidden, ids, context=None) -> torch.Tensor:
    """What a model does with one chunk: extend once, then every layer."""
    state.extend(ids, context)
    with torch.no_grad():
        return torch.stack([layer(hidden, ids, context=context, state=state) for layer in layers])


def full(layers, hidden, ids, context=None) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack([layer(hidden, ids, context=context) for layer in layers])


def cut(context: MemoryContext, first: int, end: int) -> MemoryContext:
    mask, documents = context.attention_mask, context.document_ids
    return MemoryContext(
        attention_mask=None if mask is None else mask[:, first:end],
        document_ids=None if documents is None else documents[:, first:end],
    )


@given(data=st.data(), reset=st.sampled_from(["none", "segments", "eos"]))
@settings(deadline=None, max_examples=20, derandomize=True)
def test_any_chunking_equals_one_pass(data, reset):
    config = replace(
        TINY,
        reset=reset,
        padding=data.draw(st.sampled_from(["dead", "hashed", "fill"])),
        conv_reset=data.draw(st.booleans()),
        conv=data.draw(st.booleans()),
        kernel_size=data.draw(st.integers(1, 4)),
    )
    seq = data.draw(st.integers(1, 24))
    cuts = sorted(data.draw(st.sets(st.integers(1, seq), max_size=6)) | {seq})
    flags = st.lists(st.booleans(), min_size=2 * seq, max_size=2 * seq)
    mask = torch.tensor(data.draw(flags)).reshape(2, seq)
    documents = torch.tensor(data.draw(flags)).reshape(2, seq).cumsum(1)
    context = MemoryContext(
        attention_mask=mask if data.draw(st.booleans()) else None,
        document_ids=documents if data.draw(st.booleans()) else None,
    )
    layers, (hidden, ids) = layers_of(config), batch_of(seq)
    state, chunks, found = MemoryState(config), zip([0, *cuts], cuts, strict=False), []
    addresses = []
    for first, end in chunks:
        part = cut(context, first, end)
        found.append(step(layers, state, hidden[:, first:end], ids[:, first:end], part))
        addresses.append(layers[0].hash.addresses(ids[:, first:end], state=state))
    assert torch.equal(torch.cat(addresses, 1), layers[0].hash.addresses(ids, context=context))
    torch.testing.assert_close(torch.cat(found, 2), full(layers, hidden, ids, context), **CLOSE)


@pytest.mark.parametrize("size", [1, 7, 32, 33])
def test_a_prefill_of_33_tokens_in_chunks(size):
    layers, (hidden, ids) = layers_of(), batch_of(33)
    state, found = MemoryState(TINY), []
    for first in range(0, 33, size):
        at = slice(first, first + size)
        found.append(step(layers, state, hidden[:, at], ids[:, at]))
    torch.testing.assert_close(torch.cat(found, 2), full(layers, hidden, ids), **CLOSE)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 16])
def test_a_rewind_equals_a_fresh_run(depth):
    layers, (hidden, ids) = layers_of(), batch_of(40)
    other, other_ids = batch_of(40, seed=9)
    state = MemoryState(TINY)
    step(layers, state, hidden[:, :20], ids[:, :20])
    step(layers, state, other[:, :depth], other_ids[:, :depth])  # a draft, then rejected
    state.crop(20)
    found = step(layers, state, hidden[:, 20:], ids[:, 20:])
    torch.testing.assert_close(found, full(layers, hidden, ids)[:, :, 20:], **CLOSE)


def test_rewinds_add_up_until_the_tail_ends():
    layers, (hidden, ids) = layers_of(), batch_of(30)
    state = MemoryState(TINY, rewind=4)
    step(layers, state, hidden, ids)
    state.crop(28)
    state.crop(-2)
    with pytest.raises(ValueError, match="at most rewind=4 .*got 1"):
        state.crop(-1)
    found = step(layers, state, hidden[:, 26:], ids[:, 26:])
    torch.testing.assert_close(found, full(layers, hidden, ids)[:, :, 26:], **CLOSE)


def test_a_memory_without_convolution_rewinds_anywhere():
    config = replace(TINY, conv=False)
    layers, (hidden, ids) = layers_of(config), batch_of(30)
    state = MemoryState(config, rewind=0)
    step(layers, state, hidden, ids)
    state.crop(3)
    found = step(layers, state, hidden[:, 3:], ids[:, 3:])
    torch.testing.assert_close(found, full(layers, hidden, ids)[:, :, 3:], **CLOSE)


def test_a_crop_to_nothing_starts_afresh():
    layers, (hidden, ids) = layers_of(), batch_of(40)
    state = MemoryState(TINY, rewind=2)
    step(layers, state, hidden, ids)
    state.crop(0)
    assert state.length.tolist() == [0, 0]
    found = step(layers, state, hidden, ids)
    torch.testing.assert_close(found, full(layers, hidden, ids), **CLOSE)


def test_a_refused_rewind_changes_nothing():
    layers, (hidden, ids) = layers_of(), batch_of(30)
    state = MemoryState(TINY, rewind=4)
    step(layers, state, hidden[:, :29], ids[:, :29])
    with pytest.raises(ValueError, match="fresh state"):
        state.crop(10)
    found = step(layers, state, hidden[:, 29:], ids[:, 29:])
    torch.testing.assert_close(found, full(layers, hidden, ids)[:, :, 29:], **CLOSE)


def test_sequences_may_stand_at_different_lengths():
    layers, (hidden, ids) = layers_of(), batch_of(24)
    state = MemoryState(TINY)
    step(layers, state, hidden[:, :20], ids[:, :20])
    state.crop(torch.tensor([17, 12]))
    assert state.length.tolist() == [17, 12]
    rest = [
        (hidden[b : b + 1, n : n + 4], ids[b : b + 1, n : n + 4]) for b, n in ((0, 17), (1, 12))
    ]
    found = step(layers, state, *(torch.cat(parts) for parts in zip(*rest, strict=True)))
    expected = full(layers, hidden, ids)
    torch.testing.assert_close(found[:, 0], expected[:, 0, 17:21], **CLOSE)
    torch.testing.assert_close(found[:, 1], expected[:, 1, 12:16], **CLOSE)


def test_two_decodings_on_one_model_do_not_meet():
    layers = layers_of()
    runs = [batch_of(12, seed=seed) for seed in (3, 4)]
    states, found = [MemoryState(TINY) for _ in runs], [[], []]
    for position in range(12):
        for run, (hidden, ids) in enumerate(runs):
            at = slice(position, position + 1)
            found[run].append(step(layers, states[run], hidden[:, at], ids[:, at]))
    for parts, (hidden, ids) in zip(found, runs, strict=True):
        torch.testing.assert_close(torch.cat(parts, 2), full(layers, hidden, ids), **CLOSE)


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda state: state.reorder(torch.tensor([1, 1, 0])), [1, 1, 0]),
        (lambda state: state.select(torch.tensor([2])), [2]),
        (lambda state: state.repeat(2), [0, 0, 1, 1, 2, 2]),
    ],
    ids=["reorder", "select", "repeat"],
)
def test_rows_move_with_their_histories(change, rows):
    layers, (hidden, ids) = layers_of(), batch_of(16, batch=3)
    state = MemoryState(TINY)
    step(layers, state, hidden[:, :11], ids[:, :11])
    change(state)
    found = step(layers, state, hidden[rows, 11:], ids[rows, 11:])
    torch.testing.assert_close(found, full(layers, hidden, ids)[:, rows, 11:], **CLOSE)


def test_a_copy_goes_its_own_way():
    layers, (hidden, ids) = layers_of(), batch_of(16)
    other, other_ids = batch_of(16, seed=8)
    state = MemoryState(TINY)
    step(layers, state, hidden[:, :11], ids[:, :11])
    branch = state.copy()
    step(layers, branch, other[:, 11:], other_ids[:, 11:])
    found = step(layers, state, hidden[:, 11:], ids[:, 11:])
    torch.testing.assert_close(found, full(layers, hidden, ids)[:, :, 11:], **CLOSE)
    assert branch.length.tolist() == state.length.tolist() == [16, 16]


def test_changes_of_an_empty_state_are_harmless():
    state = MemoryState(TINY)
    for change in (lambda: state.crop(0), lambda: state.repeat(2), lambda: state.copy()):
        change()
    assert state.length.tolist() == [] and state.canonical_ids.shape == (0, 0)


def test_ids_are_kept_by_absolute_position_and_dead_ones_as_minus_one():
    state = MemoryState(TINY)
    state.extend(
        torch.tensor([[5, 6], [7, 8]]),
        MemoryContext(attention_mask=torch.tensor([[0, 1], [1, 1]])),
    )
    state.crop(torch.tensor([2, 1]))
    assert state.canonical_ids.tolist() == [[-1, 6], [7, -1]]
    state.extend(torch.tensor([[1], [2]]))
    assert state.canonical_ids.tolist() == [[-1, 6, 1], [7, 2, -1]]


def test_cells_never_filled_are_never_read():
    layers, (hidden, ids) = layers_of(), batch_of(6)
    state = MemoryState(TINY)
    step(layers, state, hidden[:, :4], ids[:, :4])
    state._cells["ids"][:, 4:] = 2**62
    mask = torch.tensor([[1, 1], [0, 0]])  # an idle sequence, its ids arbitrary
    poisoned = torch.where(mask.bool(), ids[:, 4:], -(2**62))
    context = MemoryContext(attention_mask=mask)
    found = step(layers, state, hidden[:, 4:], poisoned, context)
    torch.testing.assert_close(found[:, 0], full(layers, hidden, ids)[:, 0, 4:], **CLOSE)
    assert found[:, 1].abs().max() == 0


def test_documents_go_on_where_a_chunk_names_none():
    ids, documents = batch_of(6)[1], torch.tensor([[0, 0, 1, 1, 1, 1]] * 2)
    ngram_hash = NgramHash(TINY, 1, canonical_vocab_size=30, fill_id=0)
    state = MemoryState(TINY)
    state.extend(ids[:, :4], MemoryContext(document_ids=documents[:, :4]))
    state.extend(ids[:, 4:])
    expected = ngram_hash.addresses(ids, context=MemoryContext(document_ids=documents))
    assert torch.equal(ngram_hash.addresses(ids[:, 4:], state=state), expected[:, 4:])


def test_a_state_grows_past_its_first_room():
    ngram_hash = NgramHash(TINY, 1, canonical_vocab_size=30, fill_id=0)
    ids, state = batch_of(300)[1], MemoryState(TINY)
    found = []
    for first in range(0, 300, 30):
        state.extend(ids[:, first : first + 30])
        found.append(ngram_hash.addresses(ids[:, first : first + 30], state=state))
    assert torch.equal(torch.cat(found, 1), ngram_hash.addresses(ids))


def test_a_layer_that_is_read_before_the_state_is_extended_says_so():
    layers, (hidden, ids) = layers_of(), batch_of(4)
    with pytest.raises(ValueError, match=r"must be extended by the chunk .*\(4 positions\)"):
        layers[0](hidden, ids, state=MemoryState(TINY))


def test_a_layer_that_missed_a_chunk_says_so():
    layers, (hidden, ids) = layers_of(), batch_of(4)
    state = MemoryState(TINY)
    state.extend(ids)
    state.extend(ids)
    with pytest.raises(ValueError, match="Pass every chunk through every layer"):
        layers[0](hidden, ids, state=state)


def test_another_number_of_sequences_is_refused():
    state = MemoryState(TINY)
    state.extend(batch_of(3)[1])
    with pytest.raises(ValueError, match=r"holds \(2\); got 3.*reorder, repeat or select"):
        state.extend(batch_of(3, batch=3)[1])


def test_a_negative_rewind_is_refused():
    with pytest.raises(ValueError, match="rewind must be at least 0; got -1"):
        MemoryState(TINY, rewind=-1)


def test_nothing_is_kept_on_the_module():
    layers, (hidden, ids) = layers_of(), batch_of(5)
    state = MemoryState(TINY)
    step(layers, state, hidden, ids)
    keys = set(vars(layers[0])) | set(vars(layers[0].hash))
    assert not any("state" in key and not key.startswith("_") for key in keys)
    assert state._tails.keys() == {1, 3}
    assert state._tails[1].slots.shape == (2, 9 + 16, 2, 8)  # (w - 1) * N + r_max entries


def test_the_state_stays_on_the_cpu_whatever_the_default_device():
    ids = batch_of(5)[1]
    ngram_hash = NgramHash(TINY, 1, canonical_vocab_size=30, fill_id=0)
    expected = ngram_hash.addresses(ids)
    with torch.device("meta"):
        state = MemoryState(TINY)
        state.extend(ids)
        assert torch.equal(ngram_hash.addresses(ids, state=state), expected)
