"""What the rows of a memory say, and what the next-token list loses without them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import pandas as pd
from jaxtyping import Int64
from torch import Tensor, nn

from engram_lab.probes.gates import Encoder
from engram_lab.probes.prompts import one_token, prefix
from engram_lab.probes.sayings import ROW, saying_frame
from engram_lab.probes.switches import (
    Switch,
    addresses_read,
    memories_of,
    switched_logits,
    tables_of,
)

START = "⊢"  # in a key, what stands before the first token
SILENT = {"token": "", "value_norm": 0.0}  # what a row of zeros says
SHOWN_KEYS = 3  # keys that `row_frame` names of those that share a row


class KeyUse(NamedTuple):
    """How often a training text read a row under one n-gram.

    Attributes:
        token_ids: the n-gram, the oldest token first; one spelling of those that are hashed alike.
        text: the same, readable.
        count: occurrences.
    """

    token_ids: tuple[int, ...]
    text: str
    count: int


class RowUse(NamedTuple):
    """How a training text used one row.

    Attributes:
        times_trained: how often the row was read, all keys together.
        key_count: distinct keys that read it.
        keys: the most frequent of them, the first the most frequent.
    """

    times_trained: int
    key_count: int
    keys: list[KeyUse]


@runtime_checkable
class RowUses(Protocol):
    """What `row_frame` asks of an index from rows to the n-grams that trained them."""

    def use(self, layer: int, order: int, head: int, row: int) -> RowUse:
        """How one row was used."""


EFFECT = ("token", "logit_change", "probability", "probability_without")


def row_frame(
    model: nn.Module,
    text: str,
    tokenizer: Encoder,
    *,
    position: int = -1,
    target: str | None = None,
    index: RowUses | None = None,
) -> pd.DataFrame:
    """The rows a memory reads at one token: who shares them, what they say, what they change.

    Args:
        model: a model with memory; left as it was.
        text: what it reads, from the beginning of a document.
        tokenizer: the one the model was trained with.
        position: token at which the rows are read and whose next token is predicted; negative ones
            count from the end.
        target: the next token whose logit is watched; None takes the most probable one.
        index: what the rows were trained on; None where that is not known.

    Returns:
        One row per memory row read, with columns layer, order, head, row (address in that table),
        key (the n-gram of this text), keys (who shares the row, the most frequent first),
        key_count and times_trained (missing without an index), top_token (what the row says by
        itself through norm and head; empty for a row of zeros), value_norm (length of what it
        adds before the gate), token (the target), logit_change (of the target's logit, less the
        mean over the vocabulary, when the row is off: negative where the row speaks for it),
        probability and probability_without.

    Raises:
        ValueError: if the text is empty or too long, the position lies outside it, the target is
            not one token or the model has no memory.
    """
    read = prefix(tokenizer, text, position)
    switches = _rows_read(model, read.ids)
    effects = _effects(model, read.ids, tokenizer, switches, target)
    uses = [None if index is None else index.use(*_numbers(switch)) for switch in switches]
    frame = effects[ROW].copy()
    tokens = tokenizer.tokens(read.ids)
    frame["key"] = [_key_text(tokens, switch.order) for switch in switches]
    frame["keys"] = [_key_list(use) for use in uses]
    for name in ("key_count", "times_trained"):
        numbers = [None if use is None else getattr(use, name) for use in uses]
        frame[name] = pd.array(numbers, dtype="Int64")
    said = saying_frame(model, frame[ROW], tokenizer, top=1)
    first = {tuple(row[name] for name in ROW): row for row in said.to_dict("records")}
    found = [first.get(_numbers(switch), SILENT) for switch in switches]
    frame["top_token"] = [row["token"] for row in found]
    frame["value_norm"] = [row["value_norm"] for row in found]
    return pd.concat([frame, effects[list(EFFECT)]], axis=1)


def part_frame(
    model: nn.Module,
    text: str,
    tokenizer: Encoder,
    *,
    position: int = -1,
    target: str | None = None,
) -> pd.DataFrame:
    """What the next-token list loses without each module, order, head and row, one at a time.

    Arguments and errors are those of `row_frame`.

    Returns:
        Columns part ("module", "order", "head" or "row"), layer, order, head and row (missing where
        the part spans all of them), token (the target), probability, probability_without,
        logit_change (as `row_frame`), top_token_without and kl_nats (from the whole list with the
        part to that without it).
    """
    read = prefix(tokenizer, text, position)
    switches = []
    for layer, (_, memory) in memories_of(model).items():
        orders, heads, _ = zip(*tables_of(memory), strict=True)
        switches.append(Switch(layer=layer))
        switches += [Switch(layer=layer, order=order) for order in sorted(set(orders))]
        switches += [Switch(layer=layer, head=head) for head in sorted(set(heads))]
    switches += _rows_read(model, read.ids)
    return _effects(model, read.ids, tokenizer, switches, target)


def next_token_frame(
    model: nn.Module,
    text: str,
    tokenizer: Encoder,
    *,
    off: Collection[Switch] = (),
    position: int = -1,
    top: int = 10,
) -> pd.DataFrame:
    """The most probable next tokens, with all of the memory and with some parts off.

    Args:
        off: parts that are off together; none of them compares the model with itself.
        position: token whose next token is predicted; negative ones count from the end.
        top: tokens of each list; those of either are in the frame.

    Returns:
        Columns switched_off (in words), token_id, token, probability, probability_without and
        logit_change (of the logit less its mean over the vocabulary), sorted by the larger of the
        two probabilities.

    Raises:
        ValueError: as `row_frame`, or if `top` is not positive or a switch names no part.
    """
    if top < 1:
        raise ValueError(f"next_token_frame needs top of at least 1; got {top}")
    read = prefix(tokenizer, text, position)
    logits = switched_logits(model, read.ids, [(), tuple(off)])
    probability, centred = logits.softmax(-1), logits - logits.mean(-1, keepdim=True)
    listed = probability.topk(min(top, logits.shape[-1])).indices.unique()
    shown = probability[:, listed]
    frame = pd.DataFrame(
        {
            "switched_off": " + ".join(map(str, off)) or "nothing",
            "token_id": listed.numpy(),
            "token": tokenizer.tokens(listed),
            "probability": shown[0].numpy(),
            "probability_without": shown[1].numpy(),
            "logit_change": (centred[1] - centred[0])[listed].numpy(),
        }
    )
    best = frame[["probability", "probability_without"]].max(axis=1)
    return frame.iloc[best.argsort(kind="stable")[::-1]].reset_index(drop=True)


def _rows_read(model: nn.Module, ids: Int64[Tensor, "one seq"]) -> list[Switch]:
    """A switch for every row read at the last token."""
    addresses = addresses_read(model, ids)
    return [
        Switch(layer=layer, order=order, head=head, row=int(row))
        for layer, (_, memory) in memories_of(model).items()
        for (order, head, _), row in zip(tables_of(memory), addresses[layer][-1], strict=True)
    ]


def _numbers(switch: Switch) -> tuple[int | None, ...]:
    return tuple(getattr(switch, name) for name in ROW)


def _effects(
    model: nn.Module,
    ids: Int64[Tensor, "one seq"],
    tokenizer: Encoder,
    switches: Sequence[Switch],
    target: str | None,
) -> pd.DataFrame:
    """What each switch by itself does to the target and to the whole list."""
    wanted = None if target is None else one_token(tokenizer, target)
    logits = switched_logits(model, ids, [(), *[(switch,) for switch in switches]])
    token_id = int(logits[0].argmax()) if wanted is None else wanted
    log_probs = logits.log_softmax(-1)
    with_all, without = log_probs[:1], log_probs[1:]
    centred = (logits - logits.mean(-1, keepdim=True))[:, token_id]
    kl = (with_all.exp() * (with_all - without)).sum(-1)
    numbers = zip(*map(_numbers, switches), strict=True)
    frame = pd.DataFrame({"part": [switch.part for switch in switches]})
    for name, column in zip(ROW, numbers, strict=True):
        frame[name] = pd.array(column, dtype="Int64")
    (frame["token"],) = tokenizer.tokens([token_id])
    frame["logit_change"] = (centred[1:] - centred[0]).numpy()
    frame["probability"] = float(with_all[0, token_id].exp())
    frame["probability_without"] = without[:, token_id].exp().numpy()
    frame["top_token_without"] = tokenizer.tokens(without.argmax(-1))
    frame["kl_nats"] = kl.clamp_min(0).numpy()
    return frame


def _key_text(tokens: Sequence[str], order: int) -> str:
    """The last tokens as text; `START` stands for what lies before the first one."""
    missing = max(order - len(tokens), 0)
    return START * missing + "".join(tokens[-order:])


def _key_list(use: RowUse | None) -> str:
    """The most frequent keys with their counts."""
    if use is None:
        return ""
    shown = [f"{key.text} ×{key.count}" for key in use.keys[:SHOWN_KEYS]]
    more = use.key_count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
