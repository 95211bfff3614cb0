"""The residual stream: the same view of our models and of anybody's, and a model left as it was."""

import dataclasses

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2Model, T5Config, T5ForConditionalGeneration

from engram_lab.hooks import edit, record
from engram_lab.memory.config import EngramConfig
from engram_lab.model.anatomy import Anatomy, anatomy_of
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.model.residual import read_stream, residual_stream
from engram_lab.model.undisturbed import undisturbed
from engram_lab.tokens.compression import VocabCompression
from tests.model.foreign import BLOCKS, CONFIGS, CONTEXT, VOCAB, foreign, some_ids

ROUNDING = 2e-6  # float32, sums in another order
each_family = pytest.mark.parametrize("name", CONFIGS)


@pytest.fixture
def model() -> EngramLM:
    torch.manual_seed(0)
    engram = EngramConfig(layer_ids=(0, 1), engram_vocab_size=(97, 97), n_embed_per_ngram=16)
    config = tiny(VOCAB).replace(engram=engram, max_position_embeddings=CONTEXT)
    model = EngramLM(config, VocabCompression.identity(VOCAB)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@each_family
def test_norm_and_head_over_the_last_layer_are_the_logits(name):
    model, ids = foreign(name), some_ids(2)
    stream = residual_stream(model, ids)
    with torch.no_grad():
        ours, theirs = anatomy_of(model).logits(stream[-1]), model(ids).logits
    assert len(stream) == BLOCKS + 1
    assert torch.allclose(ours, theirs, atol=ROUNDING * float(theirs.abs().max()))


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "gemma2"])
def test_the_layers_are_the_hidden_states_except_that_the_last_is_not_normalised(name):
    model, ids = foreign(name), some_ids()
    stream = residual_stream(model, ids)
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
        normed = anatomy_of(model).norm(stream[-1])
    for ours, theirs in zip(stream[:-1], states[:-1], strict=True):
        assert torch.equal(ours, theirs)
    assert torch.allclose(normed, states[-1], atol=1e-5)
    assert not torch.allclose(stream[-1], states[-1], atol=1e-2)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "deepseek_v4"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_text_reads_as_it_does_alone(name, side):
    model, ids = foreign(name), some_ids(2)
    mask = torch.ones_like(ids)
    real = slice(3, None) if side == "left" else slice(0, 6)
    mask[0] = 0
    mask[0, real] = 1
    together = residual_stream(model, ids, mask)[:, 0, real]
    alone = residual_stream(model, ids[:1, real])[:, 0]
    assert torch.allclose(together, alone, atol=2e-5)


def test_our_model_shows_its_stream_before_each_block_and_after_the_last(model):
    ids = some_ids(2)
    with torch.no_grad(), record(model, ["blocks.*.hook_resid_*"]) as seen:
        logits = model(ids).logits
    stream = residual_stream(model, ids)
    assert torch.equal(stream[0], seen["blocks.0.hook_resid_pre"])
    assert torch.equal(stream[1], seen["blocks.1.hook_resid_pre"])
    assert torch.equal(stream[2], seen["blocks.1.hook_resid_post"])
    assert torch.allclose(anatomy_of(model).logits(stream[-1]), logits, atol=1e-5)


def test_branches_are_collapsed_by_the_read_out_of_the_sublayer_that_reads_next():
    model, ids = foreign("deepseek_v4"), some_ids()
    inputs = {}
    block = model.model.layers[1]
    handle = block.input_layernorm.register_forward_pre_hook(
        lambda module, args: inputs.update(read=args[0])
    )
    stream = residual_stream(model, ids)
    handle.remove()
    assert torch.equal(stream[1], inputs["read"].to(stream.dtype))


def test_the_stream_without_memory_lacks_what_the_memories_have_added_so_far(model):
    ids = some_ids()
    reading = read_stream(model, ids)
    with torch.no_grad(), record(model, ["blocks.*.engram.hook_out"]) as seen:
        model(ids)
    first, second = (seen[f"blocks.{i}.engram.hook_out"].squeeze(2) for i in (0, 1))
    without = reading.without_memory()
    assert torch.equal(without[0], reading.stream[0])
    assert torch.allclose(without[1], reading.stream[1] - first, atol=1e-6)
    assert torch.allclose(without[2], reading.stream[2] - first - second, atol=1e-6)


def test_a_model_without_memory_has_no_stream_without_it():
    with pytest.raises(ValueError, match="this model has none"):
        read_stream(foreign("gpt2"), some_ids()).without_memory()


def test_edits_show_in_the_stream(model):
    ids = some_ids()
    with edit(model, {"blocks.0.hook_ffn_out": torch.zeros_like}):
        edited = residual_stream(model, ids)
    assert not torch.allclose(edited[1], residual_stream(model, ids)[1])


def test_an_update_that_a_hook_adds_counts_as_made_inside_the_block():
    model, ids = foreign("llama"), some_ids()
    before = residual_stream(model, ids)
    handle = model.model.layers[1].register_forward_pre_hook(
        lambda module, args: (args[0] + 1, *args[1:])
    )
    after = residual_stream(model, ids)
    handle.remove()
    assert torch.equal(after[1], before[1])
    assert not torch.allclose(after[2], before[2])


