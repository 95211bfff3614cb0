"""Figures of the token map: what is drawn is what the frame says."""

import pandas as pd
import pytest

from engram_lab.figures.compression import KINDS, compression_bars, largest_groups
from engram_lab.figures.compression_loss import map_effect
from engram_lab.figures.compression_pairs import minimal_pairs, pairs_figure
from engram_lab.figures.compression_scripts import script_shares
from engram_lab.figures.compression_text import predicted_loads_figure, text_effects
from engram_lab.published import load_published

TABLE6 = load_published("engram_table6_tokenizer_compression")


def named(figure, name: str):
    return next(trace for trace in figure.data if trace.name == name)


def kinds() -> pd.DataFrame:
    rows = [
        {"tokenizer": tokenizer, "kind": kind, "ids": 1_000, "alone_share": share / 2}
        | {"needed_share": share / 4}
        for tokenizer in ("bpe4k", "deepseek_v4")
        for kind, share in zip(("all", *KINDS), (0.4, 0.01, 0.02, 0.2, 0.1), strict=True)
    ]
    return pd.DataFrame(rows)


def test_bars_are_shares_and_the_cross_stands_at_the_tokenizer_it_is_of():
    figure = compression_bars(kinds(), published=TABLE6)
    bars = named(figure, "removed by the map")
    assert list(bars.x) == [0.2, 0.2] and bars.y[1] == "bpe4k (shipped)<br>1,000 ids"
    cross = named(figure, "published (exact)")
    assert list(cross.x) == [0.2343] and list(cross.y) == ["DeepSeek V4<br>1,000 ids"]
    assert [trace.x[0] for trace in figure.data if trace.name == "case"] == [0.1, 0.05]


def test_groups_stand_by_rank_beside_the_published_sizes():
    frame = pd.DataFrame(
        {"tokenizer": "qwen3", "rank": [1, 2], "size": [160, 50], "canonical": ["␣", "<a>"]}
        | {"members": ["⏎ · ␣", "a · A" * 30]}
    )
    figure = largest_groups(frame, tokenizer="qwen3", published=TABLE6)
    assert list(figure.data[0].x) == [160, 50] and list(figure.data[1].x) == [163, 54]
    assert list(figure.layout.yaxis.ticktext) == ["␣", "&lt;a&gt;"]
    assert figure.data[0].text[1].endswith("…")
    with pytest.raises(ValueError, match="no rows of tokenizer 'gpt2'; the frame has qwen3"):
        largest_groups(frame, tokenizer="gpt2")


def test_pairs_are_coloured_by_step_and_the_largest_excess_comes_first():
    frame = pd.DataFrame(
        {"tokenizer": "gpt2", "kind": ["case", "space", "several"], "first": ["a", "b", "c"]}
        | {"second": ["A", " b", " C"], "first_count": 9, "second_count": 8}
        | {"divergence_nats": [0.1, 0.5, 0.3], "by_chance_nats": 0.05}
        | {"excess_nats": [0.05, 0.45, 0.25]}
    )
    figure = pairs_figure(frame, tokenizer="gpt2", shown=2)
    assert {trace.name for trace in figure.data} == {
        "white space", "several steps", "two random halves of the same sizes"
    }  # fmt: skip
    assert list(named(figure, "white space").y) == [0]
    assert list(figure.layout.yaxis.ticktext) == ["b  /   b", "c  /   C"]


def test_minimal_pairs_are_filled_where_they_become_one():
    frame = pd.DataFrame(
        {"tokenizer": ["gpt2", "gpt2", "qwen3", "qwen3"], "kind": ["case", "form"] * 2}
        | {"first": ["US", "x²"] * 2, "second": ["us", "x2"] * 2}
        | {"merged": [True, False, True, True]}
    )
    figure = minimal_pairs(frame)
    merged, apart = (trace for trace in figure.data if trace.name == "compatibility form")
    assert (merged.marker.symbol, list(merged.x), list(merged.y)) == ("circle", ["qwen3"], [1])
    assert (apart.marker.symbol, list(apart.x), list(apart.y)) == ("circle-open", ["gpt2"], [1])


def test_scripts_stand_by_what_they_lose():
    frame = pd.DataFrame(
        {"tokenizer": "qwen3", "script": ["Latin", "Bengali"], "ids": [9_000, 800]}
        | {"changed_share": [0.1, 0.8], "removed_share": [0.05, 0.5]}
    )
    changed, removed = script_shares(frame, tokenizer="qwen3").data
    assert list(changed.y) == ["Latin (9,000)", "Bengali (800)"]
    assert list(changed.x) == [0.1, 0.8] and list(removed.x) == [0.05, 0.5]


def texts() -> pd.DataFrame:
    return pd.DataFrame(
        {"tokenizer": ["gpt2", "gpt2"], "order": [2, 1], "tokens": 500}
        | {"key_reduction": [0.1, 0.2], "lost_nats": [0.3, 0.4], "lost_by_chance_nats": [0.1, 0.1]}
    )


def test_effects_are_drawn_by_order_beyond_chance():
    figure = text_effects(texts())
    saved, lost = figure.data
    assert list(saved.x) == [1, 2] and list(saved.y) == [0.2, 0.1]
    assert list(lost.y) == pytest.approx([0.3, 0.2])
    assert saved.showlegend is None and lost.showlegend is False


def test_loads_have_a_panel_for_each_order():
    frame = pd.DataFrame(
        {"tokenizer": "gpt2", "order": [1, 2], "rows": 100, "raw_load": [0.5, 2.0]}
        | {"canonical_load": [0.4, 1.8], "raw_share": [0.4, 0.9], "canonical_share": [0.3, 0.8]}
    )
    figure = predicted_loads_figure(frame)
    raw = [trace for trace in figure.data if trace.name == "raw ids"]
    assert [list(trace.x) for trace in raw] == [[0.5], [2.0]]
    assert raw[0].text[0].strip() == "40.0% → 30.0%"
    with pytest.raises(ValueError, match=r"one size; got \[100, 50\]"):
        predicted_loads_figure(pd.concat([frame, frame.assign(rows=50)]))


def losses() -> pd.DataFrame:
    rows = [
        {"arm": arm, "allocation_ratio": ratio, "seed": seed, "token_class": name, "document": 0}
        | {"loss_nats": 4 + shift + 0.001 * seed, "eval_tokens": tokens}
        for arm, ratio, shift in (("canonical", 0.5, -0.01), ("raw", 0.5, 0.0), ("experts", 1.0, 1))
        for seed in (0, 1)
        for name, tokens in (("all", 100), ("space", 25))
    ]
    return pd.DataFrame(rows)


def test_the_map_s_effect_is_the_difference_of_the_arms_by_spelling():
    figure = map_effect(losses())
    mean, seeds = figure.data
    assert list(mean.x) == pytest.approx([-0.01, -0.01])
    assert mean.y[1] == "other white space<br>25.0% of tokens" and len(seeds.x) == 4
    without = losses()[lambda frame: frame["arm"] != "raw"]
    with pytest.raises(ValueError, match="differences from arm = raw"):
        map_effect(without)


def test_missing_columns_are_named():
    for figure in (compression_bars, minimal_pairs, text_effects, predicted_loads_figure):
        with pytest.raises(ValueError, match=f"{figure.__name__} needs columns tokenizer"):
            figure(pd.DataFrame({"a": [1]}))
