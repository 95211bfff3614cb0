"""The residual stream of a model, layer by layer: one view for ours and any from `transformers`."""

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.model.anatomy import Anatomy, anatomy_of
from engram_lab.model.tape import Tape
from engram_lab.model.undisturbed import undisturbed

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
"""How far two ways to the same values may lie apart, as a share of the largest value."""
COARSE = 0.03  # the same in half precision: a few roundings of 2^-8


def residual_stream(
    model: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    attention_mask: Tensor | None = None,
    *,
    anatomy: Anatomy | None = None,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "layer batch seq hidden"]:
    """Residual stream before each block and after the last, none of it normalised.

    Residual branches are collapsed by the model's own read-out: that of the sublayer which reads
    the stream next, and after the last block that of the model. A memory is read inside its block,
    so its update first shows one layer later. The model computes logits of a few positions only.

    Args:
        model: an `EngramLM` or a decoder from `transformers`, on any device; left as it was. A
            model without a head will do.
        token_ids: sequences; may be padded on either side where a mask says so.
        attention_mask: 0 at padding, where the stream has no meaning; None for no padding.
        anatomy: where the parts are; None asks `anatomy_of`.
        dtype: floating dtype to keep; None keeps the model's.

    Returns:
        One layer more than the model has blocks.

    Raises:
        ValueError: if the model's parts are not known or not what it runs, or the text is empty,
            longer than the context, outside the vocabulary or all padding.
    """
    return read_stream(model, token_ids, attention_mask, anatomy=anatomy, dtype=dtype).stream


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one pass through a model showed.

    Attributes:
        stream: the residual stream, as `residual_stream` gives it.
        updates: what each memory added to the stream inside its block, batch seq hidden, by block.
        head_input: what the head was given at the last positions; None without a head.
        head_output: what it made of them.
        logits: what the model made of that.
    """

    stream: Float[Tensor, "layer batch seq hidden"]
    updates: dict[int, Tensor] = field(default_factory=dict)
    head_input: Tensor | None = None
    head_output: Tensor | None = None
    logits: Tensor | None = None

    def without_memory(self) -> Float[Tensor, "layer batch seq hidden"]:
        """The stream minus what the memories have added to it so far.

        That takes away their direct path to the output; what later blocks made of them stays.

        Raises:
            ValueError: if the model has no memory.
        """
        if not self.updates:
            raise ValueError(
                "only a model with memory has a stream without it; this model has none. Leave out "
                "without_memory=True."
            )
        stream = self.stream.clone()
        for layer, update in self.updates.items():
            stream[layer + 1 :] -= update.to(stream)
        return stream

    def check(self, anatomy: Anatomy) -> None:
        """Compare the last layer, seen through norm and head, with the model's own logits.

        Raises:
            ValueError: if they differ, naming the part that is not what the model uses: what stands
                before the head, the head, or what follows it.
        """
        head = anatomy.require_head()
        if self.head_input is None or self.head_output is None or self.logits is None:
            raise ValueError(
                f"the head ({type(head).__name__}) was not called by the model. Give the module "
                "that it calls: Anatomy(head=...)."
            )
        last = self.stream[-1][:, -self.head_input.shape[1] :]
        with torch.no_grad():
            seen = anatomy.logits(last)
            read = anatomy.head_input(last)
            finished = anatomy.finish(self.head_output)
        dtypes = (self.stream.dtype, self.head_output.dtype)
        allowed = max(TOLERANCE.get(dtype, COARSE) for dtype in dtypes)
        distance = _distance(seen, self.logits)
        if distance <= allowed:
            return
        if not _distance(read, self.head_input) <= allowed:
            part = "the head reads something else than the final norm of the last stream (norm)"
        elif not _distance(finished, self.logits) <= allowed:
            part = (
                f"the head's output is not followed by factor {anatomy.factor:g} and cap "
                f"{anatomy.cap} alone (factor, cap)"
            )
        else:
            part = "the head gives something else for what it reads (head)"
        raise ValueError(
            f"the lens at the last layer must equal the model's logits; it is off by "
            f"{distance:.3g} of the largest. Wrong part: {part}. Describe the model with "
            "Anatomy(...), and pass that as anatomy=."
        )


def read_stream(
    model: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    attention_mask: Tensor | None = None,
    *,
    anatomy: Anatomy | None = None,
    dtype: torch.dtype | None = None,
) -> Reading:
    """One pass through a model: its residual stream, and what it takes to check a lens.

    Arguments and errors are those of `residual_stream`.
    """
    anatomy = anatomy or anatomy_of(model)
    _check_input(token_ids, attention_mask, anatomy)
    tape = Tape(anatomy, (token_ids.shape[0], token_ids.shape[1]), dtype)
    arguments = _arguments(model, token_ids, attention_mask)
    with undisturbed(model), tape.running(getattr(model, "memories", {})):
        output = model(**arguments)
    logits = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
    return Reading(
        stream=tape.finished(),
        updates=tape.updates,
        head_input=tape.head_input,
        head_output=tape.head_output,
        logits=logits if isinstance(logits, Tensor) else None,
    )


def _arguments(model: nn.Module, token_ids: Tensor, mask: Tensor | None) -> dict[str, Any]:
    """What the model's forward is called with, as far as it knows these names."""
    device = next(model.parameters()).device
    known = inspect.signature(model.forward).parameters
    name = "input_ids" if "input_ids" in known else next(iter(known))
    arguments: dict[str, Any] = {name: token_ids.to(device)}
    if mask is not None:
        mask = mask.to(device)
        arguments["attention_mask"] = mask
        if "position_ids" in known and not bool(mask[:, 0].all()):
            # so that a text padded on the left has the positions it has alone
            arguments["position_ids"] = (mask.long().cumsum(-1) - 1).clamp_min(0)
    if "use_cache" in known:
        arguments["use_cache"] = False
    return arguments


def _check_input(token_ids: Tensor, mask: Tensor | None, anatomy: Anatomy) -> None:
    shape, context, vocab_size = tuple(token_ids.shape), anatomy.context, anatomy.vocab_size
    if token_ids.numel() == 0:
        raise ValueError(f"a text must hold at least one token; got ids of shape {shape}")
    if context is not None and shape[1] > context:
        raise ValueError(
            f"the context of this model holds at most {context} positions; got a text of "
            f"{shape[1]} tokens. Shorten it, or read its end: token_ids[:, -{context}:]."
        )
    low, high = int(token_ids.min()), int(token_ids.max())
    if low < 0 or (vocab_size is not None and high >= vocab_size):
        raise ValueError(
            f"token ids must lie in 0..{'' if vocab_size is None else vocab_size - 1} (the model's "
            f"embedding); got {low}..{high}. Encode the text with the tokenizer of this model."
        )
    if mask is None:
        return
    if tuple(mask.shape) != shape:
        raise ValueError(
            f"attention_mask must have the shape of the ids, {shape}; got {tuple(mask.shape)}"
        )
    if not bool(mask.bool().any(-1).all()):
        raise ValueError("each sequence must hold a token; attention_mask has a row of zeros")


def _distance(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference, as a share of the largest value; infinite for other shapes."""
    if ours.shape != theirs.shape:
        return float("inf")
    wide = torch.promote_types(torch.promote_types(ours.dtype, theirs.dtype), torch.float32)
    ours, theirs = ours.to(wide), theirs.to(wide)
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12))
