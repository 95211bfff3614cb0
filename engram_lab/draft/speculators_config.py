"""Between `DraftConfig` and the `config.json` of a `speculators` checkpoint.

Two conventions differ. There, `block_size` counts slots, the anchor's included, so a block whose
anchor predicts nothing has one draft fewer than its size. And tapped states are counted as they
enter a block (0 is the embedding), where ours are counted as they leave one (-1 is the embedding):
the same states have numbers one higher there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from engram_lab.draft.config import DraftConfig

VERSION = "0.9.0"
"""Release of `speculators` whose classes read what is written here."""
EXTRA = "engram_lab"
"""Key of what that format has no field for; its readers keep it and do not look at it."""
TAP_POINT = "block_output"
"""Where the target's states are taken: the stream as a block leaves it, not normalised."""
ANCHOR_FIRST = {"dspark": True, "dflash": False}
"""Layout that `speculators` takes for granted where a checkpoint of a kind names none."""


def speculators_kind(config: DraftConfig) -> str:
    """Which class of `speculators` a drafter is: "dflash" without heads and with an idle anchor.

    A DFlash whose anchor predicts is written as a DSpark without heads, because that library warns
    that engines may not heed the layout of a "dflash".
    """
    bare = not config.markov_rank and not config.confidence
    return "dflash" if bare and not config.sample_from_anchor else "dspark"


def to_speculators(
    config: DraftConfig,
    *,
    verifier: str | None = None,
    architectures: Sequence[str] = (),
    context: int | None = None,
) -> dict[str, Any]:
    """The `config.json` that `speculators` reads.

    Args:
        config: shape of the drafter.
        verifier: name or folder of the target; None leaves its weights to the reader.
        architectures: classes of the target, as its own config names them.
        context: positions the target knows; None for the default of Qwen3.

    Raises:
        ValueError: if the format cannot say what the drafter is.
    """
    _check_expressible(config)
    kind = speculators_kind(config)
    values = {
        "speculators_model_type": kind,
        "speculators_version": VERSION,
        "architectures": ["DSparkSpeculator" if kind == "dspark" else "DFlashSpeculator"],
        "speculators_config": _proposal(kind, config.block_size, verifier, architectures),
        "transformer_layer_config": _layers(config, context),
        "draft_vocab_size": config.vocab_size,
        "target_hidden_size": config.hidden_size,
        "block_size": config.slots,
        "sample_from_anchor": config.sample_from_anchor,
        "aux_hidden_state_layer_ids": [layer + 1 for layer in config.target_layer_ids],
        "mask_token_id": config.mask_token_id,
        "sliding_window_non_causal": not config.causal_block,
        EXTRA: {
            "tap_point": TAP_POINT,
            "target_depth": config.target_depth,
            "confidence_detach": config.confidence_detach,
        },
    }
    if kind == "dspark":
        values |= {
            "markov_rank": config.markov_rank,
            "markov_head_type": config.markov_head_type,
            "enable_confidence_head": config.confidence,
            "confidence_head_with_markov": config.confidence and config.markov_rank > 0,
        }
    return values


def from_speculators(
    values: Mapping[str, Any], *, target_depth: int, sample_from_anchor: bool | None = None
) -> DraftConfig:
    """Shape of the drafter that a `config.json` of `speculators` describes.

    Args:
        values: the parsed file.
        target_depth: blocks of the target.
        sample_from_anchor: the layout, for a file that does not name it.

    Raises:
        ValueError: if it describes no DSpark or DFlash, names no layout, or asks for a part that
            our drafter does not have.
    """
    kind = _read_kind(values)
    layers = _read_layers(values.get("transformer_layer_config", {}))
    slots = values.get("block_size", 8)
    anchor_first = settled_layout(
        values.get("sample_from_anchor"), sample_from_anchor, ANCHOR_FIRST[kind], slots
    )
    taps = values.get("aux_hidden_state_layer_ids")
    extra = values.get(EXTRA, {})
    check_tap_point(extra.get("tap_point", TAP_POINT))
    window, causal = _read_window(layers, bool(values.get("sliding_window_non_causal", False)))
    _check_readable(values, layers)
    spark = kind == "dspark"
    return DraftConfig(
        target_depth=target_depth,
        target_layer_ids=tuple(layer - 1 for layer in taps),
        mask_token_id=values["mask_token_id"],
        block_size=slots if anchor_first else slots - 1,
        markov_rank=values.get("markov_rank", 256) if spark else 0,
        markov_head_type=values.get("markov_head_type", "vanilla"),
        confidence=spark and values.get("enable_confidence_head", True),
        confidence_detach=extra.get("confidence_detach", False),
        sample_from_anchor=anchor_first,
        causal_block=causal,
        sliding_window=window,
        **_sizes(layers),
    )


def settled_layout(stored: bool | None, named: bool | None, usual: bool, slots: int) -> bool:
    """Whether the anchor's slot predicts, from what a checkpoint says and what a caller says.

    Args:
        stored: what the checkpoint says; None if nothing.
        named: what the caller says; None if nothing.
        usual: what readers of the format take for granted.
        slots: slots of a block, the anchor's included.

    Raises:
        ValueError: if neither says it, or they disagree.
    """
    if stored is None and named is None:
        told = "predicts" if usual else "predicts nothing"
        raise ValueError(
            "config.json must say whether the anchor's slot predicts (sample_from_anchor); it does "
            f"not. Readers of this format would assume that it {told}, so that a block of {slots} "
            f"slots drafts {slots if usual else slots - 1} tokens. Read the wrong way nearly all "
            "drafts are refused, without any error. Find out how it was trained and pass "
            f"sample_from_anchor={usual} or sample_from_anchor={not usual}."
        )
    if stored is not None and named is not None and bool(stored) != named:
        raise ValueError(
            f"sample_from_anchor is {bool(stored)} in config.json; the caller said {named}. Leave "
            "the argument out to follow the checkpoint."
        )
    return bool(named if stored is None else stored)


