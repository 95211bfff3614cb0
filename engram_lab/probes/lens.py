"""When the answer is known: every layer of the residual stream, read by the model's own head."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.model.anatomy import Anatomy, anatomy_of
from engram_lab.model.residual import read_stream
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.lens_text import LensText, Reader, lens_text, row_by_row

MEASURES = ("kl_nats", "reverse_kl_nats", "entropy_nats")
COLUMNS = ("layer", "position", "token", *MEASURES, "top_token", "target_rank")
PART_VALUES = 1 << 22  # logits of one layer that are in memory at a time, 16 MiB of float32
PARTS = 6  # a text is looked at in so many parts at least, however short it is

Translate = Callable[[int, Float[Tensor, "row hidden"]], Float[Tensor, "row hidden"]]
"""What a lens does to the stream of a layer before it looks through norm and head."""


def lens_frame(
    model: nn.Module, text: str, tokenizer: Reader, *, without_memory: bool = False
) -> pd.DataFrame:
    """`logit_lens` of a text.

    Args:
        model: as there.
        text: what it reads, from the beginning of a document.
        tokenizer: the one it was trained with, ours or one from `transformers`.
        without_memory: as there.

    Raises:
        ValueError: if the text is empty or as `logit_lens`.
    """
    return look(model, lens_text(text, tokenizer), without_memory=without_memory)


def logit_lens(
    model: nn.Module,
    token_ids: Int64[Tensor, "batch seq"],
    tokens: Sequence[str] | Sequence[Sequence[str]],
    *,
    attention_mask: Tensor | None = None,
    decode: Callable[[Sequence[int]], list[str]] | None = None,
    without_memory: bool = False,
    anatomy: Anatomy | None = None,
) -> pd.DataFrame:
    """What the model would predict at each layer, beside what it does predict.

    The stream before every block, and after the last, goes through the model's final norm and its
    head: `p_l = softmax(head(norm(h_l)))`. Layers and positions are taken a part at a time, so the
    logits of a layer are never all in memory. The last layer is compared with the model's output.

    Args:
        model: an `EngramLM` or a decoder from `transformers`, on any device, in any dtype; left as
            it was.
        token_ids: sequences, padded on either side where a mask says so.
        tokens: readable text of every id, padding included; of several sequences row by row.
        attention_mask: 0 at padding, which gets no row; None for no padding.
        decode: gives the texts of ids (`tokenizer.tokens`); without it a predicted token that is
            not in the text is shown by its id, as `#1234`.
        without_memory: look at the stream minus what the memories have added to it so far. The
            distribution it is compared with stays the model's own.
        anatomy: where the model's parts are; None asks `anatomy_of`.

    Returns:
        A row per layer and token; columns sequence (only where there are several), layer (the block
        about to read the stream; one more than the blocks have is after the last), position, token,
        kl_nats (KL(final || layer), 0 at the last layer), reverse_kl_nats (KL(layer || final)),
        entropy_nats, top_token (text of the most probable token), target_rank (place of the token
        that really comes next, 1 for the most probable; NaN where the text ends).

    Raises:
        ValueError: if the model's parts are not known or the last layer is not its output, the text
            is empty or longer than the context, or there is not one text per id.

    Source: Engram paper, section 6.1, which leaves the direction of the divergence open. The lens:
    nostalgebraist, "interpreting GPT: the logit lens" (2020).
    """
    words = LensText(
        token_ids=token_ids,
        tokens=row_by_row(tokens),
        attention_mask=attention_mask,
        decode=decode,
    )
    return look(model, words, without_memory=without_memory, anatomy=anatomy)


def look(
    model: nn.Module,
    words: LensText,
    *,
    translate: Translate | None = None,
    without_memory: bool = False,
    anatomy: Anatomy | None = None,
) -> pd.DataFrame:
    """The frame of `logit_lens`, with what a lens does to the stream before it looks.

    Args:
        model: as for `logit_lens`.
        words: what the model reads.
        translate: maps the stream of a layer; None leaves it as it is.
        without_memory: as for `logit_lens`.
        anatomy: as for `logit_lens`.

    Raises:
        ValueError: as `logit_lens`.
    """
    anatomy = anatomy or anatomy_of(model)
    reading = read_stream(model, words.token_ids, words.attention_mask, anatomy=anatomy)
    stream = _real_positions(reading.stream, words)
    final = stream[-1]
    _check_finite(stream)
    reading.check(anatomy)
    if without_memory:
        stream = _real_positions(reading.without_memory(), words)
    with undisturbed(model):
        measured = _measured(stream, final, words.targets, anatomy, translate)
    columns = {name: values.cpu().numpy() for name, values in measured.items()}
    columns["top_token"] = words.texts(columns["top_token"])
    rank = columns["target_rank"].astype(np.float64)
    columns["target_rank"] = np.where(rank > 0, rank, np.nan)
    return words.frame(columns)


def _measured(
    stream: Float[Tensor, "layer position hidden"],
    final: Float[Tensor, "position hidden"],
    targets: Int64[Tensor, " position"],
    anatomy: Anatomy,
    translate: Translate | None,
) -> dict[str, Tensor]:
    """Every measure at every layer and position, a part of the positions at a time."""
    layers, positions, _ = stream.shape
    targets = targets.to(stream.device)
    vocab = anatomy.logits(final[:1]).shape[-1]
    rows = max(1, min(PART_VALUES // vocab, -(-positions // PARTS)))
    parts = [slice(start, start + rows) for start in range(0, positions, rows)]
    by_part = []
    for part in parts:
        outcome = Outcome(anatomy.logits(final[part]))
        by_layer = []
        for layer in range(layers):
            hidden = stream[layer, part]
            if translate is not None:
                hidden = translate(layer, hidden).to(stream.dtype)
            by_layer.append(outcome.compare(anatomy.logits(hidden), targets[part]))
        by_part.append({name: torch.stack([row[name] for row in by_layer]) for name in by_layer[0]})
    return {name: torch.cat([part[name] for part in by_part], 1) for name in by_part[0]}


class Outcome:
    """The distribution that a model ends with, to compare others with.

    Attributes:
        logprob: its logarithms.
        prob: the probabilities.
    """

    def __init__(self, logits: Float[Tensor, "row vocab"]):
        """Take the logits of the last layer."""
        self.logprob = logits.log_softmax(-1)
        self.prob = self.logprob.exp()

    def compare(
        self, logits: Float[Tensor, "row vocab"], targets: Int64[Tensor, " row"]
    ) -> dict[str, Tensor]:
        """Measures of other logits of the same rows.

        Args:
            logits: of an earlier layer.
            targets: ids that really come next; -1 where none does.

        Returns:
            kl_nats, reverse_kl_nats and entropy_nats (rounding below 0 is cut to 0), top_token (an
            id) and target_rank (0 where there is no target).
        """
        logprob = logits.log_softmax(-1)
        del logits
        top = logprob.argmax(-1)
        reached = logprob.gather(-1, targets.clamp_min(0)[:, None])
        rank = torch.where(targets < 0, 0, 1 + (logprob > reached).sum(-1))
        prob = logprob.exp()
        entropy = -torch.linalg.vecdot(prob, logprob)
        behind = torch.sub(self.logprob, logprob, out=logprob)
        return {
            "kl_nats": torch.linalg.vecdot(self.prob, behind).clamp_min(0),
            "reverse_kl_nats": (-torch.linalg.vecdot(prob, behind)).clamp_min(0),
            "entropy_nats": entropy.clamp_min(0),
            "top_token": top,
            "target_rank": rank,
        }


def _real_positions(
    stream: Float[Tensor, "layer batch seq hidden"], words: LensText
) -> Float[Tensor, "layer position hidden"]:
    """The stream where tokens stand, row by row."""
    if words.attention_mask is None:
        return stream.flatten(1, 2)  # a view
    return stream[:, words.real.to(stream.device)]


def _check_finite(stream: Float[Tensor, "layer position hidden"]) -> None:
    for layer, hidden in enumerate(stream):
        if not bool(torch.isfinite(hidden).all()):
            raise ValueError(
                f"the residual stream must be finite; at layer {layer} it holds NaN or infinity. "
                "Look at the weights, or load the model in a wider dtype."
            )
