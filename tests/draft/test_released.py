"""The drafter in production form: the block is V4's, training is decoding, its size is known."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config

from engram_lab.configs import fingerprint, from_json, to_json
from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.interchange import save_drafter, save_speculators
from engram_lab.draft.released import ReleasedDrafter
from engram_lab.draft.released_config import (
    ReleasedConfig,
    last_taps,
    parameter_counts,
    quick,
    released,
)
from engram_lab.draft.released_layers import ReleasedBlock
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target, target_for
from engram_lab.hooks import record
from engram_lab.model.layers import rotary_angles
from engram_lab.model.residual import read_stream
from tests.draft.released_shapes import drafter_of
from tests.draft.test_drafter import absorbed, kept
from tests.draft.tiny import FAMILIES, family, some_ids
from tests.model.foreign import foreign

GREEDY = Sampling(temperature=0.0)
V41 = {"vocab_size": 129_280, "hidden_size": 5120, "target_depth": 40, "mask_token_id": 128_799}


def test_its_block_is_the_block_of_transformers() -> None:
    theirs, ours, positions = v4_layer(), v4_shaped_block(), torch.arange(6)[None]
    ours.load_state_dict(renamed(theirs.state_dict(), ours))
    branches = torch.randn(2, 6, 4, 32, generator=torch.Generator().manual_seed(1))
    cosine, sine = rotary_angles(positions, 8, 10_000.0)
    bias = torch.zeros(1, 1, 6, 6)
    bias[..., 4:] = -1e9
    expected = theirs(
        branches,
        position_embeddings={"main": (cosine[:, 0], sine[:, 0])},
        position_ids=positions,
        attention_mask=bias,
    )
    none = torch.zeros(2, 1, 0, 16)
    got = ours(branches, (cosine, sine), (none, none), bias)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("tap", ["entering", "raw_output"])
def test_decoding_sees_what_training_saw_beyond_the_window(tap: str) -> None:
    drafter = drafter_of(tap=tap, sliding_window=16)
    ids, lengths = some_ids(61, 2, 130), [120, 47]
    read = drafter.target.read(ids)
    drafted = drafter(ids, read.features, torch.tensor(lengths)[:, None], kept(2, 1))
    state = absorbed(drafter, read, ids, lengths)
    hidden, base = drafter.block(state)
    torch.testing.assert_close(hidden, drafted.hidden[:, 0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(base, drafted.base[:, 0], atol=1e-4, rtol=1e-4)
    proposal = drafter.propose(state, 5, Sampling(), Noise(2, 0))
    known = ids.clone()
    for row, length in enumerate(lengths):
        known[row, length + 1 : length + 6] = proposal.tokens[row]
    forced = drafter(known, read.features, torch.tensor(lengths)[:, None], kept(2, 1))
    law = torch.softmax(forced.logits[:, 0], dim=-1)
    torch.testing.assert_close(proposal.probs, law, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(proposal.confidence, forced.confidence[:, 0], atol=1e-4, rtol=1e-3)


def test_a_block_sees_its_window_of_real_tokens_and_all_its_own_slots() -> None:
    drafter = drafter_of("qwen3", sliding_window=3, num_hidden_layers=1)
    ids, anchors = some_ids(61, 1, 12), torch.tensor([[8]])
    features = drafter.target.read(ids).features
    clean = drafter(ids, features, anchors, kept(1, 1)).base
    for row, seen in ((4, False), (5, True), (7, True), (8, False)):
        spoilt = features.clone()
        spoilt[:, row] += 1.0
        moved = drafter(ids, spoilt, anchors, kept(1, 1)).base
        assert seen != torch.allclose(moved, clean, atol=1e-6)
    longer = drafter_of("qwen3", sliding_window=3, num_hidden_layers=1, block_size=6)
    other = longer(ids, features, anchors, kept(1, 1)).base[:, :, :5]
    assert not torch.allclose(other[:, :, 0], clean[:, :, 0], atol=1e-6)  # the first sees the last


def test_a_block_moved_to_another_position_is_the_same_block() -> None:
    drafter = drafter_of("qwen3", sliding_window=16)
    ids = some_ids(61, 1, 30)
    features = drafter.target.read(ids).features
    far_ids = torch.cat([some_ids(61, 1, 150, seed=5), ids], dim=1)
    far_features = torch.cat([torch.randn(1, 150, features.shape[-1]), features], dim=1)

    def apart(drafter: ReleasedDrafter) -> float:
        near = drafter(ids, features, torch.tensor([[20]]), kept(1, 1)).logits
        far = drafter(far_ids, far_features, torch.tensor([[170]]), kept(1, 1)).logits
        return float((far - near).detach().abs().max())

    assert apart(drafter) < 1e-3
    for layer in drafter.layers:  # values that stay rotated speak of absolute positions
        layer.self_attn.undo = False
    assert apart(drafter) > 1e-2


def test_entering_taps_are_read_behind_the_memory_and_before_the_block() -> None:
    model = family("memory")
    ids, memory = some_ids(61, 1, 9), 1
    reading = read_stream(model, ids)
    with record(model, [f"blocks.{memory}.engram.hook_out"]) as seen:
        features = Target(model, (0, memory, 2), tap="entering").read(ids).features
    first, second, third = features.chunk(3, dim=-1)
    update = reading.updates[memory]
    assert len(seen) == 1 and update.abs().max() > 0.1
    torch.testing.assert_close(first, reading.stream[0])
    torch.testing.assert_close(second, reading.stream[memory] + update)
    torch.testing.assert_close(third, reading.stream[2])


@pytest.mark.parametrize("name", FAMILIES)
def test_what_enters_a_block_is_read_from_every_kind_of_target(name: str) -> None:
    model, ids = family(name), some_ids(61, 2, 7)
    reading = read_stream(model, ids)
    wanted = [reading.stream[block] + reading.updates.get(block, 0) for block in (0, 1, 2)]
    read = Target(model, (0, 1, 2), tap="entering").read(ids)
    torch.testing.assert_close(read.features, torch.cat(wanted, dim=-1), atol=1e-5, rtol=1e-4)


def test_raw_outputs_reach_to_the_last_block_and_are_not_normed() -> None:
    model, ids = family("qwen3"), some_ids(61, 1, 7)
    read = Target(model, (1, 2), tap="raw_output").read(ids)
    stream = read_stream(model, ids).stream
    torch.testing.assert_close(read.features, torch.cat([stream[2], stream[3]], dim=-1))
    assert not torch.allclose(read.features[..., 16:], read.final, atol=0.1)


@pytest.mark.parametrize("tap", ["entering", "raw_output"])
def test_of_residual_branches_the_mean_is_read(tap: str) -> None:
    model = foreign("deepseek_v4")
    target, seen = Target(model, (1,), tap=tap), []
    handle = target.anatomy.blocks[1].register_forward_hook(
        lambda module, args, output: seen.append(output if tap == "raw_output" else args[0])
    )
    features = target.read(some_ids(61, 1, 5)).features
    handle.remove()
    torch.testing.assert_close(features, seen[0].mean(dim=2))


def test_one_tap_for_another_is_an_error_wherever_they_meet() -> None:
    drafter = drafter_of()
    model, blocks = drafter.target.model, drafter.layer_ids
    other = Target(model, blocks, tap="raw_output")
    with pytest.raises(ValueError, match="tap; the drafter's config says entering.*raw_output"):
        drafter.retarget(other)
    with pytest.raises(ValueError, match="'entering'.*'raw_output'; build it with target_for"):
        speculative_generate(other, drafter, some_ids(61, 1, 5), GenerationConfig())
    with pytest.raises(ValueError, match=r"last block, 2 of 3.*tap='raw_output'"):
        Target(model, blocks)
    with pytest.raises(ValueError, match=r"tap='entering'.*0\.\.2; got \(-1, 0\)"):
        Target(model, (-1, 0), tap="entering")
    assert target_for(model, drafter).tap == "entering"


def test_the_confidence_reads_the_state_before_the_norm_in_float32_without_a_bias() -> None:
    drafter = drafter_of()
    normed = drafter_of(confidence_reads="normed")
    ids, anchors = some_ids(61, 1, 20), torch.tensor([[9]])
    features = drafter.target.read(ids).features
    drafted = drafter(ids, features, anchors, kept(1, 1))
    before = ids[:, 9:14][:, None]
    weight = drafter.confidence_head.proj.weight[0]
    embedded = drafter.markov_head.embed(before)
    for which, state in ((drafter, drafted.hidden), (normed, drafter.norm(drafted.hidden))):
        expected = torch.cat([state, embedded], dim=-1) @ weight
        got = which(ids, features, anchors, kept(1, 1)).confidence
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    assert drafter.confidence_head.proj.bias is None
    for half in (drafter, drafter_of(attention_sinks=False)):
        found = half.to(torch.bfloat16)(ids, features, anchors, kept(1, 1))
        assert found.confidence.dtype == torch.float32 and found.hidden.dtype == torch.bfloat16


def test_the_drafter_trains_and_the_target_does_not() -> None:
    drafter = drafter_of("qwen3", n_routed_experts=4).train()
    ids, anchors = some_ids(61, 2, 30), torch.tensor([[3, 6, 9, 20]]).expand(2, -1)
    drafted = drafter(ids, drafter.target.read(ids).features, anchors, kept(2, 4))
    (drafted.logits.square().mean() + drafted.confidence.sum()).backward()
    idle = [name for name, p in drafter.named_parameters() if p.grad is None or not p.grad.any()]
    assert not idle
    assert all(p.grad is None for p in drafter.target.model.parameters())


def test_experts_that_were_busy_are_held_back_and_fillers_are_not_counted() -> None:
    drafter = drafter_of("qwen3", bias_update_rate=0.5)
    ids, anchors = some_ids(61, 1, 30), torch.tensor([[7, 0, 20]])
    features = drafter.target.read(ids).features
    router = drafter.layers[0].moe.router
    drafter(ids, features, anchors, kept(1, 3))
    assert not router.load.any()  # decoding counts nothing
    drafter.train()(ids, features, anchors, torch.tensor([[True, False, True]]))
    load = router.load.clone()
    assert load.sum() == 2 * 5 * 2  # kept blocks, slots, experts of a slot
    drafter.update_balance()
    assert torch.equal(router.bias, 0.5 * torch.sign(load.mean() - load))
    frozen = drafter_of("qwen3", bias_update_rate=0.0).train()
    frozen(ids, features, anchors, kept(1, 3))
    frozen.update_balance()
    assert not frozen.layers[0].moe.router.bias.any()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"markov_rank": 0, "attention_sinks": False},
        {"confidence": False, "n_shared_experts": 0, "hc_mult": 1},
    ],
    ids=str,
)
def test_the_count_of_parameters_is_that_of_the_modules(changes: dict) -> None:
    drafter = drafter_of(**changes)
    counts = parameter_counts(drafter.config)
    assert sum(counts.values()) == sum(p.numel() for p in drafter.parameters())
    experts = [p.numel() for n, p in drafter.named_parameters() if ".experts." in n]
    assert counts["experts"] == sum(experts)


def test_the_published_shape_has_the_published_number_of_parameters() -> None:
    config = released(**V41)
    counts = parameter_counts(config)
    assert counts["experts"] == 3 * 128 * 3 * 5120 * 2304  # 13.6 B
    assert (config.target_layer_ids, config.tap) == ((37, 38, 39), "entering")
    assert (config.sliding_window, config.block_size, config.hc_mult) == (128, 5, 4)
    assert (config.n_routed_experts, config.topk, config.n_shared_experts) == (128, 3, 1)
    assert (config.markov_rank, counts["markov"]) == (256, 2 * 129_280 * 256)
    assert counts["confidence"] == 5120 + 256
    assert counts["injection"] == 15_360 * 5120
    with torch.device("meta"):
        block = ReleasedBlock(config)
    assert 3 * sum(p.numel() for p in block.moe.experts.parameters()) == counts["experts"]
    flash = released(**V41 | {"hidden_size": 4096, "target_depth": 43, "tap": "raw_output"})
    assert flash.target_layer_ids == (40, 41, 42)
    assert parameter_counts(flash)["injection"] == 12_288 * 4096
    attention = (flash.num_attention_heads, flash.head_size, flash.rotary_size, flash.query_rank)
    assert attention == (64, 512, 64, 1024)  # as in V4-Flash
    assert (flash.output_groups, flash.output_rank) == (8, 1024)


@pytest.mark.parametrize("width", [16, 32, 64, 128, 192, 256])
def test_presets_fit_targets_of_every_width(width: int) -> None:
    sizes = {"vocab_size": 100, "hidden_size": width, "target_depth": 2, "mask_token_id": 9}
    small, whole = quick(**sizes), released(**sizes)
    assert (small.sliding_window, small.n_routed_experts, small.topk) == (32, 8, 2)
    assert (small.hc_mult, small.num_hidden_layers, small.block_size) == (2, 3, 5)
    assert replace(small, sliding_window=128, n_routed_experts=128, topk=3, hc_mult=4) == whole


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_key_value_heads": 2}, r"ReleasedConfig.num_key_value_heads must be 1.*got 2"),
        ({"markov_head_type": "gated"}, "markov_head_type must be 'vanilla'.*got 'gated'"),
        ({"rotary_size": 18}, r"rotary_size must be even and at most head_size \(16\); got 18"),
        ({"rotary_size": 3}, "rotary_size must be even.*got 3"),
        ({"output_groups": 3}, r"output_groups must be a divisor.*\(4\); got 3"),
        ({"intermediate_size": 12}, "intermediate_size must be a multiple of 8.*got 12"),
        ({"hc_mult": 0}, "ReleasedConfig.hc_mult must be at least 1; got 0"),
        ({"topk": 9}, r"ReleasedConfig.topk must lie in 1..n_routed_experts \(8\); got 9"),
        ({"n_shared_experts": -1}, "shared"),
        ({"tap": "output"}, r"last block, 2 of 3"),
        ({"sliding_window": 0}, "ReleasedConfig.sliding_window must be at least 1 or None; got 0"),
    ],
    ids=str,
)
def test_a_broken_rule_is_refused_with_what_was_got(changes: dict, told: str) -> None:
    sizes = {"vocab_size": 61, "hidden_size": 16, "target_depth": 3, "mask_token_id": 3}
    with pytest.raises(ValueError, match=told):
        quick(**sizes, **changes)


def test_no_more_drafts_than_its_block_and_no_target_without_blocks() -> None:
    drafter = drafter_of("qwen3")
    ids = some_ids(61, 1, 6)
    state = absorbed(drafter, drafter.target.read(ids), ids, [4])
    with pytest.raises(ValueError, match=r"block_size=5\); asked for 6"):
        drafter.propose(state, 6, GREEDY, Noise(1, 0))
    with pytest.raises(ValueError, match="at least 1 block; got 0"):
        last_taps(0)
    assert last_taps(2) == (0, 1)


def test_the_config_is_read_back_as_what_it_was_and_files_of_other_drafters_refuse_it(
    tmp_path: Path,
) -> None:
    config = drafter_of("qwen3").config
    assert from_json(ReleasedConfig, to_json(config)) == config
    plain = DraftConfig(
        vocab_size=61, hidden_size=16, target_depth=3, target_layer_ids=(0, 1), mask_token_id=3
    )
    assert fingerprint(replace(plain, tap="entering")) != fingerprint(plain)
    entering = Drafter(
        replace(plain, tap="entering"), Target(family("qwen3"), (0, 1), tap="entering")
    )
    for drafter in (drafter_of("qwen3"), entering):
        for save in (save_drafter, save_speculators):
            with pytest.raises(ValueError, match=r"with tap='entering'"):
                save(drafter, tmp_path / "there")
    assert not list(tmp_path.iterdir())


def v4_layer() -> nn.Module:
    """A random block of transformers' V4 with a window alone."""
    config = DeepseekV4Config(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        moe_intermediate_size=16,
        n_routed_experts=8,
        num_experts_per_tok=3,
        head_dim=16,
        q_lora_rank=8,
        o_lora_rank=8,
        o_groups=2,
        qk_rope_head_dim=8,
        layer_types=["sliding_attention"],
        mlp_layer_types=["moe"],
    )
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    layer = v4.DeepseekV4DecoderLayer(config, 0).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return layer


