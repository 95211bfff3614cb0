"""The update of a full pass in one autograd function: plain formulas, fewer passes over memory.

`fused_update` computes what `gate.context_gate` and `conv.short_conv` say; its gradient is written
by hand. Where it saves:

- the norm before the convolution costs no pass: the mean square of gate x value is gate^2 times
  that of the value, so a branch's convolution input is one number per token times the value;
- keys and value stay in the one matrix they were computed in, and so do their gradients;
- gains enter as products (query x key, taps x convolution gain), formed outside on small arrays.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from engram_lab.memory.gate import LEAST_AGREEMENT, gate_of_agreement


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """What `fused_update` needs to know beside its tensors.

    Attributes:
        transform: of the gate.
        zero_rule: of the gate.
        eps: epsilon of the gate's norms.
        conv_eps: epsilon of the norm before the convolution.
        dilation: positions between taps.
        silent: positions that hand no value on.
        mute: whether silent positions get no update either.
        connected: per tap before the last, whether it reads within the segment, from the first
            position on that it serves; None for always.
    """

    transform: Literal["signed_sqrt", "identity"]
    zero_rule: Literal["sign", "copysign"]
    eps: float
    conv_eps: float
    dilation: int
    silent: Bool[Tensor, "batch seq"] | None
    mute: bool
    connected: list[Bool[Tensor, "batch _"]] | None


def fused_update(
    hidden: Float[Tensor, "batch seq branch hidden"],
    memory: Float[Tensor, "batch seq mem"],
    projection: tuple[Float[Tensor, "out mem"], Float[Tensor, "out"] | None],
    gain: Float[Tensor, "branch hidden"],
    taps: Float[Tensor, "kernel branch hidden"] | None,
    rule: UpdateRule,
) -> Float[Tensor, "batch seq branch hidden"]:
    """Gated value plus convolution of a full pass.

    Args:
        projection: weight and bias that make keys and value.
        gain: product of the query's and the key's norm gain.
        taps: convolution weight times the gain of its norm; None for no convolution.
    """
    return _Update.apply(hidden, memory, *projection, gain, taps, rule)


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        memory: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gain: Tensor,
        taps: Tensor | None,
        rule: UpdateRule,
    ) -> Tensor:
        batch, seq, branch, width = hidden.shape
        keys_value = F.linear(memory, weight, bias)
        key = keys_value[..., :-width].view(batch, seq, branch, width)
        value = keys_value[..., None, -width:]
        product = hidden * key
        scale = _inverse_rms(hidden, rule.eps), _inverse_rms(key, rule.eps)
        score = (product * gain).sum(-1) * scale[0] * scale[1] / width**0.5
        gate = gate_of_agreement(score, transform=rule.transform, zero_rule=rule.zero_rule)
        if rule.silent is not None:
            gate.masked_fill_(rule.silent[..., None], 0)
        inverse = inputs = sums = None
        if taps is None:
            update = gate[..., None] * value
        else:
            square = torch.linalg.vector_norm(value, dim=-1).square() / width
            inverse = torch.rsqrt(gate.square() * square + rule.conv_eps)
            inputs = (gate * inverse)[..., None] * value
            sums = _convolve(inputs, taps, rule)
            update = F.silu(sums).addcmul_(gate[..., None], value)
        if rule.silent is not None and rule.mute:
            update.masked_fill_(rule.silent[..., None, None], 0)
        ctx.save_for_backward(
            hidden,
            memory,
            weight,
            gain,
            taps,
            keys_value,
            product,
            *scale,
            score,
            gate,
            inverse,
            inputs,
            sums,
        )
        ctx.rule, ctx.has_bias = rule, bias is not None
        return update

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, memory, weight, gain, taps, keys_value, product, *rest = ctx.saved_tensors
        scale_hidden, scale_key, score, gate, inverse, inputs, sums = rest
        rule, width = ctx.rule, hidden.shape[-1]
        key = keys_value[..., :-width].view(hidden.shape)
        value = keys_value[..., None, -width:]
        if rule.silent is not None and rule.mute:
            grad = grad.masked_fill(rule.silent[..., None, None], 0)
        buffer = grad * value
        grad_gate = buffer.sum(-1)
        grad_keys_value = torch.empty_like(keys_value)
        grad_value = grad_keys_value[..., -width:]
        _sum_branches(grad, gate, grad_value.zero_())
        grad_taps = None
        if taps is not None:
            grad_sums = torch.ops.aten.silu_backward(grad, sums)
            grad_inputs, grad_taps = _convolve_back(grad_sums, inputs, taps, rule)
            _sum_branches(grad_inputs, gate * inverse, grad_value)
            grad_scale = torch.mul(grad_inputs, value, out=grad_inputs).sum(-1)
            cube = inverse.pow(3)
            grad_gate.addcmul_(grad_scale, cube, value=rule.conv_eps)
            grad_square = (grad_scale * cube * gate.pow(3)).sum(-1, keepdim=True) / -width
            grad_value.addcmul_(value.squeeze(2), grad_square)
        grad_score = grad_gate * _gate_slope(score, gate, rule)
        grad_dot = grad_score * scale_hidden * scale_key / width**0.5
        shrink = grad_score * score / -width
        grad_key = grad_keys_value[..., :-width].view(hidden.shape)
        torch.mul(grad_dot[..., None], gain, out=buffer)
        torch.mul(buffer, hidden, out=grad_key)
        grad_key.addcmul_(key, (shrink * scale_key.square())[..., None])
        grad_hidden = buffer.mul_(key).addcmul_(hidden, (shrink * scale_hidden.square())[..., None])
        flat_grad = grad_keys_value.flatten(0, 1)
        return (
            grad_hidden,
            grad_keys_value @ weight if ctx.needs_input_grad[1] else None,
            flat_grad.t() @ memory.flatten(0, 1),
            flat_grad.sum(0) if ctx.has_bias else None,
            _weighted_sum(grad_dot, product),
            grad_taps,
            None,
        )


def _inverse_rms(values: Tensor, eps: float) -> Tensor:
    norm = torch.linalg.vector_norm(values, dim=-1)
    return norm.square_().div_(values.shape[-1]).add_(eps).rsqrt_()


def _gate_slope(score: Tensor, gate: Tensor, rule: UpdateRule) -> Tensor:
    """Derivative of the gate by the agreement; 0 where the agreement was moved away from 0."""
    slope = gate * (1 - gate)
    if rule.transform == "identity":
        return slope
    size = score.abs()
    return torch.where(
        size < LEAST_AGREEMENT, 0, slope * 0.5 * size.clamp_min(LEAST_AGREEMENT).rsqrt()
    )


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sum over tokens of values times one weight per token and branch: `[branch, hidden]`."""
    weights, values = weights.flatten(0, 1), values.flatten(0, 1)
    return torch.bmm(weights.t()[:, None, :], values.transpose(0, 1)).squeeze(1)


