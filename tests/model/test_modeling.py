"""EngramLM: an honest `transformers` model whose cached, padded, packed and saved forms agree."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from engram_lab.hooks import edit, record
from engram_lab.memory.config import EngramConfig
from engram_lab.model.cache import EngramCache
from engram_lab.model.config import EngramLMConfig, MoEConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression

VOCAB = 40


def small_model(*, seed: int = 0, **changes) -> EngramLM:
    torch.manual_seed(seed)
    values = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 24,
        "initializer_range": 0.3,
        "max_position_embeddings": 128,
        "moe": MoEConfig(
            n_routed_experts=4, topk=2, expert_width=8, shared_width=8, first_dense_layers=1
        ),
        "engram": EngramConfig(
            layer_ids=(0, 2),
            engram_vocab_size=(31, 37),
            n_head_per_ngram=2,
            n_embed_per_ngram=8,
            init_std=0.5,
        ),
    }
    model = EngramLM(
        EngramLMConfig(**{**values, **changes}), compression=VocabCompression.identity(VOCAB)
    )
    for (
        memory
    ) in model.memories.values():  # the convolution starts at zero; give it something to do
        torch.nn.init.normal_(memory.conv_weight, std=0.5)
    return model.eval()


def ids(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(4, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def test_config_survives_json_and_files(tmp_path):
    config = small_model().config
    config.save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert again.canonical_dict() == config.canonical_dict()
    assert isinstance(again.engram, EngramConfig) and isinstance(again.moe, MoEConfig)


def test_misspelt_config_key_names_the_nearest_known_key():
    with pytest.raises(ValueError, match="hiden_size.*nearest known key: 'hidden_size'"):
        EngramLMConfig(hiden_size=32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 18}, "multiple of twice num_attention_heads"),
        ({"num_key_value_heads": 3}, "must divide num_attention_heads"),
        ({"hc_mult": 4}, "hc_mult must be 1"),
        ({"num_hidden_layers": 2}, r"layer_ids must lie in 0\.\.1"),
    ],
)
def test_a_config_that_cannot_work_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small_model(**changes)


def test_saved_model_loads_through_auto_classes_with_equal_logits(tmp_path):
    model = small_model()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(again, EngramLM) and set(again.memories) == {0, 2}
    assert torch.equal(model(ids(2, 9)).logits, again(ids(2, 9)).logits)


def test_loading_memory_from_a_checkpoint_without_one_says_so(tmp_path):
    plain = small_model(engram=None)
    plain.save_pretrained(tmp_path)
    config = small_model().config
    with pytest.raises(ValueError, match="no weights for the memory"):
        EngramLM.from_pretrained(tmp_path, config=config)


def test_another_token_map_is_refused_on_load(tmp_path):
    model = small_model()
    model.token_map[5:] -= 1  # a map that folds ids 4 and 5
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="token map has SHA-256"):
        EngramLM.from_pretrained(tmp_path)


def test_a_tokenizer_that_does_not_fit_is_refused_with_both_sizes():
    with pytest.raises(ValueError, match=f"cover vocab_size={VOCAB} ids; got 41"):
        EngramLM(small_model().config, compression=VocabCompression.identity(41))


def test_a_compressing_memory_without_a_map_is_refused():
    config = small_model().config.replace(canonical_vocab_size=None, token_map_sha256=None)
    with pytest.raises(ValueError, match="needs compression="):
        EngramLM(config)


@pytest.mark.parametrize("bad", [-1, VOCAB])
def test_ids_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match=f"must lie in 0..{VOCAB - 1}"):
        small_model()(torch.tensor([[5, bad]]))


def test_missing_ids_are_refused_and_rows_matter():
    model = small_model()
    with pytest.raises(ValueError, match="needs input_ids"):
        model(None)
    with edit(model, {"blocks.0.engram.hook_rows": torch.zeros_like}):
        without = model(ids(1, 6)).logits
    assert not torch.allclose(without, model(ids(1, 6)).logits)


def test_a_later_token_changes_nothing_earlier():
    model, first = small_model(), ids(1, 12)
    second = first.clone()
    second[0, 8] = (second[0, 8] + 1) % VOCAB
    before, after = model(first).logits, model(second).logits
    torch.testing.assert_close(before[:, :8], after[:, :8], atol=0, rtol=0)
    assert not torch.allclose(before[:, 8:], after[:, 8:])


@pytest.mark.parametrize("chunks", [(1,) * 12, (5, 7), (1, 10, 1), (12,)])
def test_any_chunking_with_a_cache_equals_one_pass(chunks):
    model, tokens = small_model(), ids(2, 12)
    cache, parts = EngramCache(model.config), []
    for chunk in tokens.split(chunks, dim=1):
        parts.append(model(chunk, cache=cache, use_cache=True).logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_with_a_cache_equals_generation_without(beams):
    model, prompt = small_model(), ids(2, 5)
    options = {"max_new_tokens": 16, "do_sample": False, "num_beams": beams, "eos_token_id": None}
    with_cache = model.generate(prompt, use_cache=True, **options)
    without = model.generate(prompt, use_cache=False, **options)
    assert torch.equal(with_cache, without)


def test_sampling_is_reproducible_and_stays_in_the_vocabulary():
    model, prompt, drawn = small_model(), ids(2, 5), []
    for use_cache in (True, False):
        torch.manual_seed(3)
        drawn.append(
            model.generate(
                prompt, do_sample=True, max_new_tokens=8, use_cache=use_cache, eos_token_id=None
            )
        )
    assert torch.equal(*drawn) and drawn[0].max() < VOCAB


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_leaves_real_positions_alone(side):
    model, tokens = small_model(), ids(1, 7)
    padding = torch.zeros(1, 4, dtype=torch.int64)
    pieces = [padding, tokens] if side == "left" else [tokens, padding]
    mask = torch.cat([torch.zeros_like(padding), torch.ones_like(tokens)], dim=1)
    mask = mask if side == "left" else mask.flip(1)
    padded = model(torch.cat(pieces, dim=1), attention_mask=mask).logits[mask.bool()]
    torch.testing.assert_close(padded, model(tokens).logits[0], atol=1e-5, rtol=1e-5)


def test_prompts_of_different_length_generate_together_as_alone():
    model, short, long = small_model(), ids(1, 3), ids(1, 6, seed=2)
    batch = torch.cat([torch.cat([torch.zeros(1, 3, dtype=torch.int64), short], dim=1), long])
    mask = torch.tensor([[0] * 3 + [1] * 3, [1] * 6])
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    together = model.generate(batch, attention_mask=mask, **options)
    assert torch.equal(together[0, 3:], model.generate(short, **options)[0])
    assert torch.equal(together[1], model.generate(long, **options)[0])


def test_packed_documents_equal_documents_alone():
    model, first, second = small_model(), ids(1, 6), ids(1, 8, seed=2)
    packed, documents = torch.cat([first, second], dim=1), torch.tensor([[0] * 6 + [1] * 8])
    logits = model(packed, document_ids=documents).logits
    torch.testing.assert_close(logits[:, :6], model(first).logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits[:, 6:], model(second).logits, atol=1e-5, rtol=1e-5)


def test_changing_one_document_leaves_its_neighbour_bit_identical():
    model, packed = small_model(), ids(1, 14)
    documents, other = torch.tensor([[0] * 6 + [1] * 8]), packed.clone()
    other[0, 5] = (other[0, 5] + 1) % VOCAB
    before = model(packed, document_ids=documents).logits
    after = model(other, document_ids=documents).logits
    assert torch.equal(before[:, 6:], after[:, 6:])


def test_cached_chunks_of_packed_documents_equal_one_pass():
    model, packed = small_model(), ids(1, 14)
    documents, cache = torch.tensor([[0] * 6 + [1] * 8]), EngramCache(small_model().config)
    parts = [
        model(packed[:, a:b], document_ids=documents[:, a:b], cache=cache, use_cache=True).logits
        for a, b in ((0, 4), (4, 9), (9, 14))
    ]
    whole = model(packed, document_ids=documents).logits
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_loss_is_the_mean_over_predicted_tokens_and_skips_document_starts():
    model, packed = small_model(), ids(1, 14)
    documents = torch.tensor([[0] * 6 + [1] * 8])
    output = model(packed, labels=packed, document_ids=documents)
    log_probs = output.logits.log_softmax(-1)[0, :-1].gather(-1, packed[0, 1:, None]).squeeze(-1)
    keep = torch.arange(13) != 5
    torch.testing.assert_close(output.loss, -log_probs[keep].mean())


def test_micro_batches_with_a_common_divisor_sum_to_the_loss_of_one_batch():
    model, tokens = small_model(), ids(4, 9)
    labels = tokens.clone()
    labels[0, 3:] = -100
    predicted = (labels[:, 1:] != -100).sum()
    whole = model(tokens, labels=labels).loss
    parts = [
        model(part, labels=wanted, num_items_in_batch=predicted).loss
        for part, wanted in zip(tokens.split(1), labels.split(1), strict=True)
    ]
    torch.testing.assert_close(sum(parts), whole)


def test_reported_loss_holds_no_balance_loss():
    moe = MoEConfig(n_routed_experts=4, topk=2, expert_width=8, shared_width=8, sequence_loss=0.5)
    model, tokens = small_model(moe=moe).train(), ids(2, 9)
    output = model(tokens, labels=tokens)
    plain = torch.nn.functional.cross_entropy(
        output.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
    )
    torch.testing.assert_close(output.loss, plain)
    assert output.balance_loss > 0


def test_two_generations_on_one_model_do_not_meet():
    model = small_model()
    streams = [(ids(1, 10, seed=s), EngramCache(model.config)) for s in (5, 6)]
    logits: list[list[torch.Tensor]] = [[], []]
    for step in range(10):
        for row, (tokens, cache) in enumerate(streams):
            logits[row].append(
                model(tokens[:, step : step + 1], cache=cache, use_cache=True).logits
            )
    for row, (tokens, _) in enumerate(streams):
        torch.testing.assert_close(
            torch.cat(logits[row], dim=1), model(tokens).logits, atol=1e-5, rtol=1e-5
        )


def test_cropping_the_cache_rewinds_the_memory_too():
    model, tokens, detour = small_model(), ids(1, 10), ids(1, 4, seed=9)
    cache = EngramCache(model.config)
    model(tokens[:, :6], cache=cache, use_cache=True)
    model(detour, cache=cache, use_cache=True)
    cache.crop(-4)
    rest = model(tokens[:, 6:], cache=cache, use_cache=True).logits
    torch.testing.assert_close(rest, model(tokens).logits[:, 6:], atol=1e-5, rtol=1e-5)


def test_a_cache_without_history_is_refused():
    with pytest.raises(TypeError, match="EngramCache.*got DynamicCache"):
        small_model()(ids(1, 3), cache=DynamicCache())


def test_bfloat16_model_generates_and_keeps_its_dtype_and_integer_buffers():
    model = small_model().to(torch.bfloat16)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        output = model.generate(ids(1, 4), max_new_tokens=3, eos_token_id=None)
    finally:
        torch.set_default_dtype(default)
    assert output.shape == (1, 7) and model(ids(1, 4)).logits.dtype == torch.bfloat16
    assert model.token_map.dtype == torch.int64
    model.check_constants()


def test_no_parameter_or_buffer_is_float64():
    state = small_model().state_dict()
    assert not [name for name, value in state.items() if value.dtype == torch.float64]


def test_every_hook_point_can_change_the_logits():
    model, tokens = small_model(), ids(1, 6)
    plain = model(tokens).logits
    names = [n for n, _ in model.named_modules() if n.rsplit(".", 1)[-1].startswith("hook_")]
    for name in names:
        with record(model, [name]) as seen:
            model(tokens)
        if not seen[name].is_floating_point():
            continue
        change = (lambda value: value.flip(-1)) if "probs" in name else torch.zeros_like
        with edit(model, {name: change}):
            assert not torch.allclose(model(tokens).logits, plain), name


def test_tied_embeddings_share_one_matrix_through_saving(tmp_path):
    model = small_model(tie_word_embeddings=True)
    assert model.lm_head.weight is model.embed_tokens.weight
    model.save_pretrained(tmp_path)
    again = EngramLM.from_pretrained(tmp_path)
    assert again.lm_head.weight is again.embed_tokens.weight
    assert torch.equal(model(ids(1, 5)).logits, again(ids(1, 5)).logits)


def test_text_beyond_the_context_is_refused_with_both_lengths():
    with pytest.raises(ValueError, match="at most 128 positions.*got 129"):
        small_model()(ids(1, 129))


def test_a_saved_config_alone_builds_no_model_with_a_made_up_token_map():
    with pytest.raises(ValueError, match="needs compression="):
        EngramLM(small_model().config)


def test_a_rewind_that_the_memory_refuses_leaves_the_cache_whole():
    model, tokens = small_model(), ids(1, 60)
    cache = EngramCache(model.config)
    model(tokens, cache=cache, use_cache=True)
    with pytest.raises(ValueError, match="rewind"):
        cache.crop(-50)
    assert cache.get_seq_length() == 60
    assert int(cache.memory.length[0]) == 60


def test_editing_the_projection_reaches_the_logits():
    model, tokens = small_model(), ids(1, 6)
    plain = model(tokens).logits
    with edit(model, {"blocks.0.engram.projection": torch.zeros_like}):
        assert not torch.allclose(model(tokens).logits, plain)


def test_router_scores_stay_in_float32_under_autocast():
    model, tokens = small_model(), ids(1, 6)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        record(model, ["*.hook_router_probs"]) as seen,
    ):
        model(tokens)
    assert {value.dtype for value in seen.values()} == {torch.float32}
