"""The module: golden updates, hooks, padding, documents, gradients, checkpoints."""

import copy
from dataclasses import replace

import pytest
import torch

from engram_lab.hooks import edit, record
from engram_lab.memory.config import FLOAT32_EPS, EngramConfig
from engram_lab.memory.engram import Engram
from engram_lab.memory.state import MemoryContext
from tests.memory import golden

TINY = EngramConfig(
    layer_ids=(1,), engram_vocab_size=(50, 70), n_head_per_ngram=2, n_embed_per_ngram=4
)
HOOKS = ("hook_addresses", "hook_rows", "hook_key", "hook_gate", "hook_value", "hook_out")
# float32 against float32: an independent float64 evaluation differs by at most 4e-7
CLOSE = {"atol": 2e-6, "rtol": 1e-5}


def module_of(config: EngramConfig = TINY, *, hc_mult: int = 2, **changes) -> Engram:
    """A module whose every part takes part: no gain is 1, no tap 0."""
    module = Engram(
        replace(config, **changes),
        config.layer_ids[0],
        hidden_size=8,
        hc_mult=hc_mult,
        canonical_vocab_size=30,
        fill_id=0,
        eos_id=3,
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator) + 0.2)
    return module


def batch_of(
    seq: int = 14, *, batch: int = 2, hc_mult: int = 2
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(batch, seq, hc_mult, 8, generator=generator)
    return hidden, torch.randint(0, 30, (batch, seq), generator=generator)


def load_weights(module: Engram, weights: dict[str, torch.Tensor]) -> None:
    state = {key: value for key, value in module.state_dict().items() if key not in weights}
    module.load_state_dict({**state, **weights})


@pytest.mark.parametrize("case", golden.load("module_demo")["cases"], ids=lambda case: case["name"])
def test_the_demo_module(case):
    sizes, weights = case["config"], {k: golden.tensor(v) for k, v in case["weights"].items()}
    branches, width = sizes["hc_mult"], sizes["hidden_size"]
    config = golden.config(
        sizes, bias=True, kernel_size=4, norm_eps=FLOAT32_EPS, conv_norm_eps=sizes["conv_norm_eps"]
    )
    token_map = torch.tensor(case["token_map"])
    module = Engram(
        config,
        case["layer_id"],
        hidden_size=width,
        hc_mult=branches,
        canonical_vocab_size=int(token_map.max()) + 1,
        fill_id=int(token_map[sizes["pad_id"]]),
    )
    load_weights(
        module,
        {
            "table.weight": weights["table"],
            "projection.weight": torch.cat([*weights["key_w"], weights["value_w"]]),
            "projection.bias": torch.cat([*weights["key_b"], weights["value_b"]]),
            "query_gain": weights["norm_query"],
            "key_gain": weights["norm_key"],
            "conv_gain": weights["conv_norm"],
            "conv_weight": weights["conv_w"].reshape(branches, width, 4),
        },
    )
    hidden, ids = golden.tensor(case["hidden"]), token_map[torch.tensor(case["input_ids"])]
    with record(module, [*HOOKS]) as seen:
        module(hidden, ids)
    assert seen["hook_addresses"].tolist() == case["hash_ids"]
    rows = golden.tensor(case["embeddings"])
    torch.testing.assert_close(seen["hook_rows"].flatten(2), rows, atol=0, rtol=0)
    for name, column in (("gate", "gates"), ("value", "value_proj"), ("out", "output")):
        torch.testing.assert_close(seen[f"hook_{name}"], golden.tensor(case[column]), **CLOSE)
    torch.testing.assert_close(module(hidden, ids), golden.tensor(case["output"]), **CLOSE)


def v41_module() -> tuple[Engram, dict]:
    case = golden.load("module_v41")["cases"][0]
    sizes, weights = case["config"], {k: golden.tensor(v) for k, v in case["weights"].items()}
    config = EngramConfig(
        layer_ids=tuple(sizes["layer_ids"]),
        max_ngram_size=4,
        engram_vocab_size=(sizes["vocab_size"],) * 3,
        n_head_per_ngram=sizes["n_heads"],
        n_embed_per_ngram=sizes["n_heads"] * sizes["head_dim"],
        conv=False,
        gate_zero_rule="copysign",
        norm_eps=sizes["norm_eps"],
    )
    module = Engram(
        config,
        config.layer_ids[sizes["engram_layer_index"]],
        hidden_size=sizes["hidden_size"],
        hc_mult=sizes["hc_mult"],
        canonical_vocab_size=sizes["compressed_vocab_size"],
        fill_id=case["token_map"][sizes["pad_id"]],
    )
    load_weights(
        module,
        {
            "table.weight": weights["table"],
            "projection.weight": weights["wkv"],
            "query_gain": weights["q_weight"],
            "key_gain": weights["k_weight"],
        },
    )
    return module, case


def test_the_released_module():
    module, case = v41_module()
    hidden, mask = golden.tensor(case["hidden"]), torch.tensor(case["token_mask"])
    ids = torch.tensor(case["token_map"])[torch.tensor(case["input_ids"])]
    context = MemoryContext(attention_mask=mask)
    with record(module, [*HOOKS]) as seen:
        module(hidden, ids, context=context)
    assert (seen["hook_addresses"] + module.table.offsets).tolist() == case["hash_ids"]
    for name, column in (("key", "key"), ("gate", "gates"), ("value", "value")):
        torch.testing.assert_close(seen[f"hook_{name}"], golden.tensor(case[column]), **CLOSE)
    output = hidden + module(hidden, ids, context=context)
    torch.testing.assert_close(output, golden.tensor(case["output"]), **CLOSE)
    assert torch.equal(output[~mask], hidden[~mask])  # closed: the stream passes bit by bit


def test_demo_and_release_agree_where_their_switches_do():
    module, case = v41_module()
    ids = torch.tensor(case["token_map"])[torch.tensor(case["input_ids"])]
    demo = copy.deepcopy(module)
    demo.config = demo.hash.config = replace(
        module.config, gate_zero_rule="sign", reset="none", padding="hashed"
    )
    hidden = golden.tensor(case["hidden"])
    assert torch.equal(demo(hidden, ids), module(hidden, ids))


def test_zero_taps_leave_the_gated_value():
    module = module_of()
    torch.nn.init.zeros_(module.conv_weight)
    plain = module_of(conv=False)
    plain.load_state_dict(module.state_dict(), strict=False)
    hidden, ids = batch_of()
    torch.testing.assert_close(module(hidden, ids), plain(hidden, ids), atol=0, rtol=0)


@pytest.mark.parametrize("padding", ["dead", "hashed", "fill"])
@pytest.mark.parametrize("reset", ["none", "segments", "eos"])
def test_a_later_token_changes_nothing_earlier(reset, padding):
    module, (hidden, ids) = module_of(reset=reset, padding=padding), batch_of()
    changed_ids, changed = ids.clone(), hidden.clone()
    changed_ids[:, 9] = (ids[:, 9] + 1) % 30
    changed[:, 9] += 1
    before, after = module(hidden, ids), module(changed, changed_ids)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.equal(before[:, 9:], after[:, 9:])


def test_documents_do_not_meet():
    module, (hidden, ids) = module_of(), batch_of()
    documents = torch.tensor([[0] * 6 + [1] * 8, [5] * 3 + [6] * 11])
    context = MemoryContext(document_ids=documents)
    other, other_ids = hidden.clone(), ids.clone()
    other[0, :6], other_ids[0, :6] = torch.randn(6, 2, 8), (ids[0, :6] + 1) % 30
    found, changed = (module(h, i, context=context) for h, i in ((hidden, ids), (other, other_ids)))
    assert torch.equal(found[0, 6:], changed[0, 6:])
    assert torch.equal(found[1], changed[1])
    torch.testing.assert_close(found[:1, 6:], module(hidden[:1, 6:], ids[:1, 6:]), **CLOSE)


def test_the_convolution_may_cross_documents_as_in_the_reference():
    documents = torch.tensor([[0] * 6 + [1] * 8] * 2)
    hidden, ids = batch_of()
    within, across = (
        module_of(conv_reset=reset)(hidden, ids, context=MemoryContext(document_ids=documents))
        for reset in (True, False)
    )
    assert torch.equal(within[:, :6], across[:, :6])
    assert not torch.equal(within[:, 6:], across[:, 6:])


@pytest.mark.parametrize("conv", [True, False])
def test_left_right_and_no_padding_agree(conv):
    module, (hidden, ids) = module_of(conv=conv), batch_of(6)
    noise, junk = torch.randn(2, 4, 2, 8), torch.full((2, 4), -100)
    ones, zeros = torch.ones(2, 6), torch.zeros(2, 4)
    alone = module(hidden, ids)
    left = module(
        torch.cat([noise, hidden], 1),
        torch.cat([junk, ids], 1),
        context=MemoryContext(attention_mask=torch.cat([zeros, ones], 1)),
    )
    right = module(
        torch.cat([hidden, noise], 1),
        torch.cat([ids, junk], 1),
        context=MemoryContext(attention_mask=torch.cat([ones, zeros], 1)),
    )
    torch.testing.assert_close(left[:, 4:], alone, **CLOSE)
    torch.testing.assert_close(right[:, :6], alone, **CLOSE)
    assert left[:, :4].abs().max() == right[:, 6:].abs().max() == 0


def test_dead_positions_send_no_gradient():
    module, (hidden, ids) = module_of(), batch_of()
    hidden.requires_grad_()
    mask = torch.ones(2, 14, dtype=torch.bool)
    mask[:, 5:8] = False
    module(hidden, ids, context=MemoryContext(attention_mask=mask)).sum().backward()
    assert hidden.grad[~mask].abs().max() == 0
    assert hidden.grad[mask].abs().min(-1).values.max() > 0


def test_gradients_reach_rows_that_were_read_and_no_other():
    module, (hidden, ids) = module_of(sparse_grad=False), batch_of()
    read = module.table.row_ids(module.hash.addresses(ids)).unique()
    module(hidden, ids).sum().backward()
    touched = module.table.weight.grad.abs().sum(1).nonzero().squeeze(1)
    assert torch.equal(touched, read)


def test_sparse_and_dense_gradients_are_equal():
    hidden, ids = batch_of()
    gradients = []
    for sparse in (True, False):
        module = module_of(sparse_grad=sparse)
        module(hidden, ids).square().sum().backward()
        gradients.append(
            module.table.weight.grad.to_dense() if sparse else module.table.weight.grad
        )
    torch.testing.assert_close(*gradients)


def test_bfloat16_rows_are_computed_with_in_float32():
    module, (hidden, ids) = module_of(row_dtype="bfloat16"), batch_of()
    wide = module_of()
    wide.load_state_dict(module.state_dict())
    assert wide.table.weight.dtype == torch.float32
    found = module(hidden, ids)
    torch.testing.assert_close(found, wide(hidden, ids), atol=0, rtol=0)
    found.sum().backward()
    assert module.table.weight.grad.dtype == torch.bfloat16


def test_a_bfloat16_module_returns_bfloat16_close_to_float32():
    module, (hidden, ids) = module_of(), batch_of()
    found = copy.deepcopy(module).bfloat16()(hidden.bfloat16(), ids)
    assert found.dtype == torch.bfloat16
    # 8 bits of mantissa through two products and a root
    torch.testing.assert_close(found.float(), module(hidden, ids), atol=0.3, rtol=0.1)


@pytest.mark.parametrize("name", HOOKS)
def test_an_edit_of_any_hook_point_changes_the_update(name):
    module, (hidden, ids) = module_of(), batch_of()
    before = module(hidden, ids)
    with edit(module, {name: torch.zeros_like}):
        changed = module(hidden, ids)
    assert not torch.allclose(before, changed)
    assert torch.equal(module(hidden, ids), before)


def test_zero_gate_or_zero_rows_leave_the_stream_alone():
    module, (hidden, ids) = module_of(), batch_of()
    for name in ("hook_gate", "hook_rows", "hook_value"):
        with edit(module, {name: torch.zeros_like}):
            assert module(hidden, ids).abs().max() == 0


def test_closed_gates_show_as_zero():
    module, (hidden, ids) = module_of(), batch_of()
    mask = torch.ones(2, 14)
    mask[0, 3] = 0
    with record(module, ["hook_gate"]) as seen:
        module(hidden, ids, context=MemoryContext(attention_mask=mask))
    assert seen["hook_gate"][0, 3].abs().max() == 0
    assert seen["hook_gate"][mask.bool()].min() > 0


def test_rows_at_hand_replace_the_table():
    module, (hidden, ids) = module_of(), batch_of()
    rows = module.table(module.hash.addresses(ids))
    expected = module(hidden, ids)
    torch.nn.init.zeros_(module.table.weight)
    found = module(hidden, ids, context=MemoryContext(rows={1: rows}))
    assert torch.equal(found, expected)
    assert not torch.equal(module(hidden, ids, context=MemoryContext(rows={4: rows})), expected)


def test_the_neighbour_control_reads_the_next_sequence():
    module, control = module_of(), module_of(addresses="neighbour")
    hidden, ids = batch_of(batch=3)
    with record(control, ["hook_addresses"]) as seen:
        control(hidden, ids)
    assert torch.equal(seen["hook_addresses"], module.hash.addresses(ids)[[1, 2, 0]])


def test_the_neighbour_control_needs_a_neighbour():
    hidden, ids = batch_of(batch=1)
    with pytest.raises(ValueError, match="at least 2 sequences in a batch; got 1"):
        module_of(addresses="neighbour")(hidden, ids)


def test_zero_value_starts_as_the_identity():
    module = Engram(
        replace(TINY, zero_value_init=True, bias=True, init_std=1.0),
        1,
        hidden_size=8,
        canonical_vocab_size=30,
        fill_id=0,
    )
    hidden, ids = batch_of(hc_mult=1)
    assert module(hidden, ids).abs().max() == 0
    assert module.projection.weight[:8].abs().min() > 0


def test_initial_values():
    module = Engram(TINY, 1, hidden_size=8, hc_mult=2, canonical_vocab_size=30, fill_id=0)
    assert module.conv_weight.abs().max() == 0
    assert module.query_gain.unique().tolist() == module.conv_gain.unique().tolist() == [1]
    assert module.projection.weight.std().item() == pytest.approx(0.02, rel=0.2)
    zero_centred = module_of(zero_centred_gain=True)
    zero_centred.reset_parameters()
    assert zero_centred.key_gain.abs().max() == 0


def test_gains_of_zero_centre_are_used_as_one_plus():
    hidden, ids = batch_of()
    plain, centred = module_of(), module_of(zero_centred_gain=True)
    with torch.no_grad():
        for name in ("query_gain", "key_gain", "conv_gain"):
            getattr(centred, name).sub_(1)
    torch.testing.assert_close(centred(hidden, ids), plain(hidden, ids), **CLOSE)


def test_another_width_is_refused():
    hidden, ids = batch_of(hc_mult=3)
    with pytest.raises(ValueError, match=r"\[branch, hidden\] = \(2, 8\); got \(2, 14, 3, 8\)"):
        module_of()(hidden, ids)


def test_no_buffer_is_float64_and_all_constants_are_saved():
    module = module_of()
    assert {buffer.dtype for buffer in module.buffers()} == {torch.int64}
    saved = {key for key in module.state_dict() if key.startswith(("hash.", "table.off"))}
    assert saved == {"hash.multipliers", "hash.primes", "hash.special_ids", "table.offsets"}


def test_a_checkpoint_round_trip_gives_the_same_update():
    module, (hidden, ids) = module_of(), batch_of()
    other = Engram(TINY, 1, hidden_size=8, hc_mult=2, canonical_vocab_size=30, fill_id=0, eos_id=3)
    other.load_state_dict(module.state_dict())
    other.check_constants()
    assert torch.equal(other(hidden, ids), module(hidden, ids))


def test_a_meta_build_loads_and_computes():
    module, (hidden, ids) = module_of(), batch_of()
    with torch.device("meta"):
        empty = Engram(
            TINY, 1, hidden_size=8, hc_mult=2, canonical_vocab_size=30, fill_id=0, eos_id=3
        )
    empty.load_state_dict(module.state_dict(), assign=True)
    empty.check_constants()
    assert torch.equal(empty(hidden, ids), module(hidden, ids))