def _sum_branches(values: Tensor, weights: Tensor, total: Tensor) -> None:
    """Add to `total` the sum over branches of values times one weight per token and branch."""
    for branch in range(values.shape[2]):
        total.addcmul_(values[:, :, branch], weights[:, :, branch, None])


def _shifts(taps: Tensor, seq: int, rule: UpdateRule) -> list[tuple[int, int]]:
    """Taps before the position itself, with their distance, as far as the sequence reaches."""
    last = taps.shape[0] - 1
    pairs = [(tap, (last - tap) * rule.dilation) for tap in range(last)]
    return [(tap, shift) for tap, shift in pairs if shift < seq]


def _convolve(inputs: Tensor, taps: Tensor, rule: UpdateRule) -> Tensor:
    seq = inputs.shape[1]
    sums = inputs * taps[-1]
    for tap, shift in _shifts(taps, seq, rule):
        early = inputs[:, : seq - shift]
        if rule.connected is not None:
            early = early.masked_fill(~rule.connected[tap][..., None, None], 0)
        sums[:, shift:].addcmul_(early, taps[tap])
    return sums


def _convolve_back(
    grad_sums: Tensor, inputs: Tensor, taps: Tensor, rule: UpdateRule
) -> tuple[Tensor, Tensor]:
    """Gradients of the convolution's inputs and taps."""
    seq = inputs.shape[1]
    grad_inputs, grad_taps = grad_sums * taps[-1], torch.zeros_like(taps)
    buffer = grad_sums * inputs
    grad_taps[-1] = buffer.sum(1).sum(
        0
    )  # in two steps: one over both axes is slow where they are slices
    for tap, shift in _shifts(taps, seq, rule):
        late = grad_sums[:, shift:]
        if rule.connected is not None:
            late = late.masked_fill(~rule.connected[tap][..., None, None], 0)
        grad_inputs[:, : seq - shift].addcmul_(late, taps[tap])
        products = torch.mul(late, inputs[:, : seq - shift], out=buffer[:, shift:])
        grad_taps[tap] = products.sum(1).sum(0)
    return grad_inputs, grad_taps
