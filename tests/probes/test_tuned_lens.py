"""The tuned lens: maps that start as the identity and bring every layer nearer to the end."""

import pandas as pd
import pytest
import torch

from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.model.residual import residual_stream
from engram_lab.probes.lens import COLUMNS, logit_lens
from engram_lab.probes.tuned_lens import (
    TunedLens,
    TunedLensConfig,
    fit_tuned_lens,
    tuned_lens,
    tuned_lens_frame,
)
from engram_lab.tokens.tokenizer import load_tokenizer
from tests.model.foreign import BLOCKS, foreign, some_ids
from tests.probes.test_lens import words

SHORT = TunedLensConfig(steps=60, sequences=8, learning_rate=0.02)


def rotated() -> torch.nn.Module:
    """A model whose stream the first block turns, so that early layers speak another tongue."""
    model = foreign("gpt2")
    block = model.transformer.h[0]
    with torch.no_grad():
        turn = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(2)))[0]
    block.register_forward_hook(
        lambda module, args, output: (
            output @ turn if isinstance(output, torch.Tensor) else (output[0] @ turn, *output[1:])
        )
    )
    return model


def means(frame: pd.DataFrame) -> pd.Series:
    return frame.groupby("layer")["kl_nats"].mean()


def test_a_lens_that_was_not_fitted_is_the_logit_lens():
    model, ids = foreign("llama"), some_ids()
    lens = fit_tuned_lens(model, ids, config=TunedLensConfig(steps=0))
    assert len(lens.weight) == BLOCKS and len(lens.history) == 0
    tuned = tuned_lens(model, ids, words(ids), lens=lens)
    assert tuple(tuned.columns) == COLUMNS
    pd.testing.assert_frame_equal(tuned, logit_lens(model, ids, words(ids)))


def test_fitting_brings_early_layers_nearer_on_other_text():
    model = rotated()
    lens = fit_tuned_lens(model, some_ids(64, 16), config=SHORT)
    other = torch.randint(3, 61, (4, 16), generator=torch.Generator().manual_seed(9))
    before = means(logit_lens(model, other, words(other)))
    after = means(tuned_lens(model, other, words(other), lens=lens))
    assert after[0] < 0.8 * before[0]
    assert (after[: BLOCKS - 1] < before[: BLOCKS - 1]).all()
    assert after[BLOCKS] == before[BLOCKS] == 0


def test_the_history_tells_what_was_minimised():
    config = TunedLensConfig(steps=20, sequences=8, learning_rate=0.02)
    model, ids = foreign("gpt2"), some_ids(8, 12)
    history = fit_tuned_lens(model, ids, config=config).history
    assert history.columns.tolist() == ["step", "layer", "kl_nats"]
    assert len(history) == 20 * BLOCKS
    first = history[history["step"] == 0].set_index("layer")["kl_nats"]
    assert first.to_numpy() == pytest.approx(
        means(logit_lens(model, ids, words(ids)))[:BLOCKS].to_numpy(), rel=1e-4
    )
    last = history[history["step"] == 19].set_index("layer")["kl_nats"]
    assert (last < first).all()


def test_fitting_twice_gives_the_same_maps_and_draws_no_common_random_number():
    model, ids = foreign("gpt2"), some_ids(8, 6)
    config = TunedLensConfig(steps=3, sequences=3)
    state = torch.get_rng_state()
    first, second = (fit_tuned_lens(model, ids, config=config) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.weight, second.weight, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_model_gathers_no_gradient_and_is_left_as_it_was():
    model, ids = foreign("gemma2").train(), some_ids(4, 6)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    lens = fit_tuned_lens(model, ids, config=TunedLensConfig(steps=2, sequences=2))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not any(parameter.requires_grad for parameter in lens.parameters())


def test_padding_is_not_fitted():
    model, ids = foreign("gpt2"), some_ids(4, 8)
    mask = torch.ones_like(ids)
    mask[:, 5:] = 0
    config = TunedLensConfig(steps=3, sequences=4)
    padded = fit_tuned_lens(model, ids, attention_mask=mask, config=config)
    cut = fit_tuned_lens(model, ids[:, :5], config=config)
    for ours, theirs in zip(padded.weight, cut.weight, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_bf16_model_can_be_fitted():
    model, ids = foreign("llama").bfloat16(), some_ids(4, 6)
    lens = fit_tuned_lens(model, ids, config=TunedLensConfig(steps=1, sequences=4))
    assert lens.weight[0].dtype == torch.float32
    frame = tuned_lens(model, ids[:1], words(ids[:1]), lens=lens)
    assert frame["kl_nats"].notna().all()


def test_the_map_is_affine_and_the_last_layer_has_none():
    lens = TunedLens(2, 4)
    with torch.no_grad():
        lens.weight[1].copy_(torch.diag(torch.ones(4)))
        lens.bias[1].fill_(1.0)
    stream = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(lens(0, stream), stream)
    assert torch.equal(lens(1, stream), 2 * stream + 1)
    assert lens(2, stream) is stream


def test_a_lens_of_another_model_is_refused():
    ids = some_ids()
    with pytest.raises(ValueError, match="has 3 blocks, the lens 2 maps"):
        tuned_lens(foreign("gpt2"), ids, words(ids), lens=TunedLens(2, 16))
    with pytest.raises(ValueError, match="of width 8 reads streams of that width; got 16"):
        tuned_lens(foreign("gpt2"), ids, words(ids), lens=TunedLens(3, 8))


@pytest.mark.parametrize(
    ("field", "value"),
    [("steps", -1), ("sequences", 0), ("learning_rate", 0.0), ("weight_decay", -0.1)],
)
def test_numbers_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=f"TunedLensConfig.{field} must be"):
        TunedLensConfig(**{field: value})


def test_a_text_is_read_with_a_tokenizer():
    tokenizer = load_tokenizer("byte")
    model = EngramLM(tiny(tokenizer.vocab_size).replace(engram=None)).eval()
    frame = tuned_lens_frame(model, "one", tokenizer, lens=TunedLens(2, 32))
    assert frame["layer"].max() == 2
    assert residual_stream(model, tokenizer.encode("one")).shape == (3, 1, 3, 32)
