"""The tuned lens: an affine map per layer, so that the stream speaks the last layer's tongue.

The logit lens reads an early stream as if it were the last. A model may write the same thing in
other directions early on; the map undoes that, so what remains is what is not known yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.model.anatomy import Anatomy, anatomy_of
from engram_lab.model.residual import read_stream
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.lens import PART_VALUES, look
from engram_lab.probes.lens_text import LensText, Reader, lens_text, row_by_row


@dataclass(frozen=True, kw_only=True)
class TunedLensConfig:
    """How the maps of a tuned lens are fitted.

    Attributes:
        steps: optimiser steps.
        sequences: sequences per step, drawn without replacement until all have been seen.
        learning_rate: of Adam at first; it falls to 0 along a line.
        weight_decay: pull of every map towards the identity.
        seed: of the order of the sequences.

    Raises:
        ValueError: if a number is out of its range.
    """

    steps: int = 200
    sequences: int = 8
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("sequences", 1), ("weight_decay", 0)):
            if getattr(self, name) < least:
                raise ValueError(
                    f"TunedLensConfig.{name} must be at least {least}; got {getattr(self, name)}"
                )
        if not self.learning_rate > 0:
            raise ValueError(
                f"TunedLensConfig.learning_rate must be positive; got {self.learning_rate}"
            )


class TunedLens(nn.Module):
    """An affine map per layer, `h + W_l h + b_l`, at first the identity.

    Attributes:
        weight: W of every layer but the last, which needs no map.
        bias: b of every layer but the last.
        history: columns step, layer and kl_nats: what was minimised, on the text of that step.

    Source: Belrose et al., "Eliciting latent predictions from transformers with the tuned lens"
    (arXiv:2303.08112), section 3.
    """

    def __init__(self, layers: int, hidden_size: int):
        """Identity maps.

        Args:
            layers: the model's blocks; each reads a stream that has a map.
            hidden_size: width of the stream.
        """
        super().__init__()
        zeros = torch.zeros(hidden_size, hidden_size)
        self.weight = nn.ParameterList(zeros.clone() for _ in range(layers))
        self.bias = nn.ParameterList(zeros[0].clone() for _ in range(layers))
        self.history = pd.DataFrame(columns=["step", "layer", "kl_nats"])

    def forward(
        self, layer: int, stream: Float[Tensor, "row hidden"]
    ) -> Float[Tensor, "row hidden"]:
        """The stream of a layer as the last layer would write it, in float32.

        Args:
            layer: the block about to read it; the one after the last is returned unchanged.
            stream: rows of the residual stream.

        Raises:
            ValueError: if the stream has another width than the maps.
        """
        if layer == len(self.weight):
            return stream
        weight, bias = self.weight[layer], self.bias[layer]
        if stream.shape[-1] != len(bias):
            raise ValueError(
                f"a tuned lens of width {len(bias)} reads streams of that width; got "
                f"{stream.shape[-1]}. Fit one with fit_tuned_lens(model, ...)."
            )
        wide = stream.to(weight.dtype)
        return wide + wide @ weight.T + bias


def fit_tuned_lens(
    model: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    *,
    attention_mask: Tensor | None = None,
    config: TunedLensConfig | None = None,
    anatomy: Anatomy | None = None,
) -> TunedLens:
    """Maps that bring every layer's prediction near the model's own, by KL(final || layer).

    Args:
        model: as for `logit_lens`; frozen and left as it was.
        token_ids: text to fit on. Take text that the model was not trained on, and look at other
            text afterwards.
        attention_mask: 0 at padding; None for no padding.
        config: steps and rates; None for the defaults.
        anatomy: where the model's parts are; None asks `anatomy_of`.

    Raises:
        ValueError: as `logit_lens`.
    """
    config, anatomy = config or TunedLensConfig(), anatomy or anatomy_of(model)
    lens, optimizer, rows = None, None, []
    for step, chosen in enumerate(_batches(len(token_ids), config)):
        mask = None if attention_mask is None else attention_mask[chosen]
        reading = read_stream(model, token_ids[chosen], mask, anatomy=anatomy)
        if lens is None or optimizer is None:
            reading.check(anatomy)
            lens = _identity(reading.stream)
            optimizer = torch.optim.AdamW(
                lens.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
            )
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * (1 - step / config.steps)
        optimizer.zero_grad()
        real = slice(None) if mask is None else mask.bool().flatten().to(reading.stream.device)
        with undisturbed(model):
            losses = _backward(lens, reading.stream.flatten(1, 2)[:, real], anatomy)
        optimizer.step()
        rows += [(step, layer, loss) for layer, loss in enumerate(losses)]
    if lens is None:
        lens = _identity(read_stream(model, token_ids[:1], anatomy=anatomy).stream)
    lens.history = pd.DataFrame(rows, columns=["step", "layer", "kl_nats"])
    return lens.requires_grad_(False)


def tuned_lens(
    model: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    tokens: Sequence[str] | Sequence[Sequence[str]],
    *,
    lens: TunedLens,
    attention_mask: Tensor | None = None,
    decode: Callable[[Sequence[int]], list[str]] | None = None,
    anatomy: Anatomy | None = None,
) -> pd.DataFrame:
    """The frame of `logit_lens`, every layer seen through its fitted map first.

    Args:
        model: as for `logit_lens`.
        token_ids: as there; other text than the maps were fitted on.
        tokens: readable text of every id, row by row.
        lens: from `fit_tuned_lens` with this model.
        attention_mask: as there.
        decode: as there.
        anatomy: as there.

    Raises:
        ValueError: as `logit_lens`, and if the lens is of a model of another shape.
    """
    words = LensText(
        token_ids=token_ids,
        tokens=row_by_row(tokens),
        attention_mask=attention_mask,
        decode=decode,
    )
    anatomy = anatomy or anatomy_of(model)
    _check_shape(lens, anatomy)
    return look(model, words, translate=lens, anatomy=anatomy)


def tuned_lens_frame(
    model: nn.Module, text: str, tokenizer: Reader, *, lens: TunedLens
) -> pd.DataFrame:
    """`tuned_lens` of a text, as `lens_frame` is the `logit_lens` of one.

    Raises:
        ValueError: if the text is empty or as `tuned_lens`.
    """
    _check_shape(lens, anatomy_of(model))
    return look(model, lens_text(text, tokenizer), translate=lens)


def _batches(count: int, config: TunedLensConfig) -> list[Tensor]:
    """Which sequences each step reads: every one once before any twice."""
    generator = torch.Generator().manual_seed(config.seed)
    needed = config.steps * min(config.sequences, count)
    rounds = [torch.randperm(count, generator=generator) for _ in range(-(-needed // count))]
    return list(torch.cat(rounds)[:needed].split(min(config.sequences, count))) if needed else []


def _identity(stream: Float[Tensor, "layer batch seq hidden"]) -> TunedLens:
    return TunedLens(len(stream) - 1, stream.shape[-1]).to(stream.device)


def _backward(
    lens: TunedLens, stream: Float[Tensor, "layer position hidden"], anatomy: Anatomy
) -> list[float]:
    """Add the gradients of every layer's mean divergence to the lens; returns the divergences.

    A part of the positions and one layer at a time, so that one set of logits is in memory.
    """
    losses = [0.0] * (len(stream) - 1)
    vocab = anatomy.logits(stream[-1, :1]).shape[-1]
    size = max(1, PART_VALUES // vocab)
    for part in range(0, stream.shape[1], size):
        rows = slice(part, part + size)
        final = anatomy.logits(stream[-1, rows]).log_softmax(-1)
        prob = final.exp()
        for layer in range(len(losses)):
            with torch.enable_grad():
                mapped = lens(layer, stream[layer, rows]).to(stream.dtype)
                behind = final - anatomy.logits(mapped).log_softmax(-1)
                loss = torch.linalg.vecdot(prob, behind).sum() / stream.shape[1]
                # named inputs: the model's own parameters gather no gradient
                loss.backward(inputs=[lens.weight[layer], lens.bias[layer]])
            losses[layer] += float(loss.detach())
    return losses


def _check_shape(lens: TunedLens, anatomy: Anatomy) -> None:
    if len(lens.weight) != len(anatomy.blocks):
        raise ValueError(
            f"a tuned lens needs a map per block; this model has {len(anatomy.blocks)} blocks, the "
            f"lens {len(lens.weight)} maps. Fit one with fit_tuned_lens(model, ...)."
        )