def v4_shaped_block() -> ReleasedBlock:
    """Ours, of the same shape."""
    config = released(
        vocab_size=40,
        hidden_size=32,
        target_depth=3,
        mask_token_id=3,
        num_attention_heads=4,
        head_size=16,
        rotary_size=8,
        query_rank=8,
        output_rank=8,
        output_groups=2,
        intermediate_size=16,
        n_routed_experts=8,
    )
    return ReleasedBlock(config).eval()


def renamed(theirs: dict[str, torch.Tensor], ours: nn.Module) -> dict[str, torch.Tensor]:
    """Their weights under our names; rotated neighbours become rotated halves."""
    size, turned = 16, 8
    order = torch.arange(size)
    order[size - turned :] = (size - turned) + torch.cat(
        [torch.arange(0, turned, 2), torch.arange(1, turned, 2)]
    )
    found = {n: v for n, v in theirs.items() if n in ours.state_dict()}
    for name in ("kv_proj.weight", "kv_norm.weight"):
        found[f"self_attn.{name}"] = theirs[f"self_attn.{name}"][order]
    query = theirs["self_attn.q_b_proj.weight"].unflatten(0, (4, size))
    found["self_attn.q_b_proj.weight"] = query[:, order].flatten(0, 1)
    out = theirs["self_attn.o_a_proj.weight"].unflatten(0, (2, 8)).unflatten(-1, (2, size))
    found["self_attn.o_a"] = out[..., order].flatten(-2)
    found["moe.router.weight"] = theirs["mlp.gate.weight"]
    found["moe.router.bias"] = theirs["mlp.gate.e_score_correction_bias"]
    found["moe.experts.gate_up"] = theirs["mlp.experts.gate_up_proj"].mT.contiguous()
    found["moe.experts.down"] = theirs["mlp.experts.down_proj"].mT.contiguous()
    shared = "mlp.shared_experts"
    found["moe.shared.gate_up.weight"] = torch.cat(
        [theirs[f"{shared}.gate_proj.weight"], theirs[f"{shared}.up_proj.weight"]]
    )
    found["moe.shared.down.weight"] = theirs[f"{shared}.down_proj.weight"]
    return found
