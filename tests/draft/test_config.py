"""Shape of a drafter: every rule is refused with both numbers, defaults are the reference's."""

import json
from dataclasses import FrozenInstanceError

import pytest

from engram_lab.configs import fingerprint, from_json, to_json
from engram_lab.draft.config import DraftConfig, check_taps, default_taps

SHAPE = {
    "vocab_size": 20,
    "hidden_size": 16,
    "target_depth": 4,
    "target_layer_ids": (0, 2),
    "mask_token_id": 19,
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"block_size": 0}, ("block_size", "at least 1", "got 0")),
        ({"num_hidden_layers": 0}, ("num_hidden_layers", "got 0")),
        ({"markov_rank": -1}, ("markov_rank", "at least 0", "got -1")),
        ({"head_size": 7}, ("even", "got 7")),
        ({"num_key_value_heads": 3}, ("num_attention_heads", "(4)", "got 3")),
        ({"sliding_window": 0}, ("sliding_window", "None", "got 0")),
        ({"mask_token_id": 20}, ("0..19", "vocab_size=20", "got 20")),
        ({"mask_token_id": -1}, ("0..19", "got -1")),
        ({"target_layer_ids": ()}, ("at least one", "()")),
        ({"target_layer_ids": (2, 0)}, ("rising", "(2, 0)")),
        ({"target_layer_ids": (1, 1)}, ("rising", "(1, 1)")),
        ({"target_layer_ids": (0, 4)}, ("-1..2", "4 blocks", "(0, 4)")),
        ({"target_layer_ids": (-2, 0)}, ("-1..2", "(-2, 0)")),
        ({"target_layer_ids": (0, 3)}, ("last block, 3 of 4", "(0, 3)", "Take (0, 1, 2)")),
    ],
    ids=str,
)
def test_a_broken_rule_is_refused_with_what_was_got(change: dict, told: tuple[str, ...]):
    with pytest.raises(ValueError) as error:
        DraftConfig(**SHAPE | change)
    assert all(part in str(error.value) for part in told)


def test_the_embedding_may_be_read_as_block_minus_one():
    check_taps((-1, 0), 2)


def test_a_block_has_one_slot_more_where_the_anchors_predicts_nothing():
    assert DraftConfig(**SHAPE, block_size=5).slots == 5
    assert DraftConfig(**SHAPE, block_size=5, sample_from_anchor=False).slots == 6


def test_what_is_unset_is_dflash_with_the_papers_block():
    config = DraftConfig(**SHAPE)
    assert (config.block_size, config.markov_rank, config.confidence) == (7, 0, False)
    assert config.sample_from_anchor
    assert not config.causal_block


@pytest.mark.parametrize("depth", range(2, 41))
def test_default_taps_fit_every_depth(depth: int):
    check_taps(default_taps(depth), depth)


def test_default_taps_are_near_both_ends_and_in_the_middle():
    assert default_taps(36) == (1, 18, 34)
    assert default_taps(4) == (0, 1, 2)
    with pytest.raises(ValueError, match="at least 2 blocks; got 1"):
        default_taps(1)


def test_the_layout_travels_with_the_config():
    config = DraftConfig(**SHAPE, sample_from_anchor=False, causal_block=True)
    written = to_json(config)
    assert json.loads(written)["sample_from_anchor"] is False
    assert from_json(DraftConfig, written) == config
    assert fingerprint(config) != fingerprint(DraftConfig(**SHAPE, causal_block=True))


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(FrozenInstanceError):
        DraftConfig(**SHAPE).block_size = 3
