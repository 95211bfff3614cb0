"""EngramConfig refuses nonsense with a sentence, survives JSON; presets are the published sizes."""

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engram_lab.configs import from_json, to_json
from engram_lab.memory.config import EngramConfig, demo, qwen, v41
from engram_lab.memory.layout import layer_rows


@pytest.mark.parametrize(
    "change",
    [
        {"layer_ids": ()},
        {"layer_ids": (1, 1)},
        {"layer_ids": (-1,)},
        {"max_ngram_size": 1, "engram_vocab_size": ()},
        {"engram_vocab_size": (50,)},
        {"engram_vocab_size": (50, 0)},
        {"n_embed_per_ngram": 65},
        {"n_head_per_ngram": 0},
        {"kernel_size": 0},
        {"norm_eps": 0.0},
        {"norm_eps": float("nan")},
        {"seed": -1},
        {"init_std": -0.1},
        {"make_ngram_vocab_size_divisible_by": 0},
        {"reset": "documents"},
        {"gate_transform": "relu"},
        {"multiplier_rule": "mt19937"},
        {"addresses": "random"},
    ],
)
def test_a_broken_rule_is_named_with_its_value(change):
    field = "engram_vocab_size" if "engram_vocab_size" in change else next(iter(change))
    field = "max_ngram_size" if change.get("max_ngram_size") == 1 else field
    broken = object.__new__(EngramConfig)  # past the run-time type checks of the tests
    broken.__dict__.update({**asdict(EngramConfig(layer_ids=(1,))), **change})
    with pytest.raises(ValueError, match=rf"EngramConfig\.{field} .*got"):
        broken.__post_init__()


@pytest.mark.parametrize("preset", [demo, v41, qwen])
def test_presets_survive_json(preset):
    assert from_json(EngramConfig, to_json(preset())) == preset()


@given(
    orders=st.integers(2, 5),
    heads=st.integers(1, 4),
    width=st.integers(1, 5),
    budget=st.integers(1, 60),
    layers=st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True),
)
@settings(deadline=None, max_examples=25, derandomize=True)
def test_derived_sizes_fit_together(orders, heads, width, budget, layers):
    config = EngramConfig(
        layer_ids=tuple(layers),
        max_ngram_size=orders,
        engram_vocab_size=(budget,) * (orders - 1),
        n_head_per_ngram=heads,
        n_embed_per_ngram=heads * width,
    )
    assert config.table_count == (orders - 1) * heads
    assert config.row_width == width
    assert config.mem_width == config.table_count * config.row_width
    assert from_json(EngramConfig, to_json(config)) == config


def test_published_widths():
    assert (demo().mem_width, demo().row_width) == (1024, 64)
    assert (v41().mem_width, v41().row_width, v41().table_count) == (6144, 256, 24)
    assert (qwen().mem_width, qwen().row_width) == (2560, 160)


def test_published_row_counts_without_allocating():
    assert layer_rows(v41()) == {1: 384_006_168, 14: 384_016_682}
    assert layer_rows(qwen()) == {1: 320_001_536}
    assert layer_rows(demo()) == {1: 10_344_164, 15: 10_348_242}