@pytest.mark.parametrize("name", ["ours", "gpt2"])
def test_the_model_is_left_as_it_was_also_after_an_error(model, name):
    model = model if name == "ours" else foreign(name)
    model.train()
    next(iter(model.children())).eval()
    next(model.parameters()).requires_grad_(False)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    gradients = [parameter.requires_grad for parameter in model.parameters()]
    residual_stream(model, some_ids())
    with pytest.raises(RuntimeError, match="on purpose"), undisturbed(model):
        raise RuntimeError("on purpose")
    with pytest.raises(ValueError, match="not called"):
        residual_stream(
            model,
            some_ids(),
            anatomy=dataclasses.replace(anatomy_of(model), norm=nn.Identity()),
        )
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == gradients
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


def test_a_bf16_model_keeps_its_dtype_unless_another_is_asked_for():
    model, ids = foreign("llama").bfloat16(), some_ids()
    assert residual_stream(model, ids).dtype == torch.bfloat16
    wide = residual_stream(model, ids, dtype=torch.float32)
    assert wide.dtype == torch.float32 and not wide.requires_grad
    read_stream(model, ids).check(anatomy_of(model))


def test_a_model_without_a_head_will_do():
    config = GPT2Config(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=CONTEXT)
    model = GPT2Model(config)
    assert residual_stream(model, some_ids()).shape == (3, 1, 9, 16)
    with pytest.raises(ValueError, match="this model has none; load it with AutoModelForCausalLM"):
        anatomy_of(model).logits(torch.zeros(1, 16))


def test_the_head_computes_a_few_positions_alone():
    model, seen = foreign("gpt2"), []
    handle = model.lm_head.register_forward_hook(lambda m, args, output: seen.append(output.shape))
    residual_stream(model, some_ids(1, 20))
    handle.remove()
    assert seen == [(1, 4, VOCAB)]


def test_a_model_is_read_that_nobody_has_named():
    class Mine(nn.Module):
        """Blocks in a dict, no config, a norm under a name of its own, a plain tensor out."""

        def __init__(self):
            super().__init__()
            self.trunk = nn.ModuleDict({"wte": nn.Embedding(VOCAB, 8), "final": nn.LayerNorm(8)})
            self.trunk["h"] = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
            self.lm_head = nn.Linear(8, VOCAB)

        def forward(self, ids):
            hidden = self.trunk["wte"](ids)
            for block in self.trunk["h"]:
                hidden = hidden + block(hidden)
            return self.lm_head(self.trunk["final"](hidden))

    model = Mine()
    with pytest.raises(ValueError, match="found its blocks, but beside them no norm called norm"):
        residual_stream(model, some_ids())
    anatomy = Anatomy(blocks=tuple(model.trunk["h"]), norm=model.trunk["final"], head=model.lm_head)
    reading = read_stream(model, some_ids(), anatomy=anatomy)
    reading.check(anatomy)
    assert reading.stream.shape == (3, 1, 9, 8)


def test_a_model_without_blocks_is_refused():
    with pytest.raises(ValueError, match="stream of a Linear is not known: found no ModuleList"):
        residual_stream(nn.Linear(2, 2), some_ids())


def test_a_model_with_an_encoder_is_refused():
    config = T5Config(vocab_size=VOCAB, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration has an encoder"):
        residual_stream(T5ForConditionalGeneration(config), some_ids())


def test_a_block_that_runs_twice_is_refused():
    model = foreign("gpt2")
    model.transformer.h[1] = model.transformer.h[0]
    with pytest.raises(ValueError, match="block 1 was called twice|block 0 was called twice"):
        residual_stream(model, some_ids())


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"norm": nn.Identity()}, "final norm was not called"),
        ({"head": nn.Linear(16, VOCAB)}, r"head \(Linear\) was not called"),
        ({"cap": None}, r"factor 1 and cap None alone \(factor, cap\)"),
        ({"factor": 2.0}, r"factor 2 and cap 2.0 alone"),
    ],
)
def test_a_wrong_part_is_named(change, part):
    model = foreign("gemma2")
    anatomy = dataclasses.replace(anatomy_of(model), **change)
    with pytest.raises(ValueError, match=part):
        read_stream(model, some_ids(), anatomy=anatomy).check(anatomy)


def test_something_between_norm_and_head_is_named():
    model = foreign("llama")
    model.model.norm.register_forward_hook(lambda module, args, output: output * 1.5)
    anatomy = anatomy_of(model)
    reading = read_stream(model, some_ids())
    reading.check(anatomy)  # a hook on the norm is part of the norm
    model.model.norm._forward_hooks.clear()
    with pytest.raises(ValueError, match=r"something else than the final norm .* \(norm\)"):
        reading.check(anatomy)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_text_longer_than_the_context_is_refused_with_what_to_do(name):
    with pytest.raises(ValueError, match=r"at most 24 positions; got .* 25 .*token_ids\[:, -24:\]"):
        residual_stream(foreign(name), some_ids(1, 25))


def test_texts_that_cannot_be_read_are_refused(model):
    ids = some_ids()
    with pytest.raises(ValueError, match=r"at least one token; got ids of shape \(1, 0\)"):
        residual_stream(model, ids[:, :0])
    with pytest.raises(ValueError, match=r"lie in 0..60 .* got 61..61"):
        residual_stream(model, torch.full((1, 2), 61))
    with pytest.raises(ValueError, match=r"shape of the ids, \(1, 9\); got \(1, 8\)"):
        residual_stream(model, ids, torch.ones(1, 8))
    with pytest.raises(ValueError, match="a row of zeros"):
        residual_stream(model, ids, torch.zeros(1, 9))


def test_one_token_will_do(model):
    assert residual_stream(model, some_ids(1, 1)).shape == (3, 1, 1, 32)