def check_tap_point(found: str) -> None:
    """Refuse a drafter that was trained on states taken elsewhere.

    Raises:
        ValueError: naming both places.
    """
    if found != TAP_POINT:
        raise ValueError(
            f"tap_point must be {TAP_POINT!r}, where our targets are read; the checkpoint says "
            f"{found!r}. A drafter is of no use with states from another place."
        )


def _check_expressible(config: DraftConfig) -> None:
    if config.causal_block and config.sliding_window is None:
        raise ValueError(
            "a speculators checkpoint is causal inside a block only with a sliding window; this "
            "drafter has causal_block=True and sliding_window=None. Keep it with save_drafter."
        )
    if config.markov_rank and config.markov_head_type == "rnn" and not config.sample_from_anchor:
        raise ValueError(_RECURRENT)


_RECURRENT = (
    "with sample_from_anchor=False speculators also runs the recurrent head over the anchor's "
    "slot, so that its state differs from ours at every draft; got markov_head_type='rnn'. Use "
    "save_drafter and load_drafter, or a vanilla or gated head."
)


def _proposal(
    kind: str, drafts: int, verifier: str | None, architectures: Sequence[str]
) -> dict[str, Any]:
    return {
        "algorithm": kind,
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": drafts}],
        "verifier": {"name_or_path": verifier, "architectures": list(architectures)},
    }


def _layers(config: DraftConfig, context: int | None) -> dict[str, Any]:
    window = config.sliding_window
    kind = "full_attention" if window is None else "sliding_attention"
    values = {
        "model_type": "qwen3",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_size,
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "layer_types": [kind] * config.num_hidden_layers,
        "tie_word_embeddings": False,
    }
    return values if context is None else values | {"max_position_embeddings": context}


def _read_kind(values: Mapping[str, Any]) -> str:
    kind = values.get("speculators_model_type")
    if kind not in ANCHOR_FIRST:
        raise ValueError(
            "speculators_model_type must be dspark or dflash for a block drafter; got "
            f"{kind!r}. Other drafters of that library have no counterpart here."
        )
    taps = values.get("aux_hidden_state_layer_ids")
    if taps is None or values.get("mask_token_id") is None:
        raise ValueError(
            "aux_hidden_state_layer_ids and mask_token_id must both be in config.json; got "
            f"{taps} and {values.get('mask_token_id')}. Write in what the drafter was trained with."
        )
    return kind


def _sizes(layers: PretrainedConfig) -> dict[str, Any]:
    heads = layers.num_attention_heads
    return {
        "vocab_size": layers.vocab_size,
        "hidden_size": layers.hidden_size,
        "num_hidden_layers": layers.num_hidden_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": layers.num_key_value_heads,
        "head_size": getattr(layers, "head_dim", None) or layers.hidden_size // heads,
        "intermediate_size": layers.intermediate_size,
        "rms_norm_eps": layers.rms_norm_eps,
        "rope_theta": layers.rope_parameters["rope_theta"],
    }


def _read_layers(values: Mapping[str, Any]) -> PretrainedConfig:
    values = dict(values)
    return AutoConfig.for_model(values.pop("model_type", "qwen3"), **values)


def _read_window(layers: PretrainedConfig, non_causal: bool) -> tuple[int | None, bool]:
    """The window of all layers, and whether blocks are causal."""
    kinds = set(getattr(layers, "layer_types", None) or ["full_attention"])
    if len(kinds) > 1:
        raise ValueError(
            "all layers of our drafter must attend alike; the checkpoint's layer_types are "
            f"{', '.join(sorted(kinds))}"
        )
    if kinds == {"full_attention"}:
        return None, False
    return layers.sliding_window, not non_causal


def _check_readable(values: Mapping[str, Any], layers: PretrainedConfig) -> None:
    reduced = values.get("draft_vocab_size", layers.vocab_size)
    width = values.get("target_hidden_size") or layers.hidden_size
    rope = layers.rope_parameters.get("rope_type", "default")
    rules = (
        ("draft_vocab_size", reduced, layers.vocab_size, "drafts are of the target's vocabulary"),
        ("target_hidden_size", width, layers.hidden_size, "the target's width is the drafter's"),
        ("rope_type", rope, "default", "positions are plain rotary angles"),
        ("hidden_act", layers.hidden_act, "silu", "the feed-forward is gated by silu"),
        ("attention_bias", bool(getattr(layers, "attention_bias", False)), False, "there is none"),
    )
    for name, found, wanted, why in rules:
        if found != wanted:
            raise ValueError(f"{name} must be {wanted} here ({why}); the checkpoint has {found}")
    rnn = values.get("markov_head_type") == "rnn" and values.get("markov_rank", 256)
    if rnn and values.get("sample_from_anchor") is False:
        raise ValueError(_RECURRENT)
