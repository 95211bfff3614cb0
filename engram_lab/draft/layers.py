"""Blocks of a drafter: attention whose keys are context and block, queries the block alone."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from engram_lab.draft.config import DraftConfig
from engram_lab.model.layers import RMSNorm, rotate

Rotary = tuple[Tensor, Tensor]
KeysValues = tuple[Float[Tensor, "batch head seq size"], Float[Tensor, "batch head seq size"]]


class DraftAttention(nn.Module):
    """Grouped-query attention with a norm on every query and key head, before rotation.

    Names follow Qwen3's, so that checkpoints of other implementations load by name.
    """

    def __init__(self, config: DraftConfig, *, inputs: int | None = None):
        """Projections from `inputs` numbers a row; None for the width of the stream."""
        super().__init__()
        inputs = config.hidden_size if inputs is None else inputs
        self.size = config.head_size
        queries = config.num_attention_heads * config.head_size
        keys = config.num_key_value_heads * config.head_size
        self.q_proj = nn.Linear(inputs, queries, bias=False)
        self.k_proj = nn.Linear(inputs, keys, bias=False)
        self.v_proj = nn.Linear(inputs, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_size, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_size, config.rms_norm_eps)
        self.grouped = config.num_attention_heads != config.num_key_value_heads

    def keys_values(self, hidden: Float[Tensor, "batch seq inputs"], rotary: Rotary) -> KeysValues:
        """Rotated keys, and values, of context rows or slots."""
        key = self.k_norm(self._heads(self.k_proj(hidden)))
        return rotate(key, *rotary), self._heads(self.v_proj(hidden))

    def forward(
        self,
        hidden: Float[Tensor, "batch slot inputs"],
        rotary: Rotary,
        keys_values: KeysValues,
        bias: Float[Tensor, "rows 1 slot keys"] | None,
    ) -> Float[Tensor, "batch slot hidden"]:
        """Let slots read keys and values (context first, then the block itself).

        Args:
            rotary: angles of the slots.
            bias: added to the scores; None where everything is seen.
        """
        query = rotate(self.q_norm(self._heads(self.q_proj(hidden))), *rotary)
        key, value = keys_values
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, enable_gqa=self.grouped
        )
        return self.o_proj(rearrange(mixed, "batch head seq size -> batch seq (head size)"))

    def _heads(self, values: Tensor) -> Tensor:
        return rearrange(values, "batch seq (head size) -> batch head seq size", size=self.size)


class GatedFeedForward(nn.Module):
    """`down(silu(gate x) * up x)`, with the names of Qwen3."""

    def __init__(self, config: DraftConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Float[Tensor, "*rest hidden"]) -> Float[Tensor, "*rest hidden"]:
        """Update for the stream."""
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class DraftBlock(nn.Module):
    """Attention over context and block, then feed-forward; both add to the slots' stream."""

    def __init__(self, config: DraftConfig):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DraftAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedFeedForward(config)

    def forward(
        self,
        hidden: Float[Tensor, "batch slot hidden"],
        rotary: Rotary,
        context: KeysValues,
        bias: Float[Tensor, "rows 1 slot keys"] | None,
    ) -> Float[Tensor, "batch slot hidden"]:
        """Slots after this block.

        Args:
            rotary: angles of the slots.
            context: keys and values of the context, which this block's norm does not touch.
            bias: added to the scores of context and slots, in that order.
        """
        normed = self.input_layernorm(hidden)
        key, value = self.self_attn.keys_values(normed, rotary)
        joined = tuple(torch.cat(pair, dim=2) for pair in zip(context, (key, value), strict=True))
        hidden = hidden + self.self_attn(normed, rotary, joined, bias)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))
