"""The Qwen rule: the golden file, and `transformers`' own layer on the same weights."""

from dataclasses import replace

import pytest
import torch
from einops import rearrange

from engram_lab.hooks import record
from engram_lab.memory.config import EngramConfig, qwen
from engram_lab.memory.engram import Engram
from engram_lab.memory.layout import layer_rows, table_layout
from engram_lab.memory.state import MemoryContext, MemoryState
from tests.memory import golden

EOS = 1


def small(layer_ids: tuple[int, ...] = (1,), divisor: int = 8) -> EngramConfig:
    return replace(
        qwen(),
        layer_ids=layer_ids,
        engram_vocab_size=(31, 31),
        n_head_per_ngram=2,
        n_embed_per_ngram=4,
        make_ngram_vocab_size_divisible_by=divisor,
        row_dtype="float32",
        sparse_grad=False,
    )


def ours_of(config: EngramConfig, layer: int, weights: dict[str, torch.Tensor]) -> Engram:
    """Our module with weights named as in the golden file; vectors over all branches are split."""
    module = Engram(
        config, layer, hidden_size=6, hc_mult=2, canonical_vocab_size=64, fill_id=0, eos_id=EOS
    )
    state = {
        "table.weight": weights["table"],
        "projection.weight": torch.cat([weights["key_w"], weights["value_w"]]),
        "query_gain": weights["norm_query"].reshape(2, 6),
        "key_gain": weights["norm_key"].reshape(2, 6),
        "conv_gain": weights["norm_conv"].reshape(2, 6),
        "conv_weight": weights["conv_w"].reshape(2, 6, 4),
    }
    module.load_state_dict({**module.state_dict(), **state})
    return module


def test_released_sizes():
    released = golden.load("qwen_ple")["released_config"]
    (lengths,) = table_layout(qwen()).values()
    assert [length for order in lengths for length in order] == released["primes"]
    assert layer_rows(qwen())[1] == released["padded"]
    assert qwen().row_width * released["padded"] == released["params"]


def test_the_golden_module():
    case = golden.load("qwen_ple")["small"]
    weights = {name: golden.tensor(value) for name, value in case["weights"].items()}
    module = ours_of(small(), 1, weights)
    assert module.hash.multipliers.tolist() == case["multipliers"]
    assert module.table.weight.shape[0] == case["padded"]
    hidden = rearrange(golden.tensor(case["hidden"]), "b t (m h) -> b t m h", m=2)
    ids = torch.tensor(case["input_ids"])
    with record(module, ["hook_addresses", "hook_rows", "hook_gate"]) as seen:
        plain = module(hidden, ids)
    fused = module(hidden, ids)
    assert (seen["hook_addresses"] + module.table.offsets).tolist() == case["row_ids"]
    assert torch.equal(seen["hook_rows"].flatten(2), golden.tensor(case["embeddings"]))
    for found, name in ((seen["hook_gate"], "gates"), (plain, "output"), (fused, "output")):
        found = found.flatten(2) if found.dim() == 4 else found
        torch.testing.assert_close(found, golden.tensor(case[name]), atol=2e-6, rtol=1e-5)


def theirs_of(layers: list[int], index: int) -> torch.nn.Module:
    from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
    from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextPLELayer

    config = Qwen4ExpTextConfig(
        vocab_size=64,
        hidden_size=6,
        num_hidden_layers=4,
        layer_types=["linear_attention"] * 4,
        ple_layer_ids=[layer + 1 for layer in layers],
        ple_embed_dim=8,
        ngram_size=3,
        heads_per_ngram=2,
        ngram_vocab_size_base=31,
        make_ngram_vocab_size_divisible_by=8,
        hc_count=2,
        eos_token_id=EOS,
        seed=1234,
    )
    module = Qwen4ExpTextPLELayer(config, layers[index], index)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return module


def weights_of(theirs: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        "table": theirs.ple_embedding.ngram_embedding.weight,
        "key_w": theirs.key_proj.weight,
        "value_w": theirs.value_proj.weight,
        "norm_key": theirs.norm_key.weight,
        "norm_query": theirs.norm_query.weight,
        "norm_conv": theirs.norm_conv.weight,
        "conv_w": theirs.conv1d.weight,
    }


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_update_and_gradients_equal_transformers(index, masked):
    layers = [1, 3]
    theirs = theirs_of(layers, index)
    config = small((1, 3))
    ours = ours_of(config, layers[index], {k: v.detach() for k, v in weights_of(theirs).items()})
    generator = torch.Generator().manual_seed(6)
    hidden = torch.randn(2, 15, 12, generator=generator).requires_grad_()
    ids = torch.randint(0, 12, (2, 15), generator=generator)  # few ids: several eos per row
    mask = None
    if masked:  # left padding, as in a batch of prompts
        mask = torch.ones(2, 15, dtype=torch.bool)
        mask[0, :4] = False
    their_ids = ids if mask is None else torch.where(mask, ids, EOS)  # their model does this first
    expected = theirs(hidden, their_ids, None, conv_mask=mask)
    pull = torch.randn(expected.shape, generator=generator)
    expected.backward(pull)
    expected_hidden = hidden.grad

    split = rearrange(hidden.detach(), "b t (m h) -> b t m h", m=2).requires_grad_()
    found = ours(split, ids, context=MemoryContext(attention_mask=mask))
    found.backward(rearrange(pull, "b t (m h) -> b t m h", m=2))
    close = {"atol": 5e-6, "rtol": 1e-4}  # float32 sums in other orders
    torch.testing.assert_close(found.flatten(2), expected, **close)
    torch.testing.assert_close(split.grad.flatten(2), expected_hidden, **close)
    pairs = {
        "table": ours.table.weight.grad,
        "key_w": ours.projection.weight.grad[:-6],
        "value_w": ours.projection.weight.grad[-6:],
        "norm_key": ours.key_gain.grad.flatten(),
        "norm_query": ours.query_gain.grad.flatten(),
        "norm_conv": ours.conv_gain.grad.flatten(),
        "conv_w": ours.conv_weight.grad.reshape(12, 1, 4),
    }
    for name, weight in weights_of(theirs).items():
        torch.testing.assert_close(pairs[name], weight.grad, **close, msg=name)


def test_constants_equal_those_of_transformers():
    for index, layer in enumerate((1, 3)):
        theirs = theirs_of([1, 3], index).ple_embedding
        ours = ours_of(
            small((1, 3)),
            layer,
            {k: v.detach() for k, v in weights_of(theirs_of([1, 3], index)).items()},
        )
        assert ours.hash.multipliers.tolist() == theirs.layer_multipliers.tolist()
        assert ours.hash.primes.flatten().tolist() == theirs.ngram_heads_vocab_sizes.tolist()
        assert ours.table.offsets.tolist() == theirs.ngram_heads_offsets.tolist()


def test_chunks_equal_one_pass_through_their_cacheless_layer():
    theirs = theirs_of([1], 0)
    ours = ours_of(small(), 1, {k: v.detach() for k, v in weights_of(theirs).items()})
    hidden = torch.randn(2, 20, 12)
    ids = torch.randint(0, 12, (2, 20))
    state, parts = MemoryState(ours.config), []
    for first, end in ((0, 1), (1, 8), (8, 9), (9, 20)):
        state.extend(ids[:, first:end])
        chunk = rearrange(hidden[:, first:end], "b t (m h) -> b t m h", m=2)
        parts.append(ours(chunk, ids[:, first:end], state=state).flatten(2))
    expected = theirs(hidden, ids, None)
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=5e-6, rtol=1e-4)
