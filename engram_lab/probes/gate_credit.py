"""Is the gate right? What shutting and opening it does to every token's loss, and where it opens.

For one memory module, the others unchanged, the loss of a token is taken with the gate at its
position forced shut and forced open. The difference is what memory is worth there: its utility. A
gate that knows its business is high where utility is positive. That loss rises with the gate does
not count against it by itself, since it may open where text is hard; utility decides.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from engram_lab.hooks import edit, record
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.ablation import memory_paths
from engram_lab.probes.intervals import RESAMPLES, auc_statistic, over_documents
from engram_lab.probes.tasks import read_batches, scored_losses
from engram_lab.tokens.batches import Batch
from engram_lab.tokens.documents import Documents

BINS = 20  # of the gate, in `credit_table`
STRIDE = 16
SUMMED = ["gate", "loss_nats", "loss_off", "loss_on", "utility_nats"]


def credit_frame(
    model: nn.Module,
    documents: Documents,
    *,
    layer: int | None = None,
    stride: int = STRIDE,
    batch_size: int = 32,
) -> pd.DataFrame:
    """Utility of one memory at every token that predicts another one.

    Gates are forced at positions `stride` apart at a time, and the loss is taken at these alone:
    2 x `stride` passes. Every position alone is the case of a stride as long as the documents; a
    smaller one lets positions that far apart disturb each other through attention.

    Args:
        model: a model with memory; left as it was.
        documents: none longer than the model's context.
        layer: block of the memory, counted from 0; None where there is one memory.
        stride: positions between two that are forced in one pass.
        batch_size: documents per forward pass.

    Returns:
        Columns layer, document, position, place (index of the token in `documents.ids`),
        token_class (of the token predicted, where there are classes), gate (mean over branches),
        loss_nats (of the next token, nothing forced), loss_off, loss_on (gate shut, gate open) and
        utility_nats (loss_off - loss_on).

    Raises:
        ValueError: if the model has no such memory, or several and none is named, or `stride` is
            below 1.

    Source: gate calibration of Engram-Nine (arXiv:2601.16531).
    """
    if stride < 1:
        raise ValueError(f"stride must be at least 1 position; got {stride}")
    layer = _one_layer(memory_paths(model), layer)
    point = f"{memory_paths(model)[layer]}.hook_gate"
    device, parts = next(model.parameters()).device, []
    with undisturbed(model):
        for chosen, batch in read_batches(documents, batch_size):
            row, position, *numbers = _credit(model, batch.to(device), point, stride)
            parts.append((chosen[row], position, *numbers))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    names = ["document", "position", "gate", "loss_nats", "loss_off", "loss_on"]
    frame = pd.DataFrame({"layer": layer} | dict(zip(names, columns, strict=True)))
    frame.insert(3, "place", documents.offsets[frame["document"]] + frame["position"])
    if documents.classes is not None:
        known = np.array(documents.class_names)
        frame.insert(4, "token_class", known[documents.classes[frame["place"] + 1]])
    return frame.assign(utility_nats=frame["loss_off"] - frame["loss_on"])


def oracle_auc(frame: pd.DataFrame, *, resamples: int = RESAMPLES) -> dict[str, float]:
    """How well the gate tells tokens that memory helps from tokens that it harms.

    Args:
        frame: from `credit_frame`.
        resamples: bootstrap samples over documents.

    Returns:
        auc (0.5 says nothing; below it the gate opens where memory harms), auc_low, auc_high (95 %)
        and helped (share of tokens with positive utility).
    """
    helped = (frame["utility_nats"] > 0).to_numpy()
    statistic = auc_statistic(frame["gate"].to_numpy(float), helped)
    documents = frame["document"].to_numpy()
    value, low, high = over_documents(statistic, documents, resamples=resamples)
    return {"auc": value, "auc_low": low, "auc_high": high, "helped": float(helped.mean())}


def credit_table(frame: pd.DataFrame, hot: Bool[np.ndarray, "token"]) -> pd.DataFrame:
    """Losses and utility by gate, route and whether memory helped: all that the figures need.

    Args:
        frame: from `credit_frame`.
        hot: which tokens end a frequent n-gram, from `NgramCounts.hot`.

    Returns:
        Columns layer, gate_bin (0 to 19, twentieths of the range of a gate), route ("hot" or
        "cold"), helped (1 where utility is positive, else 0), tokens, and the means over them of
        gate, loss_nats, loss_off, loss_on and utility_nats.
    """
    keyed = frame.assign(
        gate_bin=np.clip((frame["gate"] * BINS).astype(int), 0, BINS - 1),
        route=np.where(hot[frame["place"]], "hot", "cold"),
        helped=(frame["utility_nats"] > 0).astype(int),
    )
    grouped = keyed.groupby(["layer", "gate_bin", "route", "helped"], as_index=False)
    means = grouped[SUMMED].mean()
    means.insert(4, "tokens", grouped.size()["size"])
    return means


def route_losses(
    model: nn.Module, documents: Documents, hot: Bool[np.ndarray, "token"], *, batch_size: int = 32
) -> pd.DataFrame:
    """Mean loss behind frequent and behind rare n-grams; for any model, with memory or without.

    Args:
        model: any model whose output has `logits`; left as it was.
        documents: what it reads.
        hot: which tokens end a frequent n-gram, from `NgramCounts.hot`.
        batch_size: documents per forward pass.

    Returns:
        Columns route ("hot", "cold"), tokens and loss_nats (of the next token).
    """
    device, parts = next(model.parameters()).device, []
    with undisturbed(model):
        for chosen, batch in read_batches(documents, batch_size):
            loss, predicts = _losses(model, batch.to(device))
            row, position = (part.cpu().numpy() for part in torch.nonzero(predicts, as_tuple=True))
            place = documents.offsets[chosen[row]] + position
            parts.append((place, loss[predicts].double().cpu().numpy()))
    place, loss = (np.concatenate(column) for column in zip(*parts, strict=True))
    frame = pd.DataFrame({"route": np.where(hot[place], "hot", "cold"), "loss_nats": loss})
    grouped = frame.groupby("route", as_index=False)["loss_nats"]
    return grouped.agg(tokens="count", loss_nats="mean")


def _one_layer(paths: dict[int, str], layer: int | None) -> int:
    known = ", ".join(map(str, paths))
    if layer is None and len(paths) > 1:
        raise ValueError(f"layer must name one of the memories, which are in blocks {known}")
    layer = next(iter(paths)) if layer is None else layer
    if layer not in paths:
        raise ValueError(f"layer must be a block with a memory ({known}); got {layer}")
    return layer


def _credit(model: nn.Module, batch: Batch, point: str, stride: int) -> list[np.ndarray]:
    """Row, position, gate, loss, loss with the gate shut, loss with it open, of a batch."""
    with record(model, [point], dtype=torch.float32) as seen:
        loss, predicts = _losses(model, batch)
    forced = [_forced_losses(model, batch, point, value, stride) for value in (0.0, 1.0)]
    values = [seen[point].mean(-1), loss, *forced]
    places = [index.cpu().numpy() for index in torch.nonzero(predicts, as_tuple=True)]
    return places + [value[predicts].double().cpu().numpy() for value in values]


def _losses(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Loss of the next token by position (0 where there is none), and where there is one."""
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    live = batch.attention_mask == 1
    scored = live.clone()
    scored[:, 0] = False
    predicts = torch.cat([scored[:, 1:], torch.zeros_like(scored[:, :1])], dim=1)
    losses = torch.zeros(live.shape, device=live.device)
    losses[predicts] = scored_losses(logits, batch, scored)[0]
    return losses, predicts


def _forced_losses(model: nn.Module, batch: Batch, point: str, value: float, stride: int) -> Tensor:
    """Loss by position with the gate there at `value`, positions `stride` apart at a time."""
    seq = batch.input_ids.shape[1]
    position = torch.arange(seq, device=batch.input_ids.device)
    losses = torch.zeros(batch.input_ids.shape, device=position.device)
    for first in range(min(stride, seq)):
        here = position % stride == first
        with edit(model, {point: _forcing(here, value)}):
            found, _ = _losses(model, batch)
        losses[:, here] = found[:, here]
    return losses


def _forcing(here: Tensor, value: float) -> Callable[[Tensor], Tensor]:
    """A gate that has `value` at some positions and is its own elsewhere."""
    return lambda gate: gate.masked_fill(here[None, :, None], value)
