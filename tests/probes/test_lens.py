"""The lens: every layer read by the model's own norm and head, and nothing left behind."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks.peak_bytes import PeakBytes
from engram_lab.hooks import record
from engram_lab.memory.config import EngramConfig
from engram_lab.model.anatomy import anatomy_of
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.model.residual import residual_stream
from engram_lab.probes import lens
from engram_lab.probes.lens import COLUMNS, Outcome, lens_frame, logit_lens
from engram_lab.probes.lens_summary import layer_means, lens_summary
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.tokenizer import load_tokenizer
from tests.model.foreign import BLOCKS, CONTEXT, VOCAB, foreign, some_ids

GOLDEN = Path(__file__).parents[1] / "golden" / "lens.json"
FAMILIES = ("llama", "qwen3", "gpt2", "gpt_neox", "gemma2", "deepseek_v4")


def spelled(ids: Sequence[int]) -> list[str]:
    return [f"t{token_id}" for token_id in ids]


def words(ids: torch.Tensor) -> list[str]:
    return spelled(ids.flatten().tolist())


def ours() -> EngramLM:
    torch.manual_seed(0)
    engram = EngramConfig(layer_ids=(0, 1), engram_vocab_size=(97, 97), n_embed_per_ngram=16)
    config = tiny(VOCAB).replace(engram=engram, max_position_embeddings=CONTEXT)
    model = EngramLM(config, VocabCompression.identity(VOCAB)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def column(frame: pd.DataFrame, name: str, layer: int) -> np.ndarray:
    return frame.loc[frame["layer"] == layer, name].to_numpy()


@pytest.mark.parametrize("name", ["ours", *FAMILIES])
def test_the_last_layer_is_the_models_output(name):
    model, ids = (ours() if name == "ours" else foreign(name)), some_ids()
    frame = logit_lens(model, ids, words(ids))
    with torch.no_grad():
        logprob = model(ids).logits.log_softmax(-1)[0]
    last = int(frame["layer"].max())
    entropy = -(logprob.exp() * logprob).sum(-1)
    ranks = (logprob[:-1] > logprob[:-1].gather(-1, ids[0, 1:, None])).sum(-1) + 1
    assert (column(frame, "kl_nats", last) == 0).all()
    assert (column(frame, "reverse_kl_nats", last) == 0).all()
    assert column(frame, "entropy_nats", last) == pytest.approx(entropy.numpy(), abs=1e-5)
    assert column(frame, "target_rank", last)[:-1].tolist() == ranks.tolist()


def test_every_layer_is_its_own_stream_through_norm_and_head():
    model, ids = foreign("gpt2"), some_ids()
    frame = logit_lens(model, ids, words(ids))
    with torch.no_grad():
        states = model(ids, output_hidden_states=True)
        final = states.logits.double().log_softmax(-1)
        for layer in range(BLOCKS):
            hidden = states.hidden_states[layer]
            seen = model.lm_head(model.transformer.ln_f(hidden)).double().log_softmax(-1)
            kl = (final.exp() * (final - seen)).sum(-1)[0]
            reverse = (seen.exp() * (seen - final)).sum(-1)[0]
            assert column(frame, "kl_nats", layer) == pytest.approx(kl.numpy(), abs=1e-5)
            assert column(frame, "reverse_kl_nats", layer) == pytest.approx(
                reverse.numpy(), abs=1e-5
            )


def test_divergences_are_the_golden_ones_in_both_directions():
    golden = json.loads(GOLDEN.read_text())
    final = torch.tensor(golden["final_logprob"], dtype=torch.float64)
    layer = torch.tensor(golden["layer_logprob"], dtype=torch.float64)
    measured = Outcome(final).compare(layer, torch.zeros(len(final), dtype=torch.int64))
    assert measured["kl_nats"].tolist() == pytest.approx(golden["kl_final_from_layer"], rel=1e-10)
    assert measured["reverse_kl_nats"].tolist() == pytest.approx(
        golden["kl_layer_from_final"], rel=1e-10
    )


def test_an_answer_that_the_embedding_knows_is_seen_at_layer_0():
    # the embedding is a hundredth of what the blocks write, and points at the next id
    config = GPT2Config(
        vocab_size=16, n_embd=16, n_layer=2, n_head=2, n_positions=16, tie_word_embeddings=False
    )
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.copy_(0.01 * torch.eye(16))
        model.transformer.wpe.weight.zero_()
        model.lm_head.weight.copy_(5 * torch.eye(16).roll(1, 0))
        for block in model.transformer.h:
            block.mlp.c_proj.bias.normal_(std=1.0)
    ids = torch.arange(3, 12)[None]
    frame = logit_lens(model, ids, words(ids))
    assert column(frame, "entropy_nats", 0).max() < 0.01
    assert (column(frame, "target_rank", 0)[:-1] == 1).all()


def test_there_is_a_row_per_layer_and_token_sorted_by_layer():
    ids = some_ids()
    frame = logit_lens(foreign("llama"), ids, words(ids))
    assert tuple(frame.columns) == COLUMNS
    assert frame["layer"].tolist() == [layer for layer in range(BLOCKS + 1) for _ in range(9)]
    assert column(frame, "token", 2).tolist() == words(ids)
    assert column(frame, "position", 2).tolist() == list(range(9))
    assert frame["kl_nats"].dtype == "float32" and (frame["kl_nats"] >= 0).all()


def test_the_end_of_the_text_has_no_target():
    ids = some_ids()
    frame = logit_lens(foreign("llama"), ids, words(ids))
    assert frame.loc[frame["position"] == 8, "target_rank"].isna().all()
    assert frame.loc[frame["position"] < 8, "target_rank"].between(1, VOCAB).all()


def test_top_tokens_are_readable_where_the_text_or_a_decoder_knows_them():
    model, ids = foreign("llama"), some_ids()
    named = logit_lens(model, ids, words(ids), decode=spelled)
    bare = logit_lens(model, ids, words(ids))
    assert named["top_token"].str.startswith("t").all()
    known = set(words(ids))
    for full, short in zip(named["top_token"], bare["top_token"], strict=True):
        assert short == (full if full in known else "#" + full[1:])


def test_texts_of_different_length_read_as_each_alone():
    model, ids = foreign("gpt2"), some_ids(2)
    for side in (slice(3, None), slice(0, 6)):
        mask = torch.ones_like(ids)
        mask[0] = 0
        mask[0, side] = 1
        rows = [words(ids[:1]), words(ids[1:])]
        frame = logit_lens(model, ids, rows, attention_mask=mask, decode=spelled)
        alone = logit_lens(model, ids[:1, side], rows[0][side], decode=spelled)
        part = frame[frame["sequence"] == 0].drop(columns="sequence").reset_index(drop=True)
        assert len(frame) == (BLOCKS + 1) * 15
        pd.testing.assert_frame_equal(part, alone, atol=1e-4)


def test_one_token_is_a_text():
    ids = some_ids(1, 1)
    frame = logit_lens(foreign("gpt2"), ids, words(ids))
    assert len(frame) == BLOCKS + 1
    assert frame["target_rank"].isna().all() and frame["kl_nats"].notna().all()


def test_parts_of_any_size_give_the_same_rows(monkeypatch):
    model, ids = foreign("llama"), some_ids(2, 11)
    whole = logit_lens(model, ids, words(ids))
    monkeypatch.setattr(lens, "PART_VALUES", VOCAB)  # one position at a time
    pd.testing.assert_frame_equal(logit_lens(model, ids, words(ids)), whole, atol=1e-5)


def test_logits_of_a_layer_are_never_all_in_memory():
    vocab, seq, layers = 49_152, 24, 30
    config = GPT2Config(vocab_size=vocab, n_embd=8, n_layer=layers, n_head=1, n_positions=seq)
    model, ids = GPT2LMHeadModel(config).eval(), torch.randint(3, vocab, (1, seq))
    with PeakBytes() as memory:
        logit_lens(model, ids, words(ids))
    layers_worth = memory.peak / (4 * seq * vocab)
    assert layers_worth < 1.5  # all of them are 31


def test_the_meter_sees_what_it_should():
    with PeakBytes() as memory:
        whole = torch.ones(1000)
        whole[:10].add_(1)
        del whole
        torch.ones(10) + torch.ones(10)
    assert memory.peak == 4000


def test_without_memory_the_stream_lacks_it_and_the_outcome_stays():
    model, ids = ours(), some_ids()
    whole = logit_lens(model, ids, words(ids))
    without = logit_lens(model, ids, words(ids), without_memory=True)
    assert (column(without, "kl_nats", 0) == column(whole, "kl_nats", 0)).all()
    assert (column(without, "kl_nats", 1) != column(whole, "kl_nats", 1)).all()
    with torch.no_grad(), record(model, ["blocks.*.engram.hook_out"]) as seen:
        final = model(ids).logits.log_softmax(-1)
    last = residual_stream(model, ids)[-1] - sum(value.squeeze(2) for value in seen.values())
    left = anatomy_of(model).logits(last).log_softmax(-1)
    kl = (final.exp() * (final - left)).sum(-1)[0]
    assert column(without, "kl_nats", 2) == pytest.approx(kl.detach().numpy(), abs=1e-5)
    with pytest.raises(ValueError, match="this model has none. Leave out without_memory"):
        logit_lens(foreign("gpt2"), ids, words(ids), without_memory=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_models_of_other_dtypes_give_frames_of_numbers(dtype):
    ids = some_ids()
    frame = logit_lens(foreign("gpt2").to(dtype), ids, words(ids))
    assert frame["kl_nats"].dtype == ("float64" if dtype == torch.float64 else "float32")
    assert frame.drop(columns="target_rank").notna().all(axis=None)


def test_the_model_is_left_as_it_was_also_after_an_error():
    model, ids = ours().train(), some_ids()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    logit_lens(model, ids, words(ids))
    with pytest.raises(ValueError, match="at most 24 positions"):
        long = some_ids(1, 25)
        logit_lens(model, long, words(long))
    with torch.no_grad():
        model.blocks[1].attn_norm.weight[0] = math.nan
    with pytest.raises(ValueError, match="at layer 2 it holds NaN"):
        logit_lens(model, ids, words(ids))
    with torch.no_grad():
        model.blocks[1].attn_norm.weight.copy_(weights["blocks.1.attn_norm.weight"])
    assert [module.training for module in model.modules()] == modes
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


def test_a_later_token_changes_nothing_earlier():
    model, ids = ours(), some_ids()
    long = logit_lens(model, ids, words(ids))
    short = logit_lens(model, ids[:, :5], words(ids[:, :5]))
    shared = long[long["position"] < 5]
    assert shared["kl_nats"].to_numpy() == pytest.approx(short["kl_nats"].to_numpy(), abs=1e-5)


def test_a_model_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="stream of a Linear is not known"):
        logit_lens(torch.nn.Linear(2, 2), some_ids(), words(some_ids()))


def test_a_lens_that_misses_the_models_output_says_which_part_is_wrong():
    model, ids = foreign("gemma2"), some_ids()
    model.config.final_logit_softcapping = None
    anatomy = anatomy_of(model)
    model.config.final_logit_softcapping = 2.0
    with pytest.raises(ValueError, match=r"Wrong part: .* cap None alone \(factor, cap\)"):
        logit_lens(model, ids, words(ids), anatomy=anatomy)


def test_ids_need_one_text_each():
    with pytest.raises(ValueError, match=r"one text per id .* shape \(1, 9\) and 2 texts"):
        logit_lens(foreign("gpt2"), some_ids(), ["a", "b"])


def test_a_text_is_read_with_our_tokenizer_or_one_from_transformers():
    tokenizer = load_tokenizer("byte")
    model = EngramLM(tiny(tokenizer.vocab_size).replace(engram=None)).eval()
    frame = lens_frame(model, "one and two", tokenizer)
    other = tokenizer.to_transformers()
    assert isinstance(other, PreTrainedTokenizerFast)
    assert "".join(column(frame, "token", 0)) == "one and two"
    same = lens_frame(model, "one and two", other)
    assert (same["kl_nats"] == frame["kl_nats"]).all()
    assert "".join(column(same, "token", 0)) == "one and two"
    for each in (tokenizer, other):
        with pytest.raises(ValueError, match="at least one token; got ''"):
            lens_frame(model, "", each)


def small_frame() -> pd.DataFrame:
    """Two runs of three layers and two positions whose means are easy."""
    rows = [
        {"arm": arm, "layer": layer, "position": position, "token": "x"}
        | {"kl_nats": scale * value, "top_token": "end" if layer == 2 or position else "other"}
        for arm, scale in (("a", 1.0), ("b", 2.0))
        for layer, value in enumerate((4.0, 1.0, 0.0))
        for position in (0, 1)
    ]
    return pd.DataFrame(rows)


def test_a_summary_is_the_area_and_the_layer_where_the_divergence_has_halved():
    summary = lens_summary(small_frame(), by=["arm"])
    assert summary["arm"].tolist() == ["a", "b"]
    assert summary["kl_area_nats"].tolist() == pytest.approx([1.5, 3.0])
    assert summary["half_layer"].tolist() == [1, 1]
    assert summary["half_depth"].tolist() == [0.5, 0.5]
    assert summary["agreement_area"].tolist() == pytest.approx([0.625, 0.625])


def test_layer_means_count_positions_and_agreement_with_the_end():
    means = layer_means(small_frame(), by=["arm"])
    assert means["positions"].tolist() == [2] * 6
    assert means["agreement"].tolist() == [0.5, 0.5, 1.0] * 2


def test_runs_that_are_not_told_apart_are_refused():
    with pytest.raises(ValueError, match="by=\\('arm', 'seed'\\)"):
        lens_summary(small_frame())
    with pytest.raises(ValueError, match="missing: top_token"):
        lens_summary(small_frame().drop(columns="top_token"))


def test_gpt2_agrees_with_transformer_lens():
    reason = "needs TransformerLens below 4, which computes GPT-2 by itself"
    hooked = pytest.importorskip("transformer_lens.HookedTransformer", reason=reason)
    conversions = pytest.importorskip("transformer_lens.pretrained.weight_conversions")
    model, ids = foreign("gpt2"), some_ids(1, 12)
    config = hooked.HookedTransformerConfig(
        n_layers=BLOCKS,
        d_model=16,
        n_ctx=CONTEXT,
        d_head=8,
        n_heads=2,
        d_mlp=64,
        d_vocab=VOCAB,
        act_fn="gelu_new",
        normalization_type="LN",
        device="cpu",
    )
    theirs = hooked.HookedTransformer(config)
    theirs.load_state_dict(conversions.convert_gpt2_weights(model, config), strict=False)
    frame = logit_lens(model, ids, words(ids))
    with torch.no_grad():
        logits, cache = theirs.run_with_cache(ids)
        final = logits.log_softmax(-1)[0]
        for layer in range(BLOCKS):
            stream = cache[f"blocks.{layer}.hook_resid_pre"]
            seen = theirs.unembed(theirs.ln_final(stream)).log_softmax(-1)[0]
            kl = (final.exp() * (final - seen)).sum(-1)
            entropy = -(seen.exp() * seen).sum(-1)
            assert column(frame, "kl_nats", layer) == pytest.approx(kl.numpy(), abs=1e-4)
            assert column(frame, "entropy_nats", layer) == pytest.approx(entropy.numpy(), abs=1e-4)
