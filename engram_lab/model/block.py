"""One block: memory, attention, feed-forward, and what the blocks of a pass share."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from engram_lab.hooks import HookPoint
from engram_lab.memory.engram import Engram
from engram_lab.memory.history import MemoryContext
from engram_lab.model.cache import EngramCache
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.layers import Attention, RMSNorm, SwiGLU
from engram_lab.model.moe import MoE


@dataclass
class Stream:
    """What every block of one forward pass shares.

    Attributes:
        canonical_ids: hashed ids of the chunk, batch seq.
        context: documents and padding of the chunk.
        rotary: cosine and sine of the chunk's positions.
        bias: attention bias, or None for plain causal order.
        mask: False at padding, batch seq; None where there is none.
        cache: the call's cache, or None.
    """

    canonical_ids: Tensor
    context: MemoryContext
    rotary: tuple[Tensor, Tensor]
    bias: Tensor | None
    mask: Tensor | None
    cache: EngramCache | None


class Block(nn.Module):
    """Memory (if this block has one), attention, feed-forward; each adds to the residual stream."""

    def __init__(self, config: EngramLMConfig, layer: int):
        super().__init__()
        self.engram = None
        if config.engram and layer in config.engram.layer_ids:
            self.engram = Engram(
                config.engram,
                layer,
                hidden_size=config.hidden_size,
                canonical_vocab_size=config.hashed_vocab_size,
                fill_id=config.fill_id,
                eos_id=config.hashed_eos_id,
            )
        self.attn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attn = Attention(config, layer)
        self.ffn_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        if config.has_experts(layer):
            self.moe, self.ffn = MoE(config.hidden_size, config.moe), None
        else:
            self.moe, self.ffn = None, SwiGLU(config.hidden_size, config.intermediate_size)
        self.hook_resid_pre, self.hook_resid_mid, self.hook_resid_post = (
            HookPoint(),
            HookPoint(),
            HookPoint(),
        )
        self.hook_attn_out, self.hook_ffn_out = HookPoint(), HookPoint()

    def forward(
        self, hidden: Float[Tensor, "batch seq hidden"], stream: Stream
    ) -> tuple[Float[Tensor, "batch seq hidden"], Float[Tensor, ""] | None]:
        """Residual stream after this block, and its balance loss (None when off)."""
        hidden = self.hook_resid_pre(hidden)
        if self.engram is not None:
            state = stream.cache.memory if stream.cache is not None else None
            update = self.engram(
                hidden[:, :, None], stream.canonical_ids, context=stream.context, state=state
            )
            hidden = hidden + update.squeeze(2)
        mixed = self.attn(self.attn_norm(hidden), stream.rotary, stream.bias, stream.cache)
        hidden = self.hook_resid_mid(hidden + self.hook_attn_out(mixed))
        normed = self.ffn_norm(hidden)
        update, balance = (
            (self.ffn(normed), None) if self.moe is None else self.moe(normed, stream.mask)
        )
        return self.hook_resid_post(hidden + self.hook_ffn_out(update)), balance
