"""Budgets: counts agree with built models and published ones; `allocate` keeps what it promises."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engram_lab.memory.config import EngramConfig
from engram_lab.model.budget import (
    allocate,
    budget,
    memory_dense_parameters,
    spend_on_ffn,
    table_parameters,
)
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import full, tiny, workshop
from engram_lab.tokens.compression import VocabCompression

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "model_tables.json").read_text())


def built_counts(config) -> tuple[int, int]:
    """Parameters of the built model without embedding and head, and those of its tables."""
    compression = VocabCompression.identity(config.vocab_size) if config.engram else None
    model = EngramLM(config, compression=compression)
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    outside = [n for n in sizes if n.startswith(("embed_tokens", "lm_head"))]
    tables = sum(size for name, size in sizes.items() if name.endswith("engram.table.weight"))
    return sum(sizes.values()) - sum(sizes[n] for n in outside), tables


@pytest.mark.parametrize(
    "config", [tiny(), workshop(512), tiny().replace(moe=None), tiny().replace(engram=None)]
)
def test_counted_parameters_equal_those_of_the_built_model(config):
    total, table = built_counts(config)
    counted = budget(config)
    assert (counted.total, counted.table) == (total, table)
    assert counted.sparse == counted.total - counted.active


@pytest.mark.parametrize("case", GOLDEN["engram"], ids=lambda case: case["name"])
def test_published_memories_have_their_published_parameters(case):
    orders = case["max_ngram_size"] - 1
    engram = EngramConfig(
        layer_ids=tuple(case["layer_ids_zero_based"]),
        max_ngram_size=case["max_ngram_size"],
        engram_vocab_size=(case["vocab_size_per_order"],) * orders,
        n_head_per_ngram=case["n_heads"],
        n_embed_per_ngram=case["n_heads"] * case["head_dim"],
        conv=case["dense_per_layer"]["conv"] > 0,
        bias=case["dense_per_layer"]["biases"] > 0,
    )
    assert table_parameters(engram) == case["table_params"]
    assert (
        memory_dense_parameters(engram, case["hidden"], case["hc_mult"])
        == case["dense_per_layer_total"]
    )


@pytest.mark.parametrize("base", [workshop(), full()], ids=["workshop", "full"])
@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.5, 0.75, 0.9, 1.0])
def test_allocation_keeps_total_and_active_parameters(base, ratio):
    goal, found = budget(allocate(base, 1.0)), budget(allocate(base, ratio))
    assert abs(found.total / goal.total - 1) <= 0.001
    assert abs(found.active / goal.active - 1) <= 0.01
    assert found.allocation_ratio == pytest.approx(ratio, abs=0.03)


def test_the_ends_of_the_allocation_are_pure():
    assert allocate(workshop(), 1.0).engram is None
    assert allocate(workshop(), 0.0).moe.n_routed_experts == workshop().moe.topk
    assert budget(allocate(workshop(), 0.0)).experts == 0


@pytest.mark.parametrize("ratio", [-0.1, 1.2])
def test_a_ratio_outside_the_unit_interval_is_refused(ratio):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        allocate(workshop(), ratio)


def test_an_allocation_that_leaves_too_few_experts_is_refused():
    with pytest.raises(ValueError, match="topk"):
        replace(workshop().moe, n_routed_experts=1)


def test_a_memory_too_wide_for_the_shared_expert_is_refused():
    base = workshop()
    base = base.replace(
        moe=replace(base.moe, shared_width=8), engram=replace(base.engram, n_embed_per_ngram=512)
    )
    with pytest.raises(ValueError, match="Widen MoEConfig.shared_width"):
        allocate(base, 0.5)


def test_the_wide_ffn_control_spends_the_same_total_and_more_active_parameters():
    hybrid = allocate(workshop(), 0.5)
    control = spend_on_ffn(hybrid)
    assert control.engram is None
    assert abs(budget(control).total / budget(hybrid).total - 1) < 0.001
    assert budget(control).active > 1.5 * budget(hybrid).active


def test_flops_grow_with_active_parameters_and_context():
    config = workshop()
    count = budget(config)
    assert (
        count.flops_per_token(config, 256) > count.flops_per_token(config, 128) > 2 * count.active
    )
