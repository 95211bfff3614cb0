"""Attention mass: that of a slow twin and of eager attention, and a model left as it was."""

import numpy as np
import pytest
import torch

from engram_lab.hooks import edit, record
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes import attention
from engram_lab.probes.attention import attention_mass
from tests.model.foreign import foreign, some_ids
from tests.twins import attention as twin


def ours(**changes: object) -> EngramLM:
    config = tiny().replace(engram=None, num_attention_heads=4, num_key_value_heads=2, **changes)
    model = EngramLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))  # so that attention prefers some keys
    return model


def ids(batch: int = 2, seq: int = 20) -> torch.Tensor:
    return torch.randint(4, 260, (batch, seq))


def twin_weights(model: EngramLM, tokens: torch.Tensor, layer: int, allowed=None) -> np.ndarray:
    with torch.no_grad(), record(model, [f"blocks.{layer}.attn_norm"]) as seen:
        model(tokens)
    seq = tokens.shape[1]
    return twin.weights(
        seen[f"blocks.{layer}.attn_norm"][0].double().numpy(),
        model.blocks[layer].attn.qkv.weight.detach().double().numpy(),
        heads=4,
        key_heads=2,
        theta=model.config.rope_theta,
        allowed=np.tri(seq, dtype=bool) if allowed is None else allowed,
    )


def mass(frame, layer: int, window: int) -> float:
    return frame[(frame["layer"] == layer) & (frame["window"] == window)]["mass"].item()


@pytest.mark.parametrize("scores", [2**24, 100])
def test_mass_is_that_of_a_slow_twin(scores, monkeypatch):
    monkeypatch.setattr(attention, "SCORES", scores)  # few: one sequence and query at a time
    model, tokens = ours(), ids()
    frame = attention_mass(model, tokens, windows=(1, 3, 8))
    assert list(frame.columns) == ["layer", "seed", "window", "mass", "queries"]
    for layer in (0, 1):
        weights = [twin_weights(model, row[None], layer) for row in tokens]
        for window in (1, 3, 8):
            expected = np.mean([twin.mass(part, window, range(10, 20)) for part in weights])
            assert mass(frame, layer, window) == pytest.approx(expected, abs=1e-6)
    assert (frame["queries"] == 20).all()


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "gpt_neox"])
def test_mass_of_other_decoders_is_that_of_their_eager_attention(name):
    model, tokens = foreign(name), some_ids()
    before = model.config._attn_implementation
    frame = attention_mass(model, tokens, windows=(2, 5), first_query=3)
    assert model.config._attn_implementation == before
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(tokens, output_attentions=True).attentions
    assert sorted(frame["layer"].unique()) == list(range(len(layers)))
    for layer, weights in enumerate(layers):
        for window in (2, 5):
            found = [twin.mass(part.numpy(), window, range(3, tokens.shape[1])) for part in weights]
            assert mass(frame, layer, window) == pytest.approx(np.mean(found), abs=1e-6)


def test_a_window_as_long_as_the_text_has_all_the_mass_and_longer_windows_have_more():
    frame = attention_mass(ours(), ids(), windows=(1, 5, 20, 128))
    assert frame.loc[frame["window"] >= 20, "mass"].to_numpy() == pytest.approx(1, abs=1e-6)
    for _, layer in frame.groupby("layer"):
        assert (np.diff(layer["mass"]) > -1e-6).all()


def test_attention_that_is_even_has_mass_by_count():
    model = ours()
    flat = {"blocks.*.attn.hook_q": torch.zeros_like}
    with edit(model, flat):
        frame = attention_mass(model, ids(1, 16), windows=(4,), first_query=12)
    expected = np.mean([4 / 13, 4 / 14, 4 / 15, 4 / 16])
    assert frame["mass"].to_numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_query_and_no_key(side):
    model, tokens = ours(), ids(1, 14)
    padding = torch.zeros(1, 5, dtype=torch.int64)
    parts = [padding, tokens] if side == "left" else [tokens, padding]
    real = [torch.zeros(1, 5), torch.ones(1, 14)]
    mask = torch.cat(real if side == "left" else real[::-1], dim=1).long()
    padded = attention_mass(model, torch.cat(parts, dim=1), mask, windows=(2, 6))
    alone = attention_mass(model, tokens, windows=(2, 6))
    assert padded["mass"].to_numpy() == pytest.approx(alone["mass"].to_numpy(), abs=1e-5)
    assert padded["queries"].tolist() == alone["queries"].tolist()


def test_a_bf16_model_in_training_is_left_as_it_was():
    model = ours().bfloat16().train()
    frame = attention_mass(model, ids(), windows=(4,), seed=3)
    assert frame["mass"].dtype == np.float64 and frame["mass"].between(0, 1).all()
    assert (frame["seed"] == 3).all()
    assert all(module.training for module in model.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("name", ["ours", "llama"])
def test_a_model_is_left_as_it_was_after_an_error(name):
    model = ours() if name == "ours" else foreign(name)
    before = model.config._attn_implementation
    with pytest.raises(ValueError, match="at most"):
        attention_mass(model, torch.ones(1, 3000, dtype=torch.int64))
    assert model.config._attn_implementation == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("shape", [(1, 0), (1, 1), (0, 5)])
def test_too_little_text_is_refused(shape):
    with pytest.raises(ValueError, match="at least two tokens"):
        attention_mass(ours(), torch.ones(shape, dtype=torch.int64))


def test_windows_and_first_query_must_make_sense():
    with pytest.raises(ValueError, match=r"at least one token each; got \(0, 8\)"):
        attention_mass(ours(), ids(), windows=(0, 8))
    with pytest.raises(ValueError, match="the longest of 20 tokens; got 20"):
        attention_mass(ours(), ids(), first_query=20)


def test_a_model_without_attention_is_refused():
    config = foreign("llama").config
    model = foreign("llama")
    for block in model.model.layers:
        block.self_attn.layer_idx = None
    assert config.num_hidden_layers
    with pytest.raises(ValueError, match="no layer of this model gave attention weights"):
        attention_mass(model, some_ids())
