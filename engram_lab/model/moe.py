"""Mixture of experts: a router, and routed experts computed as grouped products."""

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from engram_lab.hooks import HookPoint
from engram_lab.model.config import MoEConfig, Score
from engram_lab.model.layers import SwiGLU, swiglu


def router_scores(
    logits: Float[Tensor, "token expert"], score: Score
) -> Float[Tensor, "token expert"]:
    """Non-negative scores of the experts, in float32.

    Source: DeepSeek-V3 (sigmoid), DeepSeek-V4.1-Flash inference/model.py (square root of softplus).
    """
    logits = logits.float()
    if score == "softmax":
        return logits.softmax(dim=-1)
    return logits.sigmoid() if score == "sigmoid" else F.softplus(logits).sqrt()


def sequence_balance_loss(
    scores: Float[Tensor, "batch seq expert"],
    chosen: Int64[Tensor, "batch seq topk"],
    mask: Bool[Tensor, "batch seq"] | None = None,
) -> Float[Tensor, ""]:
    """Mean over sequences of sum_i f_i P_i; 1 for uniform routing, larger when routing collapses.

    f_i is expert i's share of the routed tokens times the expert count, P_i its mean normalised
    score. Masked positions count for nothing. Source: DeepSeek-V3 (arXiv:2412.19437), complementary
    sequence-wise loss.
    """
    count, topk = scores.shape[-1], chosen.shape[-1]
    share = scores / scores.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    hits = torch.zeros_like(scores).scatter_(-1, chosen, 1.0)
    weight = torch.ones_like(scores[..., :1]) if mask is None else mask[..., None].to(scores.dtype)
    length = weight.sum(dim=1).clamp_min(1.0)
    load = (hits * weight).sum(dim=1) * count / (topk * length)
    mean_share = (share * weight).sum(dim=1) / length
    per_sequence = (load.detach() * mean_share).sum(dim=-1)
    present = (weight.sum(dim=(1, 2)) > 0).to(per_sequence.dtype)
    return (per_sequence * present).sum() / present.sum().clamp_min(1.0)


class Router(nn.Module):
    """Chooses `topk` experts per token; a bias that only selects keeps their load even."""

    def __init__(self, hidden_size: int, config: MoEConfig):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, hidden_size))
        self.register_buffer("bias", torch.zeros(config.n_routed_experts))
        self.register_buffer("load", torch.zeros(config.n_routed_experts), persistent=False)
        self.hook_router_probs = HookPoint()

    def forward(
        self, hidden: Float[Tensor, "token hidden"]
    ) -> tuple[
        Int64[Tensor, "token topk"], Float[Tensor, "token topk"], Float[Tensor, "token expert"]
    ]:
        """Chosen experts, their weights (from unbiased scores) and all scores."""
        with torch.autocast(hidden.device.type, enabled=False):  # scores are float32 by rule
            logits = F.linear(hidden.float(), self.weight.float())
        scores = self.hook_router_probs(router_scores(logits, self.config.score))
        chosen = (scores + self.bias).topk(self.config.topk, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if self.config.norm_topk and self.config.topk > 1:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return chosen, weights * self.config.route_scale, scores

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Router":
        """Move and cast as usual, except that bias and load stay float32: their steps are small."""
        exact = {name: getattr(self, name) for name in ("bias", "load")}
        super()._apply(fn, recurse)
        for name, value in exact.items():
            moved = getattr(self, name)
            if moved.dtype != value.dtype:
                setattr(self, name, value.to(moved.device))
        return self

    @torch.no_grad()
    def update_balance(self) -> None:
        """Move the bias one step towards even load, and forget the load counted so far.

        Source: arXiv:2408.15664: bias_i += rate * sign(mean load - load_i).
        """
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self.load)
        self.bias += self.config.bias_update_rate * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


