"""Decoders of several families, a few thousand random weights each, built from their configs."""

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    DeepseekV4Config,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    Qwen3Config,
)

VOCAB, CONTEXT, BLOCKS = 61, 24, 3  # small: a pass takes milliseconds
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
    **IDS,
}
GROUPED = SHAPE | {"num_key_value_heads": 1}
CONFIGS = {
    "llama": lambda: LlamaConfig(**GROUPED),
    "qwen3": lambda: Qwen3Config(**GROUPED, head_dim=8),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB, n_embd=16, n_layer=BLOCKS, n_head=2, n_positions=CONTEXT, **IDS
    ),
    "gpt_neox": lambda: GPTNeoXConfig(**SHAPE),
    "gemma2": lambda: Gemma2Config(**GROUPED, head_dim=8, final_logit_softcapping=2.0),
    "cohere": lambda: CohereConfig(**GROUPED),  # scales its logits
    "granite": lambda: GraniteConfig(**GROUPED, logits_scaling=8.0),  # divides its logits
    "deepseek_v4": lambda: DeepseekV4Config(  # several residual branches
        **SHAPE | {"hidden_size": 32},
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        head_dim=16,
        q_lora_rank=16,
        o_lora_rank=16,
        qk_rope_head_dim=8,
    ),
}


def foreign(name: str) -> nn.Module:
    """A model whose weights, norms' gains included, are all different from each other."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def some_ids(batch: int = 1, seq: int = 9) -> torch.Tensor:
    """Ids of no special token."""
    return torch.randint(3, VOCAB, (batch, seq), generator=torch.Generator().manual_seed(1))
