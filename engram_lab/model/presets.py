"""Ready sizes: `tiny()` for tests, `workshop()` for two CPU cores, `full()` for one GPU.

Each is a hybrid template: experts as they are at allocation ratio 1, beside the memory that
`budget.allocate` fills. A variant is `config.replace(...)`.
"""

from engram_lab.memory.config import EngramConfig
from engram_lab.model.config import EngramLMConfig, MoEConfig


def tiny(vocab_size: int = 260) -> EngramLMConfig:
    """Two narrow blocks; trains in seconds."""
    return EngramLMConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        moe=MoEConfig(n_routed_experts=16, topk=2, expert_width=16, shared_width=48),
        engram=EngramConfig(
            layer_ids=(1,), engram_vocab_size=(97, 97), n_head_per_ngram=2, n_embed_per_ngram=16
        ),
    )


def workshop(vocab_size: int = 4096) -> EngramLMConfig:
    """Four blocks of width 128 with 32 experts; minutes on two cores."""
    return EngramLMConfig(
        vocab_size=vocab_size,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=512,
        moe=MoEConfig(n_routed_experts=32, topk=2, expert_width=64, shared_width=128),
        engram=EngramConfig(
            layer_ids=(1,),
            engram_vocab_size=(10_000, 10_000),
            n_head_per_ngram=4,
            n_embed_per_ngram=64,
        ),
    )


def full(vocab_size: int = 16_384) -> EngramLMConfig:
    """Twelve blocks of width 512 with 64 experts; an hour on one GPU."""
    return EngramLMConfig(
        vocab_size=vocab_size,
        hidden_size=512,
        num_hidden_layers=12,
        num_attention_heads=8,
        max_position_embeddings=4096,
        moe=MoEConfig(n_routed_experts=64, topk=4, expert_width=256, shared_width=512),
        engram=EngramConfig(
            layer_ids=(1, 6),
            engram_vocab_size=(200_000, 200_000),
            n_head_per_ngram=8,
            n_embed_per_ngram=256,
        ),
    )
