"""Ways in which such models fail without an error: history, leaks, dropped arguments, dtypes."""

import threading

import pytest
import torch
import torch.nn.functional as F

from engram_lab.hooks import edit, record
from engram_lab.memory.config import EngramConfig
from engram_lab.model.cache import EngramCache
from engram_lab.model.config import MoEConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.model.moe import sequence_balance_loss
from engram_lab.tokens.compression import VocabCompression
from tests.model.test_modeling import VOCAB, ids, small_model
from tests.twins import hashing as twin

EXACT, CLOSE = {"atol": 0, "rtol": 0}, {"atol": 1e-5, "rtol": 1e-5}
EXPERTS = {"n_routed_experts": 4, "topk": 2, "expert_width": 8, "shared_width": 8}
BALANCED = MoEConfig(**EXPERTS, sequence_loss=1.0)
GREEDY = {"do_sample": False, "eos_token_id": None}


def padded(tokens: torch.Tensor, *, left: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids behind `left` pads, and their mask."""
    pads = torch.zeros(len(tokens), left, dtype=torch.int64)
    return torch.cat([pads, tokens], 1), torch.cat([pads, torch.ones_like(tokens)], 1)


def gradients(model: EngramLM, loss: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    loss.backward()
    found = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in model.parameters()]
    return [gradient.clone() for gradient in found]


# decoding remembers what a full pass sees


def test_every_step_of_generation_has_the_logits_of_a_pass_over_its_whole_prefix():
    model, prompt = small_model(), ids(2, 5)
    options = {"output_logits": True, "return_dict_in_generate": True, "max_new_tokens": 16}
    found = model.generate(prompt, use_cache=True, **options, **GREEDY)
    assert len(found.logits) == 16
    for step, logits in enumerate(found.logits):
        expected = model(found.sequences[:, : 5 + step]).logits[:, -1]
        torch.testing.assert_close(logits, expected, **CLOSE)
        assert torch.equal(expected.argmax(-1), found.sequences[:, 5 + step])


def test_a_decoded_token_reads_the_rows_of_its_ngrams_and_not_those_of_the_token_alone():
    model, tokens = small_model(), ids(1, 6)
    name = "blocks.2.engram.hook_addresses"
    seen = {}
    cache = EngramCache(model.config)
    model(tokens[:, :5], cache=cache)
    passes = {"cached": (tokens[:, 5:], cache), "whole": (tokens, None), "alone": (tokens[:, 5:],)}
    for label, (chunk, *rest) in passes.items():
        with record(model, [name]) as found:
            model(chunk, cache=rest[0] if rest else None)
        seen[label] = found[name][:, -1]
    assert torch.equal(seen["cached"], seen["whole"])
    assert not (seen["cached"] == seen["alone"]).any()


def test_threads_that_decode_on_one_model_at_once_do_not_meet():
    model = small_model()
    prompts = [ids(1, 4 + seed, seed=seed) for seed in range(3)]
    alone = [model.generate(prompt, max_new_tokens=8, **GREEDY) for prompt in prompts]
    found: dict[int, torch.Tensor] = {}

    def decode(index: int) -> None:
        found[index] = model.generate(prompts[index], max_new_tokens=8, **GREEDY)

    threads = [threading.Thread(target=decode, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[index], alone[index]) for index in range(3))


def test_windows_open_with_the_image_of_the_tokenizers_own_pad_id_everywhere(tmp_path):
    # ids 3 and 4 share an image, so that the image of the pad id 9 is 8
    table = [0, 1, 2, 3, 3, *range(4, VOCAB - 1)]
    config = small_model().config.replace(
        pad_token_id=9,
        canonical_vocab_size=None,
        canonical_pad_id=None,
        canonical_eos_id=None,
        token_map_sha256=None,
    )
    model = EngramLM(config, VocabCompression.from_table(table)).eval()
    tokens = ids(1, 5)
    expected = twin.addresses(
        [table[token] for token in tokens[0].tolist()],
        twin.pcg_multipliers(VOCAB - 1, 0, 0, 3),
        twin.prime_layout(2, [31, 37], 2)[0],
        fill=8,
    )
    model.save_pretrained(tmp_path)
    again = EngramLM.from_pretrained(tmp_path)
    assert again.config.canonical_pad_id == 8  # what a reader of the files can look up
    name = "blocks.0.engram.hook_addresses"
    for candidate in (model.train(), model.eval(), again):
        with record(candidate, [name]) as seen:
            candidate(tokens)
        assert seen[name][0].tolist() == expected
    cache, found = EngramCache(model.config), []
    for position in range(5):
        with record(model, [name]) as seen:
            model(tokens[:, position : position + 1], cache=cache)
        found += seen[name][0].tolist()
    assert found == expected


# nothing leaks


def test_a_target_reaches_neither_addresses_nor_rows_nor_logits_of_its_position():
    model, tokens = small_model(), ids(1, 12)
    changed = tokens.clone()
    changed[0, 8] = (changed[0, 8] + 1) % VOCAB
    names = ["blocks.*.engram.hook_addresses", "blocks.*.engram.hook_rows"]
    values = []
    for text in (tokens, changed):
        with record(model, names) as seen:
            output = model(text, labels=text)
        values.append([*seen.values(), output.logits])
    assert len(values[0]) == 5
    for before, after in zip(*values, strict=True):
        torch.testing.assert_close(before[:, :8], after[:, :8], **EXACT)
        assert not torch.equal(before[:, 8:], after[:, 8:])


def test_labels_change_the_loss_and_no_logit():
    model, tokens = small_model(), ids(2, 9)
    shifted = tokens.roll(-1, dims=1)
    outputs = [model(tokens, labels=labels) for labels in (tokens, shifted)]
    assert torch.equal(outputs[0].logits, outputs[1].logits)
    assert torch.equal(outputs[0].logits, model(tokens).logits)
    assert outputs[0].loss != outputs[1].loss


def test_an_idle_row_is_harmless_and_touches_no_row_of_the_table():
    model, tokens = small_model(), ids(3, 7)
    mask = torch.tensor([[1] * 7, [0] * 7, [0] * 3 + [1] * 4])
    names = ["blocks.*.engram.hook_addresses", "blocks.*.engram.hook_out"]
    with record(model, names) as seen:
        output = model(tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100))
    assert output.logits.isfinite().all()
    torch.testing.assert_close(output.logits[:1], model(tokens[:1]).logits, **CLOSE)
    torch.testing.assert_close(output.logits[2:, 3:], model(tokens[2:, 3:]).logits, **CLOSE)
    output.loss.backward()
    for layer, memory in model.memories.items():
        assert not seen[f"blocks.{layer}.engram.hook_out"][mask == 0].any()
        live = seen[f"blocks.{layer}.engram.hook_addresses"][mask == 1] + memory.table.offsets
        touched = memory.table.weight.grad.to_dense().abs().sum(1).nonzero().flatten()
        assert len(touched) and set(touched.tolist()) <= set(live.flatten().tolist())


def test_an_idle_row_of_a_decoding_stays_apart():
    model, tokens = small_model(), ids(2, 8)
    cache, parts = EngramCache(model.config), []
    for end in range(1, 9):
        mask = torch.tensor([[1] * end, [0] * end])
        step = model(tokens[:, end - 1 : end], attention_mask=mask, cache=cache)
        parts.append(step.logits)
    logits = torch.cat(parts, dim=1)
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[:1], model(tokens[:1]).logits, **CLOSE)


# no argument is lost on the way


def run_full(model: EngramLM, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens).logits


def run_cached(model: EngramLM, tokens: torch.Tensor) -> torch.Tensor:
    cache = EngramCache(model.config)
    model(tokens[:, :4], cache=cache)
    return model(tokens[:, 4:], cache=cache).logits


def run_padded(model: EngramLM, tokens: torch.Tensor) -> torch.Tensor:
    longer, mask = padded(tokens, left=2)
    return model(longer, attention_mask=mask).logits[:, 2:]


def run_packed(model: EngramLM, tokens: torch.Tensor) -> torch.Tensor:
    documents = (torch.arange(tokens.shape[1]) >= 3).long().expand_as(tokens)
    return model(tokens, document_ids=documents).logits


every_pass = pytest.mark.parametrize("run", [run_full, run_cached, run_padded, run_packed])


@every_pass
@pytest.mark.parametrize("layer", [0, 2])
def test_every_memory_layer_reads_its_table_in_every_kind_of_pass(run, layer):
    model, tokens = small_model(), ids(2, 6)
    with torch.no_grad():
        before = run(model, tokens)
        model.memories[layer].table.weight.zero_()
        after = run(model, tokens)
    assert not torch.isclose(before, after, atol=1e-4).all(dim=-1).any()


@pytest.mark.parametrize("name", ["inputs_embeds", "past_key_values", "hash_ids"])
def test_an_argument_the_model_does_not_know_is_refused_by_name(name):
    with pytest.raises(TypeError, match=f"does not know {name}"):
        small_model()(ids(1, 3), **{name: torch.zeros(1, 3, 16)})


@pytest.mark.parametrize("run", [run_cached, run_padded])
def test_an_edit_of_any_hook_point_is_felt_in_decoding_and_beside_padding(run):
    model, tokens = small_model(), ids(2, 6)
    names = [n for n, _ in model.named_modules() if n.rsplit(".", 1)[-1].startswith("hook_")]
    assert sum(name.endswith("hook_addresses") for name in names) == 2
    with torch.no_grad():
        plain = run(model, tokens)
        for name in names:
            with edit(model, {name: torch.zeros_like}):
                assert not torch.allclose(run(model, tokens), plain), name


def test_a_negative_number_of_logits_is_refused_instead_of_giving_none():
    with pytest.raises(ValueError, match="logits_to_keep must be at least 0.*got -1"):
        small_model()(ids(1, 1), logits_to_keep=-1)


def test_more_logits_than_positions_are_all_logits():
    model, tokens = small_model(), ids(1, 4)
    assert torch.equal(model(tokens, logits_to_keep=9).logits, model(tokens).logits)


# losses


def routed(even: bool):
    """Scores that send every token to two of four experts: turn by turn, or always the same."""

    def change(scores: torch.Tensor) -> torch.Tensor:
        turn = torch.arange(len(scores)) % 2 if even else torch.zeros(len(scores))
        first = torch.tensor([0.97, 0.96, 0.01, 0.02])
        return torch.where(turn[:, None] == 0, first, first.flip(0))

    return change


@pytest.mark.parametrize("left", [0, 2])
def test_collapsed_routing_costs_more_than_even_routing_with_and_without_padding(left):
    model = small_model(moe=BALANCED).train()
    tokens, mask = padded(ids(1, 6), left=left)
    costs = []
    for even in (True, False):
        with edit(model, {"blocks.*.moe.router.hook_router_probs": routed(even)}):
            costs.append(model(tokens, attention_mask=mask).balance_loss.item())
    blocks = 3
    assert costs[0] == pytest.approx(blocks * 1.0, rel=1e-5)
    assert costs[1] > 1.9 * costs[0]


def test_padding_counts_neither_in_balance_loss_nor_in_the_load_of_any_block():
    model, tokens = small_model(moe=BALANCED).train(), ids(2, 6)
    found = []
    for left in (0, 5):
        longer, mask = padded(tokens, left=left)
        balance = model(longer, attention_mask=mask).balance_loss
        loads = [block.moe.router.load.clone() for block in model.blocks]
        found.append([balance, *loads])
        for block in model.blocks:
            block.moe.router.load.zero_()
    for alone, among_padding in zip(*found, strict=True):
        torch.testing.assert_close(among_padding, alone, **CLOSE)
    assert found[0][1].sum() == 2 * 6 * EXPERTS["topk"]


def test_balance_loss_reaches_the_router_of_every_block():
    model = small_model(moe=BALANCED).train()
    model(ids(2, 6)).balance_loss.backward()
    assert all(block.moe.router.weight.grad.abs().max() > 0 for block in model.blocks)


@pytest.mark.parametrize("size", [1e-30, 1e-37])
def test_scores_shrunk_towards_nothing_stay_above_the_even_bound(size):
    chosen = torch.tensor([[[0], [1], [2], [3]]])
    even = torch.full((1, 4, 4), size, requires_grad=True)
    loss = sequence_balance_loss(even, chosen)
    assert loss.item() >= 1 - 1e-6
    loss.backward()
    assert even.grad.isfinite().all()
    collapsed = torch.tensor([97.0, 1, 1, 1]).mul(size / 100).expand(1, 4, 4)
    assert sequence_balance_loss(collapsed, torch.zeros_like(chosen)).item() > 3


def test_mean_sum_and_parts_give_one_gradient():
    model, tokens = small_model(), ids(4, 9)
    labels = tokens.clone()
    labels[0, 3:] = -100  # parts of unequal numbers of labels
    count = (labels[:, 1:] != -100).sum()
    log_probs = model(tokens).logits[:, :-1].log_softmax(-1)
    sums = F.nll_loss(log_probs.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    expected = gradients(model, sums / count)
    whole = gradients(model, model(tokens, labels=labels).loss)
    halves = [
        model(part, labels=wanted, num_items_in_batch=count).loss
        for part, wanted in zip(tokens.split(2), labels.split(2), strict=True)
    ]
    for found in (whole, gradients(model, sum(halves))):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, **CLOSE)


# files


def six_blocks(*layers: int, seed: int = 0) -> EngramLM:
    engram = EngramConfig(
        layer_ids=layers, engram_vocab_size=(31, 37), n_head_per_ngram=2, n_embed_per_ngram=8
    )
    return small_model(num_hidden_layers=6, engram=engram, seed=seed)


def test_memory_in_two_of_six_blocks_survives_every_way_of_saving(tmp_path):
    model, tokens = six_blocks(1, 3), ids(2, 7)
    tables = [name for name in model.state_dict() if name.endswith("table.weight")]
    assert tables == ["blocks.1.engram.table.weight", "blocks.3.engram.table.weight"]
    other = six_blocks(1, 3, seed=5)
    other.load_state_dict(model.state_dict(), strict=True)
    model.save_pretrained(tmp_path)
    again, info = EngramLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for candidate in (other, again):
        assert torch.equal(candidate(tokens).logits, model(tokens).logits)


def test_memory_in_other_blocks_than_the_checkpoint_has_is_refused(tmp_path):
    six_blocks(1, 3).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no weights for the memory .*blocks.4.engram"):
        EngramLM.from_pretrained(tmp_path, config=six_blocks(1, 4).config)


# numbers


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_model_decodes_in_its_dtype_whatever_the_default(dtype):
    model, prompt = small_model().to(dtype), ids(1, 4)
    expected = model.generate(prompt, max_new_tokens=3, **GREEDY)
    cache = EngramCache(model.config)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(model.generate(prompt, max_new_tokens=3, **GREEDY), expected)
        logits = model(prompt, cache=cache).logits
        logits = torch.cat([logits, model(expected[:, 4:5], cache=cache).logits], dim=1)
    finally:
        torch.set_default_dtype(torch.float32)
    assert logits.dtype == dtype
    assert {layer.keys.dtype for layer in cache.layers} == {dtype}
    assert {tail.slots.dtype for tail in cache.memory._tails.values()} == {dtype}
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