class _Dispatch(torch.autograd.Function):
    """Copies each token's row to its places in expert order; its gradient gathers them back."""

    @staticmethod
    def forward(ctx, hidden: Tensor, source: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(place)
        return hidden.index_select(0, source)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (place,) = ctx.saved_tensors
        return _gather_sum(gradient, place), None, None


class _Combine(torch.autograd.Function):
    """Sums each token's expert outputs; the transpose of `_Dispatch`."""

    @staticmethod
    def forward(ctx, outputs: Tensor, source: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(source)
        return _gather_sum(outputs, place)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (source,) = ctx.saved_tensors
        return gradient.index_select(0, source), None, None


def _gather_sum(rows: Tensor, place: Tensor) -> Tensor:
    return rows.index_select(0, place.flatten()).view(*place.shape, rows.shape[-1]).sum(dim=1)


class Experts(nn.Module):
    """Routed SwiGLU experts, one grouped product for all of them."""

    def __init__(self, hidden_size: int, config: MoEConfig):
        super().__init__()
        self.config = config
        count, width = config.n_routed_experts, config.expert_width
        self.gate_up = nn.Parameter(torch.empty(count, hidden_size, 2 * width))
        self.down = nn.Parameter(torch.empty(count, width, hidden_size))

    def forward(
        self,
        hidden: Float[Tensor, "token hidden"],
        chosen: Int64[Tensor, "token topk"],
        weights: Float[Tensor, "token topk"],
        load: Int64[Tensor, "expert"],
    ) -> Float[Tensor, "token hidden"]:
        """Weighted sum of the chosen experts' outputs.

        Args:
            load: how many (token, choice) pairs go to each expert.
        """
        order = chosen.flatten().argsort(stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel(), device=order.device)
        place, source = place.view_as(chosen), order // chosen.shape[1]
        ends = load.cumsum(0).to(torch.int32)
        hidden = hidden.to(_compute_dtype(hidden))
        inner = F.grouped_mm(
            _Dispatch.apply(hidden, source, place), self.gate_up.to(hidden.dtype), offs=ends
        )
        inner = swiglu(inner, clamp=self.config.clamp)
        inner = inner * weights.flatten().index_select(0, order).to(inner.dtype)[:, None]
        outputs = F.grouped_mm(inner, self.down.to(hidden.dtype), offs=ends)
        return _Combine.apply(outputs, source, place)


def _compute_dtype(hidden: Tensor) -> torch.dtype:
    """Autocast does not know the grouped product, so its dtype is taken over by hand."""
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


class MoE(nn.Module):
    """Shared expert plus the routed experts of one block."""

    def __init__(self, hidden_size: int, config: MoEConfig):
        super().__init__()
        self.config = config
        self.router = Router(hidden_size, config)
        self.experts = Experts(hidden_size, config)
        shared = config.shared_width
        self.shared = SwiGLU(hidden_size, shared, clamp=config.clamp) if shared else None

    def forward(
        self,
        hidden: Float[Tensor, "batch seq hidden"],
        mask: Bool[Tensor, "batch seq"] | None = None,
    ) -> tuple[Float[Tensor, "batch seq hidden"], Float[Tensor, ""] | None]:
        """Update for the residual stream, and the weighted balance loss (None when off).

        Args:
            mask: False at padding, which is left out of load and balance loss.
        """
        tokens = hidden.flatten(0, 1)
        chosen, weights, scores = self.router(tokens)
        load = torch.bincount(chosen.flatten(), minlength=self.config.n_routed_experts)
        if self.training:
            live = chosen if mask is None else chosen[mask.flatten()]
            counted = (
                load if mask is None else torch.bincount(live.flatten(), minlength=load.numel())
            )
            self.router.load += counted
        update = self.experts(tokens, chosen, weights, load)
        if self.shared is not None:
            update = update + self.shared(tokens)
        balance = None
        if self.config.sequence_loss and self.training:
            shape = hidden.shape[:2]
            loss = sequence_balance_loss(
                scores.unflatten(0, shape), chosen.unflatten(0, shape), mask
            )
            balance = self.config.sequence_loss * loss
        return update.view_as(hidden), balance
