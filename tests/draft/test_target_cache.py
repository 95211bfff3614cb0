"""The target's cache: sequences at different lengths, each as if it were alone."""

from dataclasses import replace

import pytest
import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

from engram_lab.draft.target import Target
from engram_lab.draft.target_cache import TargetCache
from engram_lab.model import presets
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression
from tests.draft.tiny import FAMILIES, TAPS, family, ruffled, some_ids

each_family = pytest.mark.parametrize("name", FAMILIES)
# positions appended by each pass, and how many of them every sequence keeps
WALK = ((5, (5, 2, 4)), (3, (0, 3, 3)), (1, (1, 0, 1)), (4, (4, 4, 0)), (6, (3, 4, 5)))


def walked(target: Target, texts: torch.Tensor, walk: tuple) -> tuple[TargetCache, list]:
    """Feed each sequence its own text, then strange tokens behind what it is to keep."""
    cache, seen = target.start(len(texts)), []
    for count, keep in walk:
        keep = torch.tensor(keep)
        positions = cache.lengths[:, None] + torch.arange(count)
        ids = texts.gather(1, positions.clamp_max(texts.shape[1] - 1))
        ids = torch.where(torch.arange(count) < keep[:, None], ids, some_ids(61, *ids.shape))
        found = target.forward(ids, cache)
        seen.append((cache.lengths.clone(), keep, found))
        cache.keep(keep)
    return cache, seen


def agree(target: Target, texts: torch.Tensor, seen: list) -> bool:
    """Whether every kept position has the states of one pass over its text."""
    whole = target.read(texts)
    for starts, keep, found in seen:
        for row, (start, count) in enumerate(zip(starts.tolist(), keep.tolist(), strict=True)):
            for ours, one in (
                (found.logits, whole.logits),
                (found.features, whole.features),
                (found.final, whole.final),
            ):
                got, wanted = ours[row, :count], one[row, start : start + count]
                if not torch.allclose(got, wanted, atol=2e-4):
                    return False
    return True


@each_family
def test_every_sequence_goes_on_as_if_it_were_alone(name: str):
    target = Target(family(name), TAPS)
    texts = some_ids(61, 3, 20)
    cache, seen = walked(target, texts, WALK)
    assert cache.lengths.tolist() == [13, 13, 13]
    assert agree(target, texts, seen)


def test_even_sequences_need_no_mask_and_uneven_ones_do():
    target = Target(family("llama"), TAPS)
    even, uneven = target.start(2), target.start(2)
    for cache, keep in ((even, (3, 3)), (uneven, (3, 2))):
        target.forward(some_ids(61, 2, 4), cache)
        cache.keep(torch.tensor(keep))
    assert even.extended(2) == {}
    asked = uneven.extended(2)
    assert asked["attention_mask"].tolist() == [[1] * 5, [0] + [1] * 4]
    assert asked["position_ids"].tolist() == [[3, 4], [2, 3]]


@each_family
def test_rows_that_stay_go_on_after_others_have_left(name: str):
    target = Target(family(name), TAPS)
    texts = some_ids(61, 3, 20)
    cache, _ = walked(target, texts, WALK[:2])
    cache.select([2, 0])
    assert cache.lengths.tolist() == [7, 5]
    assert cache.states.layers[0].keys.shape[2] == 7
    texts, seen = texts[[2, 0]], []
    for count, keep in ((2, (1, 2)), (3, (3, 3))):
        positions = cache.lengths[:, None] + torch.arange(count)
        starts, keep = cache.lengths.clone(), torch.tensor(keep)
        seen.append((starts, keep, target.forward(texts.gather(1, positions), cache)))
        cache.keep(keep)
    assert agree(target, texts, seen)


@each_family
def test_nothing_kept_of_a_first_pass_leaves_nothing(name: str):
    target = Target(family(name), TAPS)
    texts = some_ids(61, 2, 6)
    cache, seen = walked(target, texts, ((3, (0, 0)), (4, (4, 2)), (2, (2, 2))))
    assert agree(target, texts, seen)


@pytest.mark.parametrize("layers", [(1,), (0, 2)])
@pytest.mark.parametrize("size", [2, 4])
def test_a_memory_with_a_convolution_rewinds_exactly(layers: tuple[int, ...], size: int):
    config = presets.tiny(61).replace(num_hidden_layers=3)
    memory = replace(config.engram, layer_ids=layers, conv=True, kernel_size=size)
    model = EngramLM(config.replace(engram=memory), VocabCompression.identity(61))
    target = Target(ruffled(model).eval(), TAPS)
    texts = some_ids(61, 3, 24)
    long = (*WALK, (8, (0, 1, 2)), (8, (8, 0, 3)))
    _, seen = walked(target, texts, long)
    assert agree(target, texts, seen)


def test_a_rewind_beyond_what_the_memory_remembers_is_refused():
    target = Target(family("memory"), TAPS)
    cache = target.start(2, rewind=3)
    target.forward(some_ids(61, 2, 40), cache)
    with pytest.raises(ValueError, match="rewind"):
        cache.keep(torch.tensor([2, 30]))


@each_family
def test_a_pass_must_be_settled_before_the_next(name: str):
    target = Target(family(name), TAPS)
    cache = target.start(1)
    target.forward(some_ids(61, 1, 4), cache)
    with pytest.raises(RuntimeError, match=r"holds 4 positions .* call keep\(counts\)"):
        target.forward(some_ids(61, 1, 1), cache)


@pytest.mark.parametrize("counts", [(5, 1), (-1, 2)])
def test_more_than_was_appended_cannot_be_kept(counts: tuple[int, int]):
    target = Target(family("llama"), TAPS)
    cache = target.start(2)
    target.forward(some_ids(61, 2, 4), cache)
    with pytest.raises(ValueError, match=r"0\.\.4, .* got \[" + str(counts[0])):
        cache.keep(torch.tensor(counts))


def test_windows_of_the_target_are_left_to_its_mask():
    from transformers import AutoModelForCausalLM, Gemma2Config

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=61,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        sliding_window=4,
        attn_implementation="eager",
    )
    target = Target(ruffled(AutoModelForCausalLM.from_config(config)).eval(), TAPS)
    texts = some_ids(61, 3, 20)
    _, seen = walked(target, texts, WALK)
    assert agree(target, texts, seen)


def test_a_model_that_keeps_more_than_keys_and_values_is_refused():
    config = DeepseekV4Config(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    with torch.device("meta"):
        model = DeepseekV4ForCausalLM(config)
    with pytest.raises(ValueError, match="taken back .* keeps Deepseek"):
        TargetCache.of(model, 1, rewind=4)
