"""What the hot tier answers, and what a model with one is worth: coverage, loss, size and speed."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from torch import nn

from engram_lab.memory.hot import HotHash, KeyDictionary
from engram_lab.memory.keys import KeyCounts, count_keys
from engram_lab.probes.allocation import significant
from engram_lab.training.data import load_data
from engram_lab.training.evaluate import document_losses
from engram_lab.training.fit import TrainedRun


def coverage_frame(
    counts: Mapping[int, KeyCounts],
    sizes: Sequence[int],
    *,
    heard: Mapping[int, KeyCounts] | None = None,
) -> pd.DataFrame:
    """Share of look-ups that the most frequent keys of a text answer, in it and in another text.

    Args:
        counts: distinct keys by order of the text that chooses the hot keys.
        sizes: numbers of hot keys.
        heard: the same of another text, packed alike; None for none.

    Returns:
        One row per order and size, with columns order, hot_keys, keys (distinct in the choosing
        text), coverage (of its look-ups) and, where there is another text, heard_coverage. A size
        beyond the distinct keys takes all of them.

    Raises:
        ValueError: if a size is negative, an order has no key, or the other text lacks an order or
            is packed in another way.
    """
    if any(size < 0 for size in sizes):
        raise ValueError(f"sizes must be at least 0 keys; got {list(sizes)}")
    parts = []
    for order, keys in counts.items():
        ranked = keys.most_frequent(len(keys))
        part = {"order": order, "hot_keys": list(sizes), "keys": len(keys)}
        part["coverage"] = _covered(keys.counts[ranked], keys.total, sizes)
        if heard is not None:
            asked = _asked(keys, heard.get(order))
            part["heard_coverage"] = _covered(asked[ranked], heard[order].total, sizes)
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def hot_tier_loss(trained_run: TrainedRun) -> pd.DataFrame:
    """Held-out loss of every document, beside what the memory holds and how fast it trained.

    Returns:
        One row per document and token class ("all" among them), with columns document, token_class,
        loss_nats, eval_tokens, and, the same in all rows, train_tokens, params, table_rows (of all
        distinct tables), tokens_per_s (median over the updates) and, for every order n, keys_n
        (distinct n-grams of the training text) and hot_share_n (of the validation look-ups that hot
        rows answer).

    Raises:
        ValueError: if the model has no memory.
    """
    model, train = trained_run.model, trained_run.config.train
    memories = list(model.memories.values())
    if not memories:
        raise ValueError(
            f"hot_tier_loss needs a model with memory; this {type(model).__name__} has none"
        )
    frame = document_losses(
        model, trained_run.validation, seq_len=train.seq_len, batch_size=train.batch_size
    )
    trained_on = load_data(trained_run.config).train
    trained = count_keys(memories[0].hash, trained_on, model.compression)
    heard = count_keys(memories[0].hash, trained_run.validation, model.compression)
    tables = {id(memory.table): memory.table.weight for memory in memories}
    return frame.assign(
        loss_nats=[significant(loss) for loss in frame["loss_nats"]],
        train_tokens=trained_run.train_tokens,
        params=sum(parameter.numel() for parameter in model.parameters()),
        table_rows=sum(len(weight) for weight in tables.values()),
        tokens_per_s=significant(float(trained_run.history["tokens_per_s"].median()), 4),
        **{f"keys_{order}": len(keys) for order, keys in trained.items()},
        **{f"hot_share_{order}": _hot_share(memories, keys) for order, keys in heard.items()},
    )


def random_keys(keys: KeyCounts, number: int, *, seed: int) -> KeyCounts:
    """Keys chosen without regard to their frequency: the control of the hot tier.

    Args:
        keys: all distinct keys of a text.
        number: how many to choose.
        seed: of the choice.

    Raises:
        ValueError: if there are not that many.
    """
    if not 1 <= number <= len(keys):
        raise ValueError(f"number must lie in 1..{len(keys)}, the distinct keys; got {number}")
    return keys.select(np.random.default_rng(seed).permutation(len(keys))[:number])


def _covered(ranked: np.ndarray, total: int, sizes: Sequence[int]) -> list[float]:
    """Share of look-ups of the first so many keys."""
    shares = np.concatenate([[0.0], np.cumsum(ranked) / total])
    return [float(shares[min(size, len(ranked))]) for size in sizes]


def _asked(keys: KeyCounts, heard: KeyCounts | None) -> np.ndarray:
    """Look-ups in another text of every key."""
    if heard is None or heard.codec != keys.codec:
        raise ValueError(
            f"the text that is heard must be counted for the keys {keys.codec}; got "
            f"{None if heard is None else heard.codec}"
        )
    places = KeyDictionary(keys).find([torch.from_numpy(word) for word in heard.words]).numpy()
    asked = np.zeros(len(keys), np.int64)
    asked[places[places >= 0]] = heard.counts[places >= 0]
    return asked


def _hot_share(memories: Iterable[nn.Module], keys: KeyCounts) -> float:
    """Share of look-ups of one order that the hot rows of the first memory answer."""
    memory_hash = next(iter(memories)).hash
    index = memory_hash.indices if isinstance(memory_hash, HotHash) else {}
    name = str(keys.codec.order)
    if name not in index:
        return 0.0
    found = index[name].find([torch.from_numpy(word) for word in keys.words]).numpy() >= 0
    return significant(float(keys.counts[found].sum() / keys.total))
