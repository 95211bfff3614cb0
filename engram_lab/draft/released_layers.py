"""Parts of a drafter in production form: latent attention, its block, and the confidence."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from engram_lab.draft.heads import ConfidenceHead
from engram_lab.draft.layers import KeysValues, Rotary
from engram_lab.draft.released_config import ReleasedConfig
from engram_lab.model.hyper import HyperConnection
from engram_lab.model.layers import RMSNorm, rotate
from engram_lab.model.moe import MoE


class LatentAttention(nn.Module):
    """All heads read one latent a row, which is key and value at once and partly rotated.

    Rotated pairs are the halves of the rotated numbers, as everywhere here; the released weights
    pair neighbours, which is another order of the same columns.

    Attributes:
        o_a: of every group of heads, to `output_rank` numbers; `[group, rank, numbers]`.
        sinks: score of every head that no key takes part in; None without.

    Source: DeepSeek-V4 as in transformers, modeling_deepseek_v4.py.
    """

    def __init__(self, config: ReleasedConfig):
        super().__init__()
        width, size, rank = config.hidden_size, config.head_size, config.query_rank
        heads, groups = config.num_attention_heads, config.output_groups
        self.size, self.turned, self.groups = size, config.rotary_size, groups
        self.undo, self.eps = config.undo_rotation, config.rms_norm_eps
        self.q_a_proj = nn.Linear(width, rank, bias=False)
        self.q_a_norm = RMSNorm(rank, config.rms_norm_eps)
        self.q_b_proj = nn.Linear(rank, heads * size, bias=False)
        self.kv_proj = nn.Linear(width, size, bias=False)
        self.kv_norm = RMSNorm(size, config.rms_norm_eps)
        inner = heads * size // groups
        self.o_a = nn.Parameter(torch.empty(groups, config.output_rank, inner))
        _like_linear(self.o_a, inner)
        self.o_b_proj = nn.Linear(groups * config.output_rank, width, bias=False)
        self.sinks = nn.Parameter(torch.zeros(heads)) if config.attention_sinks else None

    def keys_values(self, hidden: Float[Tensor, "batch seq hidden"], rotary: Rotary) -> KeysValues:
        """The latent of context rows or slots, once as key and once as value."""
        latent = self._turn(self.kv_norm(self.kv_proj(hidden))[:, None], rotary)
        return latent, latent

    def forward(
        self,
        hidden: Float[Tensor, "batch slot hidden"],
        rotary: Rotary,
        keys_values: KeysValues,
        bias: Float[Tensor, "rows 1 slot keys"] | None,
    ) -> Float[Tensor, "batch slot hidden"]:
        """Let slots read latents (context first, then the block itself).

        Args:
            hidden: slots, normed.
            rotary: angles of the slots.
            keys_values: of `keys_values`.
            bias: added to the scores; None where everything is seen.
        """
        query = self.q_b_proj(self.q_a_norm(self.q_a_proj(hidden)))
        query = rearrange(query, "batch seq (head size) -> batch head seq size", size=self.size)
        query = self._turn(F.rms_norm(query, (self.size,), None, self.eps), rotary)
        latent = keys_values[0]
        bias = None if bias is None else bias.to(query.dtype)
        if self.sinks is not None:
            latent, bias = self._with_sink(latent, bias, query)
        mixed = F.scaled_dot_product_attention(
            query, latent, latent, attn_mask=bias, enable_gqa=query.shape[1] > 1
        )
        if self.undo:
            cosine, sine = rotary
            mixed = self._turn(mixed, (cosine, -sine))
        grouped = rearrange(
            mixed, "batch (group head) seq size -> batch seq group (head size)", group=self.groups
        )
        ranked = torch.einsum("bsgi,gri->bsgr", grouped, self.o_a)
        return self.o_b_proj(ranked.flatten(2))

    def _with_sink(
        self, latent: Tensor, bias: Tensor | None, query: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Latents with one of zeros behind them, and biases that make its score a head's sink."""
        keys = latent.shape[2]
        bias = query.new_zeros(1, 1, 1, keys) if bias is None else bias
        seen = bias.expand(*query.shape[:3], keys)
        sink = self.sinks.to(query.dtype).view(1, -1, 1, 1).expand(*query.shape[:3], 1)
        return F.pad(latent, (0, 0, 0, 1)), torch.cat([seen, sink], dim=-1)

    def _turn(self, heads: Tensor, rotary: Rotary) -> Tensor:
        still, turned = heads.split([self.size - self.turned, self.turned], dim=-1)
        return torch.cat([still, rotate(turned, *rotary)], dim=-1)


class ReleasedBlock(nn.Module):
    """Latent attention over context and block, then experts; both read and write all branches."""

    def __init__(self, config: ReleasedConfig):
        super().__init__()
        width = config.hidden_size
        rounds, eps = config.hc_sinkhorn_iters, config.rms_norm_eps
        self.attn_hc, self.ffn_hc = (
            HyperConnection(width, config.hc_mult, sinkhorn_iters=rounds, norm_eps=eps)
            for _ in range(2)
        )
        self.input_layernorm = RMSNorm(width, eps)
        self.self_attn = LatentAttention(config)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.moe = MoE(width, config.moe_config())
        _like_linear(self.moe.router.weight, width)
        _like_linear(self.moe.experts.gate_up, width)
        _like_linear(self.moe.experts.down, config.intermediate_size)

    def forward(
        self,
        branches: Float[Tensor, "batch slot branch hidden"],
        rotary: Rotary,
        context: KeysValues,
        bias: Float[Tensor, "rows 1 slot keys"] | None,
    ) -> Float[Tensor, "batch slot branch hidden"]:
        """Branches of the slots after this block.

        Args:
            branches: before it.
            rotary: angles of the slots.
            context: latents of the context, which this block's norm does not touch.
            bias: added to the scores of context and slots, in that order. A slot that sees nothing
                only fills the tensor, and no expert's load counts it.
        """
        live = None if bias is None else (bias[:, 0] == 0).any(dim=-1).expand(branches.shape[:2])

        def attend(hidden: Tensor) -> Tensor:
            normed = self.input_layernorm(hidden)
            own = self.self_attn.keys_values(normed, rotary)[0]
            latent = torch.cat([context[0], own], dim=2)
            return self.self_attn(normed, rotary, (latent, latent), bias)

        branches = self.attn_hc(branches, attend)
        return self.ffn_hc(
            branches, lambda hidden: self.moe(self.post_attention_layernorm(hidden), live)[0]
        )


class ReleasedConfidence(ConfidenceHead):
    """A confidence head whose product is in float32, without a bias; it reads collapsed states.

    Source: DeepSeek-V4.1-Flash as read by others; DSpark paper, equation 7.
    """

    biased = False

    def score(self, features: Float[Tensor, "*rest width"]) -> Float[Tensor, "*rest"]:
        """Logits in float32, whatever the states are in."""
        with torch.autocast(features.device.type, enabled=False):
            return F.linear(features.float(), self.proj.weight.float()).squeeze(-1)


def _like_linear(weight: nn.Parameter, inputs: int) -> None:
    """First values as those of a linear layer with so many inputs."""
    nn.init.uniform_(weight, -(inputs**-0.5), inputs**-0.5)
