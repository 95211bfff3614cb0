"""The token map's constants in the model's config."""

import torch

from engram_lab.model.config import EngramLMConfig
from engram_lab.tokens.compression import VocabCompression


def with_compression(
    config: EngramLMConfig, compression: VocabCompression | None
) -> EngramLMConfig:
    """Copy of a config that carries the constants of a token map.

    Raises:
        ValueError: if a map is needed and missing, or has another vocabulary than the config.
    """
    if config.engram is None or not config.engram.compress:
        return config.replace()
    if compression is None:
        on_meta = torch.get_default_device().type == "meta"  # the map comes with the checkpoint
        if config.canonical_vocab_size is None or not on_meta:
            raise ValueError(
                "EngramConfig.compress is on, so EngramLM needs "
                "compression=VocabCompression.from_tokenizer(...) "
                "(or VocabCompression.identity(vocab_size)); got None. Set compress=False to hash "
                "raw ids."
            )
        return config.replace()
    if compression.vocab_size != config.vocab_size:
        raise ValueError(
            f"the token map must cover vocab_size={config.vocab_size} ids; got "
            f"{compression.vocab_size}. "
            "Use the tokenizer of this model, added tokens included."
        )
    found = {
        "canonical_vocab_size": compression.canonical_vocab_size,
        "canonical_pad_id": int(compression.table[config.pad_token_id or 0]),
        "canonical_eos_id": int(compression.table[config.eos_token_id or 0]),
        "token_map_sha256": compression.sha256,
    }
    if config.token_map_sha256 not in (None, found["token_map_sha256"]):
        raise ValueError(
            f"the token map has SHA-256 {found['token_map_sha256']}, the config says "
            f"{config.token_map_sha256}; "
            "every n-gram would read another row. Use the tokenizer the memory was trained with."
        )
    return config.replace(**found)
