"""What a model makes of a long context: needles by distance, reach of attention, key tokens."""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from engram_lab.model.budget import budget
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.allocation import significant
from engram_lab.probes.attention import WINDOWS, attention_mass
from engram_lab.probes.task_sets import needle_tasks
from engram_lab.probes.tasks import task_frame
from engram_lab.scales import pick
from engram_lab.tokens.documents import Documents
from engram_lab.training.data import language, needle_filler
from engram_lab.training.fit import TrainedRun

KEY, OTHER = "key", "other"
GAIN_NATS = 1.0
"""What a long context must save on a token to make it a key token."""


def needle_scores(trained_run: TrainedRun, *, taught: bool = False) -> pd.DataFrame:
    """Scores of a model on every kind of D4, asked at several document lengths.

    The longest documents fill the rows that the model was last trained on, the others a half and a
    quarter of them. Keys are ones that no training document used.

    Args:
        trained_run: a model trained on D4.
        taught: ask with the keys of training documents instead. A memory has rows for those, and
            none of its own for the others.

    Returns:
        One row per length and task with columns context (tokens of a document), family, task,
        score, stderr, chance, items, loss_nats (of the answers), and, the same in all rows,
        train_tokens (of the last stage), params and active_params. Numbers have six significant
        digits.
    """
    config = trained_run.config
    rules, filler = language(config.data), needle_filler(config.data)
    text = None if filler is None else filler.validation
    items = pick(tiny=8, workshop=500, full=1_000)
    parts = []
    for divisor in (4, 2, 1):
        shorter = replace(rules, document_length=config.train.seq_len // divisor)
        tasks = needle_tasks(shorter, items=items, filler=text, taught=taught)
        parts.append(task_frame(trained_run.model, tasks).assign(context=shorter.document_length))
    frame = pd.concat(parts, ignore_index=True)
    numbers = ["score", "stderr", "chance", "loss_nats"]
    frame = frame.assign(**{name: [significant(x) for x in frame[name]] for name in numbers})
    counts = budget(config.model)
    return frame[["context", "family", "task", *numbers, "items"]].assign(
        train_tokens=trained_run.train_tokens,
        params=counts.total,
        active_params=counts.active,
    )


def attention_reach(trained_run: TrainedRun) -> pd.DataFrame:
    """`attention_mass` of a model on validation texts that fill its rows.

    Args:
        trained_run: a model and documents, of which some are as long as its rows.

    Returns:
        Columns layer, window, mass, queries, texts (how many were read), params and active_params;
        windows are shorter than the rows.

    Raises:
        ValueError: if no document is long enough.
    """
    length = trained_run.config.train.seq_len
    texts, _ = _windows(trained_run.validation, length)
    ids = texts[: pick(tiny=4, workshop=64, full=256)]
    ids = ids.to(next(trained_run.model.parameters()).device)
    windows = [window for window in WINDOWS if window < length]
    frame = attention_mass(trained_run.model, ids, windows=windows).drop(columns="seed")
    counts = budget(trained_run.config.model)
    return frame.assign(
        mass=[significant(mass) for mass in frame["mass"]],
        texts=len(ids),
        params=counts.total,
        active_params=counts.active,
    )


def key_token_losses(
    model: nn.Module, grader: nn.Module, documents: Documents, *, long: int, short: int
) -> pd.DataFrame:
    """Losses on the tokens for which a long context matters, and on the others.

    Both models read windows of `long` tokens. Scored are the tokens that have at least half of the
    window in front of them; each is also predicted from the `short` tokens in front of it alone.
    Key tokens are those on which the long context saves the grader `GAIN_NATS` or more, so all
    models are scored on the same ones. The grader should be none of the models compared: its luck
    on the tokens it picks would count as skill.

    Args:
        model: left as it was.
        grader: picks the key tokens; left as it was.
        documents: texts; pieces shorter than `long` are left out.
        long: tokens of a window.
        short: tokens of the short context, less than half of `long`.

    Returns:
        One row per text and token class ("all", "key", "other") with columns document,
        token_class, loss_nats, short_loss_nats (from the short context) and eval_tokens.

    Raises:
        ValueError: if `short` is not within 1 and half of `long`, or no text is long enough.

    Source: LongPPL (arXiv:2410.23771), with a gain alone as criterion.
    """
    if not 1 <= short < long // 2:
        raise ValueError(
            f"short must lie in 1..{long // 2 - 1}, below half of long ({long}); got {short}"
        )
    windows, texts = _windows(documents, long)
    own, graded = (_both_losses(each, windows, short) for each in (model, grader))
    key = graded[1] - graded[0] >= GAIN_NATS
    parts = []
    for name, chosen in (("all", np.ones_like(key)), (KEY, key), (OTHER, ~key)):
        for text in np.unique(texts):
            of_text = chosen & (texts == text)[:, None]
            if of_text.any():
                parts.append(
                    {
                        "document": int(text),
                        "token_class": name,
                        "loss_nats": significant(float(own[0][of_text].mean())),
                        "short_loss_nats": significant(float(own[1][of_text].mean())),
                        "eval_tokens": int(of_text.sum()),
                    }
                )
    return pd.DataFrame(parts)


def _windows(documents: Documents, length: int) -> tuple[torch.Tensor, np.ndarray]:
    """Windows of the documents, end to end within each, and the text that each comes from."""
    rows, texts = [], []
    sources = documents.sources
    for number in range(len(documents)):
        ids = documents.ids[documents.offsets[number] : documents.offsets[number + 1]]
        for begin in range(0, len(ids) - length + 1, length):
            rows.append(ids[begin : begin + length].astype(np.int64))
            texts.append(number if sources is None else int(sources[number]))
    if not rows:
        raise ValueError(
            f"a long context needs texts of at least {length} tokens; the longest of "
            f"{documents.name!r} has {int(documents.lengths.max())}"
        )
    return torch.from_numpy(np.stack(rows)), np.array(texts)


def _both_losses(
    model: nn.Module, windows: torch.Tensor, short: int
) -> tuple[np.ndarray, np.ndarray]:
    """Loss of the later half of every window from all before it, and from `short` tokens."""
    device, half = next(model.parameters()).device, windows.shape[1] // 2
    near, far = [], []
    with undisturbed(model):
        for ids in windows.to(device).split(16):
            far.append(_losses(model, ids)[:, half - 1 :].cpu().numpy())
            pieces = ids[:, half - short :].unfold(1, short + 1, 1)  # row target place
            losses = _losses(model, pieces.flatten(0, 1), last=True)
            near.append(losses.view(pieces.shape[:2]).cpu().numpy())
    return np.concatenate(far), np.concatenate(near)


def _losses(model: nn.Module, ids: torch.Tensor, *, last: bool = False) -> torch.Tensor:
    """Loss of every token but the first of a row, or of the last one alone."""
    kept = {"logits_to_keep": 1} if last else {}
    logits = model(input_ids=ids[:, :-1], **kept).logits
    targets = ids[:, -1:] if last else ids[:, 1:]
    flat = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return flat.view(targets.shape)
