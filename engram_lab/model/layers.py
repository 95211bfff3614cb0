"""Building blocks every block uses: RMSNorm, rotary attention with grouped queries, SwiGLU."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn
from transformers import Cache

from engram_lab.hooks import HookPoint
from engram_lab.model.config import EngramLMConfig


class RMSNorm(nn.Module):
    """Scale each position to unit root mean square, then by a learned gain."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, hidden: Float[Tensor, "*rest hidden"]) -> Float[Tensor, "*rest hidden"]:
        """Normalise the last axis."""
        return F.rms_norm(hidden, (hidden.shape[-1],), self.weight, self.eps)


def rotary_angles(
    position_ids: Int64[Tensor, "rows seq"], head_size: int, theta: float
) -> tuple[Float[Tensor, "rows 1 seq half"], Float[Tensor, "rows 1 seq half"]]:
    """Cosine and sine of the rotary angles, in float32, for every position.

    Source: RoFormer (arXiv:2104.09864), with the two halves of a head as the rotated pair.
    """
    exponents = (
        torch.arange(0, head_size, 2, device=position_ids.device, dtype=torch.float32) / head_size
    )
    angles = position_ids[:, None, :, None].float() * theta**-exponents
    return angles.cos(), angles.sin()


def rotate(
    heads: Float[Tensor, "batch head seq size"],
    cosine: Float[Tensor, "rows 1 seq half"],
    sine: Float[Tensor, "rows 1 seq half"],
) -> Float[Tensor, "batch head seq size"]:
    """Turn each (first half, second half) pair of a head by its position's angle."""
    first, second = heads.float().chunk(2, dim=-1)
    turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
    return turned.to(heads.dtype)


class Attention(nn.Module):
    """Causal attention with rotary positions; query heads may share keys and values in groups."""

    def __init__(self, config: EngramLMConfig, layer: int):
        super().__init__()
        self.layer = layer
        self.head_size = config.head_size
        self.query_heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        width = (self.query_heads + 2 * self.key_heads) * self.head_size
        self.qkv = nn.Linear(config.hidden_size, width, bias=False)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_z = HookPoint()

    def forward(
        self,
        hidden: Float[Tensor, "batch seq hidden"],
        rotary: tuple[Tensor, Tensor],
        bias: Float[Tensor, "rows 1 seq keys"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch seq hidden"]:
        """Mix positions.

        Args:
            rotary: cosine and sine of `rotary_angles` for these positions.
            bias: added to the scores, 0 where a key may be seen and -inf where not; None for plain
                causal order.
            cache: keys and values of earlier positions, extended in place.
        """
        heads = rearrange(
            self.qkv(hidden), "batch seq (head size) -> batch head seq size", size=self.head_size
        )
        query, key, value = heads.split([self.query_heads, self.key_heads, self.key_heads], dim=1)
        query = self.hook_q(rotate(query, *rotary))
        key, value = self.hook_k(rotate(key, *rotary)), self.hook_v(value)
        if cache is not None:
            key, value = cache.update(key, value, self.layer)
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if bias is None else bias.to(query.dtype),
            is_causal=bias is None,
            enable_gqa=self.query_heads != self.key_heads,
        )
        mixed = self.hook_z(mixed)  # batch head seq size
        return self.out(rearrange(mixed, "batch head seq size -> batch seq (head size)"))


class SwiGLU(nn.Module):
    """Gated feed-forward: `down(silu(gate x) * up x)`, gate and up in one product."""

    def __init__(self, hidden_size: int, width: int, *, clamp: float | None = None):
        super().__init__()
        self.gate_up = nn.Linear(hidden_size, 2 * width, bias=False)
        self.down = nn.Linear(width, hidden_size, bias=False)
        self.clamp = clamp

    def forward(self, hidden: Float[Tensor, "*rest hidden"]) -> Float[Tensor, "*rest hidden"]:
        """Update for the residual stream."""
        return self.down(swiglu(self.gate_up(hidden), clamp=self.clamp))


def swiglu(
    gate_up: Float[Tensor, "*rest double"], *, clamp: float | None = None
) -> Float[Tensor, "*rest width"]:
    """`silu(gate) * up` of a fused product; `clamp` limits gate from above and up on both sides.

    Source: DeepSeek-V4.1-Flash inference/model.py (the clamp).
    """
    gate, up = gate_up.chunk(2, dim=-1)
    if clamp is not None:
        gate, up = gate.clamp(max=clamp), up.clamp(min=-clamp, max=clamp)
    return F.silu(gate) * up
