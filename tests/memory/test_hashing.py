"""Addresses: golden files, a plain-Python twin, causality, refusals, constants in checkpoints."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram_lab.memory.config import EngramConfig, qwen, v41
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.layout import multipliers, table_layout, table_offsets
from engram_lab.memory.state import MemoryContext, MemoryState
from tests.memory import golden
from tests.twins import hashing as twin

PRIMES, MULTIPLIERS, HASHES = (golden.load(n) for n in ("primes", "multipliers", "hashes"))
TINY = EngramConfig(
    layer_ids=(1, 4), engram_vocab_size=(50, 70), n_head_per_ngram=2, n_embed_per_ngram=4
)


def tiny_hash(vocab: int = 30, fill_id: int = 0, eos_id: int | None = None, **changes) -> NgramHash:
    config = replace(TINY, **changes)
    return NgramHash(config, 1, canonical_vocab_size=vocab, fill_id=fill_id, eos_id=eos_id)


def ids_of(*shape: int, vocab: int = 30, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, vocab, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("case", PRIMES["cases"], ids=lambda case: case["name"])
def test_table_lengths_are_the_golden_primes(case):
    layout = table_layout(golden.config(case))
    assert [list(map(list, layer)) for layer in layout.values()] == case["primes"]
    assert [sum(map(sum, layer)) for layer in layout.values()] == case["rows_per_layer"]


@pytest.mark.parametrize("budgets", [(50, 70), (70, 50), (1, 1), (97, 89)])
def test_table_lengths_equal_the_twin(budgets):
    config = replace(TINY, engram_vocab_size=budgets)
    layout = [list(map(list, layer)) for layer in table_layout(config).values()]
    assert layout == twin.prime_layout(2, list(budgets), 2)


def test_layout_depends_on_the_order_of_layers_not_on_their_numbers():
    def lengths(*layers: int) -> list:
        return list(table_layout(replace(TINY, layer_ids=layers)).values())

    assert lengths(1, 4) == lengths(0, 7)
    swapped = table_layout(replace(TINY, layer_ids=(4, 1)))
    assert swapped[4] == table_layout(TINY)[1]


@pytest.mark.parametrize("case", MULTIPLIERS["cases"], ids=str)
def test_multipliers_are_golden_odd_and_cannot_overflow(case):
    vocab, layer = case["compressed_vocab_size"], case["layer_id"]
    config = EngramConfig(
        layer_ids=(layer,),
        seed=case["seed"],
        max_ngram_size=case["max_ngram_size"],
        engram_vocab_size=(50,) * (case["max_ngram_size"] - 1),
    )
    found = multipliers(config, layer, canonical_vocab_size=vocab)
    assert list(found) == case["multipliers"]
    assert all(factor % 2 == 1 and (vocab - 1) * factor < 2**63 for factor in found)


@pytest.mark.parametrize("layer", [1, 14])
def test_multipliers_of_the_released_model(layer):
    expected = MULTIPLIERS["v41_flash"][str(layer)]
    assert list(multipliers(v41(), layer, canonical_vocab_size=99_092)) == expected


def test_shorter_windows_take_the_first_multipliers():
    four = replace(TINY, max_ngram_size=4, engram_vocab_size=(50, 50, 50))
    longer = multipliers(four, 1, canonical_vocab_size=77)
    assert multipliers(TINY, 1, canonical_vocab_size=77) == longer[:3]


def test_splitmix_multipliers_equal_twin_and_release():
    released = golden.load("qwen_ple")["released_config"]
    found = multipliers(qwen(), 1, canonical_vocab_size=released["vocab_size"])
    assert list(found) == released["multipliers"]
    assert list(found) == twin.splitmix_multipliers(released["vocab_size"], 1234, 0, 3)


@pytest.mark.parametrize("case", HASHES["demo_cases"], ids=lambda case: case["name"])
def test_addresses_of_the_demo(case):
    token_map = case["token_map"]
    ids = torch.tensor(case["input_ids"])
    if "identity" not in token_map:
        ids = torch.tensor(token_map)[ids]
    config = golden.config(case["config"])
    for layer in config.layer_ids:
        ngram_hash = NgramHash(
            config,
            layer,
            canonical_vocab_size=case["compressed_vocab_size"],
            fill_id=case["compressed_pad_id"],
        )
        if case["name"] == "negative_ids_pass_through":  # the demo lets them in; we do not
            with pytest.raises(ValueError, match="canonical ids must lie in 0"):
                ngram_hash.addresses(ids)
        else:
            assert ngram_hash.addresses(ids).tolist() == case["hash_ids"][str(layer)]


@pytest.mark.parametrize("case", HASHES["v41_cases"], ids=lambda case: case["name"])
def test_row_ids_of_the_released_model(case):
    config = replace(
        v41(),
        layer_ids=tuple(case["layer_ids"]),
        engram_vocab_size=(case["vocab_size"],) * 3,
        n_head_per_ngram=case["n_heads"],
    )
    ids = torch.tensor(case.get("compressed_ids", case.get("input_ids")))
    mask = torch.tensor(case["token_mask"]) if "token_mask" in case else None
    for at, layer in enumerate(config.layer_ids):
        ngram_hash = NgramHash(
            config, layer, canonical_vocab_size=case["compressed_vocab_size"], fill_id=2
        )
        offsets = torch.tensor(table_offsets(table_layout(config)[layer]))
        assert offsets.tolist() == case["offsets"][at]
        expected = torch.tensor(case["hash_ids_with_offsets"])[:, :, at]
        assert torch.equal(ngram_hash.addresses(ids) + offsets, expected)
        if mask is not None:
            found = ngram_hash.addresses(ids, context=MemoryContext(attention_mask=mask)) + offsets
            assert torch.equal(found, torch.tensor(case["hash_ids_with_mask"])[:, :, at])


@given(data=st.data(), vocab=st.integers(5, 2**40), orders=st.integers(2, 4))
@settings(deadline=None, max_examples=40, derandomize=True)
def test_addresses_equal_the_twin_with_dead_tokens_and_documents(data, vocab, orders):
    config = replace(TINY, max_ngram_size=orders, engram_vocab_size=(50,) * (orders - 1))
    ngram_hash = NgramHash(config, 4, canonical_vocab_size=vocab, fill_id=3)
    seq = data.draw(st.integers(1, 8))
    ids = data.draw(st.lists(st.integers(0, vocab - 1), min_size=seq, max_size=seq))
    dead = data.draw(st.lists(st.booleans(), min_size=seq, max_size=seq))
    documents = data.draw(st.lists(st.integers(0, 2), min_size=seq, max_size=seq))
    context = MemoryContext(
        attention_mask=~torch.tensor([dead]), document_ids=torch.tensor([documents])
    )
    expected = twin.addresses(
        ids,
        twin.pcg_multipliers(vocab, 0, 4, orders),
        twin.prime_layout(2, [50] * (orders - 1), 2)[1],
        fill=3,
        dead=dead,
        documents=documents,
    )
    assert ngram_hash.addresses(torch.tensor([ids]), context=context)[0].tolist() == expected


def test_windows_start_anew_after_every_eos():
    ngram_hash = tiny_hash(reset="eos", fill="eos", eos_id=4, padding="hashed")
    ids = [5, 6, 4, 7, 4, 4, 8, 9, 9]
    expected = twin.addresses(
        ids,
        twin.pcg_multipliers(30, 0, 1, 3),
        twin.prime_layout(2, [50, 70], 2)[0],
        fill=4,
        eos=4,
    )
    assert ngram_hash.addresses(torch.tensor([ids]))[0].tolist() == expected


def test_a_later_token_changes_no_earlier_address():
    ids = ids_of(2, 9)
    changed = ids.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 30
    before, after = (tiny_hash().addresses(x) for x in (ids, changed))
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6:], after[:, 6:])


def test_one_document_changes_nothing_in_the_next():
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    ids, context = ids_of(1, 8), MemoryContext(document_ids=documents)
    changed = ids.clone()
    changed[:, 3] = (changed[:, 3] + 1) % 30
    before, after = (tiny_hash().addresses(x, context=context) for x in (ids, changed))
    assert torch.equal(before[:, 4:], after[:, 4:])
    alone = tiny_hash().addresses(ids[:, 4:])
    assert torch.equal(before[:, 4:], alone)


def test_two_documents_of_one_number_apart_stay_apart():
    documents = torch.tensor([[0, 1, 0]])
    found = tiny_hash().addresses(ids_of(1, 3), context=MemoryContext(document_ids=documents))
    assert torch.equal(found[:, 2], tiny_hash().addresses(ids_of(1, 3)[:, 2:])[:, 0])


def test_a_dead_token_blocks_everything_before_it():
    ids = torch.tensor([[5, 6, 29, 7, 8]])
    mask = torch.tensor([[1, 1, 0, 1, 1]])
    found = tiny_hash().addresses(ids, context=MemoryContext(attention_mask=mask))
    assert torch.equal(found[:, 3:], tiny_hash().addresses(ids[:, 3:]))


@pytest.mark.parametrize("padding", ["dead", "fill"])
def test_what_stands_under_the_mask_does_not_matter(padding):
    ids, mask = ids_of(2, 6), torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    context, ngram_hash = MemoryContext(attention_mask=mask), tiny_hash(padding=padding)
    poisoned = torch.where(mask.bool(), ids, 2**62)
    assert torch.equal(
        ngram_hash.addresses(ids, context=context), ngram_hash.addresses(poisoned, context=context)
    )


def test_left_right_and_no_padding_agree():
    ids = ids_of(1, 4)
    alone = tiny_hash().addresses(ids)
    pad = torch.zeros(1, 3, dtype=torch.int64)
    ones, zeros = torch.ones_like(ids), torch.zeros_like(pad)
    left = tiny_hash().addresses(
        torch.cat([pad, ids], 1), context=MemoryContext(attention_mask=torch.cat([zeros, ones], 1))
    )
    right = tiny_hash().addresses(
        torch.cat([ids, pad], 1), context=MemoryContext(attention_mask=torch.cat([ones, zeros], 1))
    )
    assert torch.equal(left[:, 3:], alone)
    assert torch.equal(right[:, :4], alone)


def test_hashed_padding_ignores_the_mask():
    ids, mask = ids_of(1, 5), torch.tensor([[0, 1, 1, 0, 1]])
    ngram_hash = tiny_hash(padding="hashed")
    masked = ngram_hash.addresses(ids, context=MemoryContext(attention_mask=mask))
    assert torch.equal(masked, ngram_hash.addresses(ids))


def test_the_fill_is_the_pad_id_of_the_tokenizer_at_hand():
    expected = twin.addresses(
        [9], twin.pcg_multipliers(30, 0, 1, 3), twin.prime_layout(2, [50, 70], 2)[0], fill=17
    )
    assert tiny_hash(fill_id=17).addresses(torch.tensor([[9]]))[0].tolist() == expected
    assert tiny_hash(fill_id=17).special_ids.tolist() == [17, -1]


@pytest.mark.parametrize("wrong", [-1, -100, 30, 2**62])
def test_ids_outside_the_vocabulary_are_refused(wrong):
    ids = torch.tensor([[1, wrong, 2]])
    with pytest.raises(ValueError, match=rf"0\.\.29 .*got {wrong}"):
        tiny_hash().addresses(ids)


def test_a_masked_id_outside_is_refused_where_padding_is_hashed():
    context = MemoryContext(attention_mask=torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match="got -1"):
        tiny_hash(padding="hashed").addresses(torch.tensor([[-1, 1]]), context=context)


def test_a_mask_of_another_shape_is_refused():
    context = MemoryContext(attention_mask=torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"attention_mask .*\(1, 4\).*got \(1, 3\)"):
        tiny_hash().addresses(ids_of(1, 4), context=context)
    context = MemoryContext(document_ids=torch.ones(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"document_ids .*\(1, 4\).*got \(2, 4\)"):
        tiny_hash().addresses(ids_of(1, 4), context=context)


def test_eos_rules_ask_for_an_eos():
    with pytest.raises(ValueError, match="eos_id is needed"):
        tiny_hash(reset="eos")


@pytest.mark.parametrize("ids", [{"fill_id": 30}, {"fill_id": -1}, {"fill_id": 0, "eos_id": 30}])
def test_special_ids_outside_the_vocabulary_are_refused(ids):
    with pytest.raises(ValueError, match=r"must lie in 0\.\.29"):
        tiny_hash(**ids)


def test_a_layer_without_memory_is_refused():
    with pytest.raises(ValueError, match=r"layer_id .*\(1, 4\).*got 2"):
        NgramHash(TINY, 2, canonical_vocab_size=30, fill_id=0)


@pytest.mark.parametrize("name", ["multipliers", "primes", "special_ids"])
def test_a_checkpoint_with_other_constants_is_refused(name):
    ngram_hash = tiny_hash()
    state = {key: value.clone() for key, value in ngram_hash.state_dict().items()}
    state[name].flatten()[0] += 2
    ngram_hash.load_state_dict(state)
    with pytest.raises(ValueError, match=f"{name} of memory layer 1 must follow from its config"):
        ngram_hash.check_constants()


def test_one_token_more_in_the_vocabulary_is_noticed():
    other = tiny_hash(vocab=31)
    other.load_state_dict(tiny_hash(vocab=30).state_dict())
    with pytest.raises(ValueError, match="canonical_vocab_size=31"):
        other.check_constants()


def test_constants_survive_half_precision_and_are_whole_numbers():
    ngram_hash = tiny_hash()
    expected = ngram_hash.addresses(ids_of(1, 5))
    for module in (
        copy.deepcopy(ngram_hash).half(),
        copy.deepcopy(ngram_hash).to(torch.bfloat16),
        copy.deepcopy(ngram_hash).double(),
    ):
        assert {buffer.dtype for buffer in module.buffers()} == {torch.int64}
        assert torch.equal(module.addresses(ids_of(1, 5)), expected)


def test_a_meta_build_gets_its_constants_back():
    with torch.device("meta"):
        empty = tiny_hash()
    garbage = {name: torch.zeros_like(value) for name, value in tiny_hash().state_dict().items()}
    empty.load_state_dict(garbage, assign=True)
    empty.reset_buffers()
    empty.check_constants()
    assert torch.equal(empty.addresses(ids_of(1, 5)), tiny_hash().addresses(ids_of(1, 5)))


def test_loaded_primes_count_not_those_of_the_build():
    ngram_hash = tiny_hash()
    ngram_hash.addresses(ids_of(1, 5))
    ngram_hash.load_state_dict({**ngram_hash.state_dict(), "primes": torch.full((2, 2), 7)})
    assert ngram_hash.addresses(ids_of(4, 50)).max() == 6


def test_an_empty_chunk_has_no_addresses():
    state = MemoryState(TINY)
    ids = torch.zeros(2, 0, dtype=torch.int64)
    state.extend(ids)
    assert tiny_hash().addresses(ids, state=state).shape == (2, 0, 4)
    assert tiny_hash().addresses(ids).shape == (2, 0, 4)


def test_no_arithmetic_overflows_or_meets_nonsense():
    with np.errstate(all="raise"):
        for ids in (ids_of(3, 5), torch.full((1, 7), 29), torch.zeros(1, 1, dtype=torch.int64)):
            assert tiny_hash().addresses(ids).min() >= 0
