"""Tiny targets and drafters: the golden pair with its weights, and random ones of every family."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.target import Target
from engram_lab.model import presets
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression
from tests.model.foreign import CONFIGS

FAMILIES = ("llama", "qwen3", "gpt2", "memory", "plain")
"""Targets by name; "memory" and "plain" are ours, with a memory and without."""
MASK = 3
TAPS = (0, 1)


def golden(name: str) -> dict[str, Any]:
    """A file of golden values."""
    folder = Path(__file__).parents[1] / "golden"
    return json.loads((folder / f"dspark_{name}.json").read_text(encoding="utf-8"))


def golden_pair() -> tuple[Target, Drafter, dict[str, Any]]:
    """The trained toy target and drafter of the reference, and its file."""
    file = golden("tiny_model")
    shape = file["config"]
    config = Qwen3Config(
        vocab_size=shape["vocab"],
        hidden_size=shape["hidden"],
        intermediate_size=shape["intermediate"],
        num_hidden_layers=shape["target_layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        head_dim=shape["head_dim"],
        rms_norm_eps=shape["rms_eps"],
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": shape["rope_theta"]},
        tie_word_embeddings=False,
    )
    model = Qwen3ForCausalLM(config).eval()
    model.load_state_dict(_tensors(file["target_weights"]))
    target = Target(model, shape["target_layer_ids"])
    drafter = Drafter(
        DraftConfig(
            vocab_size=shape["vocab"],
            hidden_size=shape["hidden"],
            target_depth=shape["target_layers"],
            target_layer_ids=tuple(shape["target_layer_ids"]),
            mask_token_id=shape["mask_token_id"],
            block_size=shape["block_size"],
            num_hidden_layers=shape["draft_layers"],
            num_attention_heads=shape["heads"],
            num_key_value_heads=shape["kv_heads"],
            head_size=shape["head_dim"],
            intermediate_size=shape["intermediate"],
            markov_rank=shape["markov_rank"],
            confidence=True,
        ),
        target,
    )
    drafter.load_state_dict(_tensors(file["draft_weights"]))
    return target, drafter, file


def family(name: str, *, context: int = 128) -> nn.Module:
    """A random model of one of `FAMILIES`, three blocks deep, whose logits are well apart."""
    torch.manual_seed(0)
    if name in CONFIGS:
        config = CONFIGS[name]()
        config.max_position_embeddings = context
        model = AutoModelForCausalLM.from_config(config)
    else:
        config = presets.tiny(61).replace(num_hidden_layers=3, max_position_embeddings=context)
        if name == "plain":
            config = config.replace(engram=None)
        model = EngramLM(config, VocabCompression.identity(61))
    return ruffled(model).eval()


def ruffled(module: nn.Module, spread: float = 0.2) -> nn.Module:
    """The module with noise on every parameter, so that no part of it is idle."""
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, generator=noise))
    return module


def drafter_for(target: Target, **changes: Any) -> Drafter:
    """A random DSpark drafter of a target; `changes` are fields of its config."""
    torch.manual_seed(2)
    fields = {
        "vocab_size": target.vocab_size,
        "hidden_size": target.hidden_size,
        "target_depth": target.depth,
        "target_layer_ids": target.layer_ids,
        "mask_token_id": MASK,
        "block_size": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_size": 8,
        "intermediate_size": 16,
        "markov_rank": 3,
        "confidence": True,
    }
    return ruffled(Drafter(DraftConfig(**fields | changes), target)).eval()


def some_ids(vocab: int, *shape: int, seed: int = 1) -> torch.Tensor:
    """Random ids."""
    return torch.randint(0, vocab, shape, generator=torch.Generator().manual_seed(seed))


def _tensors(weights: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values) for name, values in weights.items()}
