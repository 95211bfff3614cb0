"""At which depth a state identifies its entity: a linear probe at every layer."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.model.anatomy import Anatomy, anatomy_of
from engram_lab.model.residual import read_stream
from engram_lab.probes.entity_mentions import Interval, Mentions
from engram_lab.probes.intervals import RESAMPLES
from engram_lab.probes.tasks import read_batches

RIDGE = 1e-3
BATCH = 32
STAGES = ("no memory", "before memory", "row read", "after attention")


def entity_frame(
    model: nn.Module,
    mentions: Mentions,
    *,
    anatomy: Anatomy | None = None,
    ridge: float = RIDGE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """How often a linear probe tells whose name has just ended, from the state at each layer.

    The probe is `linear_guesses`, fitted on some mentions and tested on others. A probe can read a
    memory's row itself; so the frame says which states come before the memory, which hold the row
    and nothing made of it, and which have passed an attention since, and probes these also without
    what the memories have added.

    Args:
        model: an `EngramLM` or a decoder from `transformers`; left as it was.
        mentions: where names end.
        anatomy: where the model's parts are; None asks `anatomy_of`.
        ridge: of the probe.
        resamples: bootstrap samples of the interval over entities.
        seed: of the random labels and of the resampling.

    Returns:
        A row per probe and layer (the block about to read the state; the last is behind all
        blocks); columns layer, probe ("stream"; "with_row", the stream of a memory block after the
        memory and before the attention; "without_rows", the stream minus what the memories have
        added so far), stage ("no memory", "before memory", "row read", "after attention"),
        entities, mentions (tested), accuracy, low, high (interval over entities), control_accuracy
        (of the same probe on random labels), selectivity (accuracy minus control_accuracy) and
        last_token_accuracy (best possible from the last word alone).

    Raises:
        ValueError: if the model's parts are not known, or documents do not fit its context or its
            vocabulary, or a model that reads its neighbour's rows gets a single document.

    Source: experiment catalogue, E11. Control task: Hewitt and Liang 2019 (arXiv:1909.03368).
    """
    states = mention_states(model, mentions, anatomy=anatomy)
    interval = Interval(resamples=resamples, seed=seed)
    rows = [
        {"layer": layer, "probe": probe, "stage": stage}
        | _measured(hidden, mentions, ridge, interval)
        for layer, probe, stage, hidden in states.each()
    ]
    return pd.DataFrame(rows).assign(last_token_accuracy=_last_token_accuracy(mentions))


def linear_guesses(
    states: Float[Tensor, "mention hidden"],
    labels: Int64[Tensor, " mention"],
    tested: Float[Tensor, "test hidden"],
    *,
    ridge: float = RIDGE,
) -> Int64[Tensor, " test"]:
    """Labels that the linear probe with the closed form gives to states.

    With mean `m_c` of every label, `W` the covariance within labels and `t` the mean variance of a
    direction in all: `S = W + ridge t I`, `w_c = S^-1 m_c`, and the guess is the label with the
    largest `w_c h - w_c m_c / 2` (linear discriminant analysis).

    Args:
        states: to fit on.
        labels: of these states.
        tested: to guess.
        ridge: share of the mean variance that is added in every direction.

    Raises:
        ValueError: if `ridge` is not positive or a state is not finite.
    """
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, since states may not vary at all; got {ridge}")
    if not bool(torch.isfinite(states).all() and torch.isfinite(tested).all()):
        raise ValueError("states must be finite; some hold NaN or infinity. Look at the weights")
    states, tested = states.double(), tested.double()
    names, own = labels.unique(return_inverse=True)
    centre = states.mean(0)
    states, tested = states - centre, tested - centre
    counts = torch.bincount(own).double()
    sums = states.new_zeros(len(names), states.shape[1]).index_add_(0, own, states)
    means = sums / counts[:, None]
    rest = states - means[own]
    width, number = states.shape[1], len(states)
    within = rest.mT @ rest / max(number - len(names), 1)
    scale = states.square().mean().clamp_min(torch.finfo(torch.float64).tiny)
    shared = within + ridge * scale * torch.eye(width, dtype=within.dtype, device=within.device)
    weight = torch.linalg.solve(shared, means.mT)
    scores = tested @ weight - (means * weight.mT).sum(-1) / 2
    return names[scores.argmax(-1)]


@dataclass(frozen=True, kw_only=True)
class MentionStates:
    """States of the last token of every name, at every depth.

    Attributes:
        stream: before each block and after the last.
        updates: what each memory added inside its block, by block.
    """

    stream: Float[Tensor, "layer mention hidden"]
    updates: dict[int, Float[Tensor, "mention hidden"]]

    def each(self) -> Iterator[tuple[int, str, str, Tensor]]:
        """Layer, probe, stage and states of everything that `entity_frame` probes."""
        first = min(self.updates, default=None)
        added = torch.zeros_like(self.stream[0])
        for layer, hidden in enumerate(self.stream):
            if first is None:
                stage = "no memory"
            else:
                stage = "before memory" if layer <= first else "after attention"
            yield layer, "stream", stage, hidden
            if first is not None and layer > first:
                yield layer, "without_rows", stage, hidden - added
            if layer in self.updates:
                added = added + self.updates[layer]
                yield layer, "with_row", "row read", hidden + self.updates[layer]


def mention_states(
    model: nn.Module, mentions: Mentions, *, anatomy: Anatomy | None = None
) -> MentionStates:
    """States of a model at the mentions, read a batch of documents at a time.

    Args:
        model: as for `entity_frame`.
        mentions: where names end.
        anatomy: as for `entity_frame`.

    Raises:
        ValueError: as `entity_frame`.
    """
    anatomy = anatomy or anatomy_of(model)
    memories = getattr(model, "memories", {}).values()
    if len(mentions.documents) < 2 and any(m.config.addresses == "neighbour" for m in memories):
        raise ValueError(
            "this model reads the rows of the next text in a batch (EngramConfig.addresses="
            "'neighbour'), so mentions must lie in at least 2 documents; got 1"
        )
    device = next(model.parameters()).device
    parts, updates, order = [], [], []
    for chosen, batch in read_batches(mentions.documents, BATCH):
        here = np.flatnonzero(np.isin(mentions.document, chosen))
        row = torch.from_numpy(mentions.document[here] - chosen[0]).to(device)
        place = torch.from_numpy(mentions.position[here]).to(device)
        reading = read_stream(
            model, batch.input_ids, batch.attention_mask, anatomy=anatomy, dtype=torch.float32
        )
        parts.append(reading.stream[:, row, place])
        updates.append({b: update[row, place] for b, update in reading.updates.items()})
        order.append(here)
    back = torch.from_numpy(np.argsort(np.concatenate(order))).to(device)
    return MentionStates(
        stream=torch.cat(parts, 1)[:, back],
        updates={b: torch.cat([part[b] for part in updates])[back].float() for b in updates[0]},
    )


def _measured(
    hidden: Tensor, mentions: Mentions, ridge: float, interval: Interval
) -> dict[str, float | int]:
    """How well the probe does on states, and on labels dealt out at random."""
    train, entity = mentions.train, mentions.entity
    measured = interval.of_hits(_hits(hidden, entity, train, ridge), entity[~train])
    generator = np.random.default_rng(interval.seed)
    dealt = entity.copy()  # either part has each label as often as before
    for part in (train, ~train):
        dealt[part] = generator.permutation(dealt[part])
    control = float(_hits(hidden, dealt, train, ridge).mean())
    selectivity = measured["accuracy"] - control
    return measured | {"control_accuracy": control, "selectivity": selectivity}


def _hits(hidden: Tensor, labels: np.ndarray, train: np.ndarray, ridge: float) -> np.ndarray:
    known = torch.from_numpy(labels).to(hidden.device)
    fitted = torch.from_numpy(train).to(hidden.device)
    guesses = linear_guesses(hidden[fitted], known[fitted], hidden[~fitted], ridge=ridge)
    return (guesses == known[~fitted]).double().cpu().numpy()


def _last_token_accuracy(mentions: Mentions) -> float:
    """Right guesses of a reader who knows the last word alone and names the likeliest entity."""
    last, tested = mentions.last_tokens, ~mentions.train
    right = 0
    for token in np.unique(last[tested]):
        of_token = mentions.entity[(last == token) & tested]
        right += int(np.bincount(of_token).max())
    return right / int(tested.sum())
