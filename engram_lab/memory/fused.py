"""The update of a full pass in one autograd function: plain formulas, fewer passes over memory.

`fused_update` computes what `gate.context_gate` and `conv.short_conv` say; its gradient is written
by hand. Where it saves:

- it takes a few sequences at a time, so that what one step writes the next finds in the cache;
- the norm before the convolution costs no pass: the mean square of gate x value is gate^2 times
  that of the value, so a branch's convolution input is one number per token times the value;
- keys and value stay in the one matrix they were computed in, and so do their gradients;
- gains enter as products (query x key, taps x convolution gain), formed outside on small arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from engram_lab.memory.gate import LEAST_AGREEMENT, gate_of_agreement

_BLOCK = 2**18  # numbers of the stream at a time: 1 MiB of float32


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

    def of(self, part: slice) -> "UpdateRule":
        """The rule for a part of the batch."""
        silent = None if self.silent is None else self.silent[part]
        connected = None if self.connected is None else [mask[part] for mask in self.connected]
        return replace(self, silent=silent, connected=connected)


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
        update = torch.empty_like(hidden, memory_format=torch.contiguous_format)
        kept = []
        for part in _parts(hidden):
            keys_value = F.linear(memory[part], weight, bias)
            kept += _forward(hidden[part], keys_value, gain, taps, rule.of(part), update[part])
        ctx.save_for_backward(hidden, memory, weight, gain, taps, *kept)
        ctx.rule, ctx.has_bias = rule, bias is not None
        return update

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, memory, weight, gain, taps, *kept = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden, memory_format=torch.contiguous_format)
        grad_memory = torch.empty_like(memory) if ctx.needs_input_grad[1] else None
        shared = _Shared(gain, taps, weight)
        for at, part in enumerate(_parts(hidden)):
            values = kept[at * _KEPT : (at + 1) * _KEPT]
            grad_keys_value = _backward(
                (grad[part], hidden[part]), values, shared, ctx.rule.of(part), grad_hidden[part]
            ).flatten(0, 1)
            shared.grad_weight.addmm_(grad_keys_value.t(), memory[part].flatten(0, 1))
            if ctx.has_bias:
                shared.grad_bias += grad_keys_value.sum(0)
            if grad_memory is not None:
                torch.mm(grad_keys_value, weight, out=grad_memory[part].flatten(0, 1))
        grad_bias = shared.grad_bias if ctx.has_bias else None
        gains = (shared.grad_gain, shared.grad_taps)
        return grad_hidden, grad_memory, shared.grad_weight, grad_bias, *gains, None


class _Shared:
    """Small parameters of all parts, and their gradients summed up so far."""

    def __init__(self, gain: Tensor, taps: Tensor | None, weight: Tensor) -> None:
        self.gain, self.taps = gain, taps
        self.grad_gain = torch.zeros_like(gain)
        self.grad_taps = None if taps is None else torch.zeros_like(taps)
        self.grad_weight, self.grad_bias = torch.zeros_like(weight), weight.new_zeros(len(weight))


_KEPT = 7  # tensors that `_forward` keeps per part


def _forward(
    hidden: Tensor,
    keys_value: Tensor,
    gain: Tensor,
    taps: Tensor | None,
    rule: UpdateRule,
    update: Tensor,
) -> list[Tensor | None]:
    """Write the update of a part; what its gradient needs comes back."""
    width = hidden.shape[-1]
    key, value = _key_and_value(keys_value, hidden.shape)
    scales = _inverse_rms(hidden, rule.eps), _inverse_rms(key, rule.eps)
    dot = torch.mul(hidden, key, out=update).mul_(gain).sum(-1)
    score = dot.mul_(scales[0]).mul_(scales[1]).div_(width**0.5)
    gate = gate_of_agreement(score, transform=rule.transform, zero_rule=rule.zero_rule)
    if rule.silent is not None:
        gate.masked_fill_(rule.silent[..., None], 0)
    inverse = sums = None
    if taps is None:
        torch.mul(gate[..., None], value[..., None, :], out=update)
    else:
        square = torch.linalg.vector_norm(value, dim=-1, keepdim=True).square_().div_(width)
        inverse = gate.square().mul_(square).add_(rule.conv_eps).rsqrt_()
        sums = _convolve((gate * inverse)[..., None] * value[..., None, :], taps, rule)
        torch.ops.aten.silu.out(sums, out=update)
        update.addcmul_(gate[..., None], value[..., None, :])
    if rule.silent is not None and rule.mute:
        update.masked_fill_(rule.silent[..., None, None], 0)
    return [keys_value, *scales, score, gate, inverse, sums]


def _backward(
    grad_and_hidden: tuple[Tensor, Tensor],
    kept: Sequence[Tensor | None],
    shared: _Shared,
    rule: UpdateRule,
    grad_hidden: Tensor,
) -> Tensor:
    """Write the stream's gradient of a part, add to the shared ones; that of keys and value."""
    (grad, hidden), width = grad_and_hidden, grad_hidden.shape[-1]
    keys_value, scale_hidden, scale_key, score, gate, inverse, sums = kept
    if rule.silent is not None and rule.mute:
        grad = grad.masked_fill(rule.silent[..., None, None], 0)
    grad_keys_value = torch.empty_like(keys_value)
    key, value = _key_and_value(keys_value, hidden.shape)
    grad_key, grad_value = _key_and_value(grad_keys_value, hidden.shape)
    grad_gate = torch.mul(grad, value[..., None, :], out=grad_hidden).sum(-1)
    _sum_branches(grad, gate, grad_value, fresh=True)
    if sums is not None:
        grad_inputs = _convolve_back(
            torch.ops.aten.silu_backward(grad, sums),
            (gate * inverse)[..., None] * value[..., None, :],
            shared,
            rule,
        )
        _sum_branches(grad_inputs, gate * inverse, grad_value)
        grad_scale = grad_inputs.mul_(value[..., None, :]).sum(-1)
        grad_scale *= inverse.pow(3)
        grad_gate.add_(grad_scale, alpha=rule.conv_eps)
        shrunk = (grad_scale * gate.pow(3)).sum(-1, keepdim=True)
        grad_value.addcmul_(value, shrunk, value=-1 / width)
    grad_score = grad_gate.mul_(_gate_slope(score, gate, rule))
    grad_dot = grad_score * scale_hidden * scale_key / width**0.5
    shrink = (grad_score * score).div_(-width)
    buffer = torch.mul(hidden, key, out=grad_hidden)
    shared.grad_gain += _weighted_sum(grad_dot, buffer)
    torch.mul(grad_dot[..., None], shared.gain, out=buffer)
    torch.mul(buffer, hidden, out=grad_key)
    grad_key.addcmul_(key, (shrink * scale_key.square())[..., None])
    buffer.mul_(key).addcmul_(hidden, (shrink * scale_hidden.square())[..., None])
    return grad_keys_value


