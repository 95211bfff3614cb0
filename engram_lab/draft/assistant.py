"""A DFlash of ours as an assistant model of `transformers`, with the same drafts.

Since `transformers` has a DFlash of its own, one drafter can be decoded by both libraries: by ours,
and by `model.generate(ids, assistant_model=assistant, speculation_type="dflash")`.
"""

from transformers import PreTrainedModel
from transformers.models.muse_glimmer_assistant import (
    MuseGlimmerAssistantConfig,
    MuseGlimmerAssistantModel,
)

from engram_lab.draft.drafter import Drafter

RENAMED = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
"""Tensors that have another name there."""


def dflash_assistant(drafter: Drafter) -> PreTrainedModel:
    """The drafter as `assistant_model` of `generate`, with weights of its own.

    Args:
        drafter: a DFlash whose anchor predicts nothing, without a window.

    Raises:
        ValueError: if it has heads, drafts from the anchor, or sees only a part of context or
            block; that library's drafter does none of these.
    """
    config = drafter.config
    rules = (
        ("tap", config.tap, "output"),
        ("markov_rank", config.markov_rank, 0),
        ("confidence", config.confidence, False),
        ("sample_from_anchor", config.sample_from_anchor, False),
        ("causal_block", config.causal_block, False),
        ("sliding_window", config.sliding_window, None),
    )
    for name, found, wanted in rules:
        if found != wanted:
            raise ValueError(
                f"{name} must be {wanted} in a DFlash of transformers; this drafter has {found}. "
                "Decode it with speculative_generate or generate_with."
            )
    shape = MuseGlimmerAssistantConfig(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_size,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        layer_types=["full_attention"] * config.num_hidden_layers,
        block_size=config.slots,
        mask_token_id=config.mask_token_id,
        target_layer_ids=list(config.target_layer_ids),
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    assistant = MuseGlimmerAssistantModel(shape)
    weights = drafter.state_dict()
    assistant.load_state_dict({RENAMED.get(name, name): weights[name] for name in weights})
    return assistant.to(drafter.target.device).eval()
