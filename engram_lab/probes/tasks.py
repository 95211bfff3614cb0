"""Scored tasks: what share of marked tokens a model predicts, task by task, with standard errors.

A task is a set of documents with the tokens to predict marked as a class; every document is an
item. The model reads the document once, so of an answer of several tokens each is predicted behind
the right ones before it. `engram_lab.probes.task_sets` makes tasks for the generated corpora.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram_lab.model.undisturbed import undisturbed
from engram_lab.tokens.batches import Batch, padded_batches
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.questions import ANSWER

INDEX = ["family", "task", "arm", "layer", "seed"]
CLEAR = 2.0  # standard errors above chance from which a score has something to retain


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Documents and the tokens to predict in them.

    Attributes:
        family: what the task asks of a model: "recall", "reading", "needles", "tokens".
        name: of the task, unique among those scored together.
        documents: one item each, with classes.
        scored: class of the tokens to predict. A document's first token is never scored.
        chance: share that a reader gets without the ability in question.

    Raises:
        ValueError: if the documents have no such class, or no token of it can be predicted.
    """

    family: str
    name: str
    documents: Documents
    scored: str = ANSWER
    chance: float

    def __post_init__(self) -> None:
        """Check that there is something to score."""
        if self.documents.classes is None or self.scored not in self.documents.class_names:
            raise ValueError(
                f"task {self.name!r} scores tokens of class {self.scored!r}; its documents have "
                f"the classes {self.documents.class_names}"
            )
        if not self.marked.any():
            raise ValueError(
                f"task {self.name!r} needs a token of class {self.scored!r} behind the first of a "
                f"document; found none in {len(self.documents)} documents"
            )
        if not 0 <= self.chance < 1:
            raise ValueError(f"chance of task {self.name!r} must lie in 0..1; got {self.chance}")

    @property
    def marked(self) -> np.ndarray:
        """Which tokens are scored, `[token]`."""
        marked = self.documents.classes == self.documents.class_names.index(self.scored)
        marked[self.documents.offsets[:-1]] = False
        return marked


def item_frame(model: nn.Module, tasks: Sequence[Task], *, batch_size: int = 32) -> pd.DataFrame:
    """Score and loss of every item of every task.

    Args:
        model: any model whose output has `logits`; left as it was.
        tasks: what it is asked; documents longer than its context are an error of the model.
        batch_size: items per forward pass.

    Returns:
        Columns family, task, item (number of the document), score (share of its scored tokens that
        the model finds most likely), loss_nats (mean over these tokens) and tokens. Documents
        without a scored token have no row.

    Raises:
        ValueError: if there is no task, two have one name, or `batch_size` is below 1.
    """
    names = [task.name for task in tasks]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"item_frame needs tasks with names of their own; got {names}")
    with undisturbed(model):
        parts = [_items(model, task, batch_size) for task in tasks]
    return pd.concat(parts, ignore_index=True)


def task_frame(
    model: nn.Module, tasks: Sequence[Task], *, seed: int = 0, batch_size: int = 32
) -> pd.DataFrame:
    """Scores of a model by task.

    Args:
        model: any model whose output has `logits`; left as it was.
        tasks: what it is asked.
        seed: number of the model, for frames that hold several.
        batch_size: items per forward pass.

    Returns:
        One row per task with columns family, task, arm ("intact"), layer ("all"), seed, score (mean
        over items), stderr (for accuracies sqrt(p(1-p)/n)), chance, items, loss_nats, retained (1:
        nothing was taken away) and retained_corrected (1, or empty where the score is not clearly
        above chance).

    Raises:
        ValueError: as `item_frame`.
    """
    items = item_frame(model, tasks, batch_size=batch_size)
    return score_frame(items, tasks).assign(seed=seed)[
        [*INDEX, "score", "stderr", "chance", "items", "loss_nats", "retained"]
        + ["retained_corrected"]
    ]


def score_frame(items: pd.DataFrame, tasks: Sequence[Task]) -> pd.DataFrame:
    """Means over the items of `item_frame`, task by task, of a model from which nothing is taken.

    Returns:
        The columns of `task_frame` but seed.
    """
    rows = []
    for task in tasks:
        own = items[items["task"] == task.name]
        score, stderr = mean_and_error(own["score"].to_numpy())
        weights = own["tokens"] / own["tokens"].sum()
        rows.append(
            {
                "family": task.family,
                "task": task.name,
                "arm": "intact",
                "layer": "all",
                "score": score,
                "stderr": stderr,
                "chance": task.chance,
                "items": len(own),
                "loss_nats": float(own["loss_nats"] @ weights),
                "retained": 1.0 if score > 0 else np.nan,
                "retained_corrected": 1.0 if above_chance(score, stderr, task) else np.nan,
            }
        )
    return pd.DataFrame(rows)


def mean_and_error(scores: np.ndarray) -> tuple[float, float]:
    """Mean of scores and its standard error; for zeros and ones sqrt(p(1-p)/n)."""
    return float(scores.mean()), float(scores.std() / len(scores) ** 0.5)


def above_chance(score: float, stderr: float, task: Task) -> bool:
    """Whether a score is so far above chance that a retained share of the excess means anything."""
    return score - task.chance > CLEAR * stderr


def read_batches(documents: Documents, batch_size: int) -> Iterator[tuple[np.ndarray, Batch]]:
    """Documents in batches of nearly equal size, a row each, with the numbers of the documents.

    No batch has a single row if that can be avoided, which the neighbour control needs.

    Raises:
        ValueError: if `batch_size` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}")
    parts = -(-len(documents) // batch_size)
    for chosen in np.array_split(np.arange(len(documents)), parts):
        part = documents.select(chosen)
        (batch,) = padded_batches(part, int(part.lengths.max()), len(chosen))
        yield chosen, batch


def scored_losses(logits: Tensor, batch: Batch, scored: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of the scored tokens and whether each is the most likely one, in row order.

    Args:
        logits: [batch seq vocab], as the model gives them.
        batch: what it read.
        scored: [batch seq]; False at the first position of every row.
    """
    targets = batch.input_ids[scored]
    guesses = logits[:, :-1][scored[:, 1:]].float()
    return F.cross_entropy(guesses, targets, reduction="none"), guesses.argmax(-1) == targets


def _items(model: nn.Module, task: Task, batch_size: int) -> pd.DataFrame:
    device = next(model.parameters()).device
    number = task.documents.class_names.index(task.scored)
    sums = np.zeros((3, len(task.documents)))  # right, nats, tokens
    for chosen, batch in read_batches(task.documents, batch_size):
        batch = batch.to(device)
        scored = (batch.token_classes == number) & (batch.attention_mask == 1)
        scored[:, 0] = False
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
        losses, right = scored_losses(logits, batch, scored)
        rows = chosen[torch.nonzero(scored)[:, 0].cpu().numpy()]
        values = (right.double(), losses.double(), torch.ones_like(losses).double())
        for total, value in zip(sums, values, strict=True):
            np.add.at(total, rows, value.cpu().numpy())
    right, nats, tokens = sums[:, sums[2] > 0]
    return pd.DataFrame(
        {
            "family": task.family,
            "task": task.name,
            "item": np.flatnonzero(sums[2]),
            "score": right / tokens,
            "loss_nats": nats / tokens,
            "tokens": tokens.astype(int),
        }
    )