def _parts(hidden: Tensor) -> list[slice]:
    """Parts of the batch whose streams fit into a cache."""
    batch, *shape = hidden.shape
    step = max(1, _BLOCK // max(1, torch.Size(shape).numel()))
    return [slice(first, first + step) for first in range(0, batch, step)]


def _key_and_value(keys_value: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """The two as views of their matrix: `[batch, seq, branch, hidden]`, `[batch, seq, hidden]`."""
    return keys_value[..., : -shape[-1]].view(shape), keys_value[..., -shape[-1] :]


def _inverse_rms(values: Tensor, eps: float) -> Tensor:
    norm = torch.linalg.vector_norm(values, dim=-1)
    return norm.square_().div_(values.shape[-1]).add_(eps).rsqrt_()


def _gate_slope(score: Tensor, gate: Tensor, rule: UpdateRule) -> Tensor:
    """Derivative of the gate by the agreement; 0 where the agreement was moved away from 0."""
    slope = gate * (1 - gate)
    if rule.transform == "identity":
        return slope
    size = score.abs()
    steep = size.clamp_min(LEAST_AGREEMENT).rsqrt_().mul_(0.5)
    return slope.mul_(steep).masked_fill_(size < LEAST_AGREEMENT, 0)


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sum over tokens of values times one weight per token and branch: `[branch, hidden]`."""
    weights, values = weights.flatten(0, 1), values.flatten(0, 1)
    return torch.bmm(weights.t()[:, None, :], values.transpose(0, 1)).squeeze(1)


def _sum_branches(values: Tensor, weights: Tensor, total: Tensor, *, fresh: bool = False) -> None:
    """Add to `total` the sum over branches of values times one weight per token and branch.

    A `fresh` total holds nothing yet.
    """
    for branch in range(values.shape[2]):
        pair = values[:, :, branch], weights[:, :, branch, None]
        if fresh and branch == 0:
            torch.mul(*pair, out=total)
        else:
            total.addcmul_(*pair)


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


def _convolve_back(grad_sums: Tensor, inputs: Tensor, shared: _Shared, rule: UpdateRule) -> Tensor:
    """Gradient of the convolution's inputs; that of the taps is added to the shared ones.

    Sums over batch and positions go in two steps: one over both is slow where they are slices.
    """
    seq, taps, grad_taps = inputs.shape[1], shared.taps, shared.grad_taps
    grad_inputs, buffer = grad_sums * taps[-1], grad_sums * inputs
    grad_taps[-1] += buffer.sum(1).sum(0)
    for tap, shift in _shifts(taps, seq, rule):
        late = grad_sums[:, shift:]
        if rule.connected is not None:
            late = late.masked_fill(~rule.connected[tap][..., None, None], 0)
        grad_inputs[:, : seq - shift].addcmul_(late, taps[tap])
        products = torch.mul(late, inputs[:, : seq - shift], out=buffer[:, shift:])
        grad_taps[tap] += products.sum(1).sum(0)
    return grad_inputs
