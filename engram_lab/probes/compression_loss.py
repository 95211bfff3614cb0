"""Where the token map helps or harms a trained model: its loss by how the last token is spelled.

A memory that hashes canonical ids cannot tell which spelling stands at the end of its n-gram. That
should cost most behind a spelling that is not the usual one of its canonical id.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from engram_lab.probes.allocation import final_loss
from engram_lab.probes.compression import KINDS, merging_kind
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from engram_lab.training.data import load_data
from engram_lab.training.fit import TrainedRun

SPELLINGS = ("single", "usual", *KINDS, "several")
"""Classes of a token by the one before it: the only spelling of its canonical id, the usual one of
several, or another one, by the step of the normaliser that makes it the usual one."""


def spelling_loss(trained_run: TrainedRun) -> pd.DataFrame:
    """`probes.allocation.final_loss` with the classes of `SPELLINGS`, usual as in training.

    Args:
        trained_run: of a text corpus.

    Raises:
        ValueError: if the run's corpus is generated, so that its tokens have no texts.
    """
    compression = trained_run.compression
    if compression.tokens is None:
        raise ValueError(
            "spelling_loss needs a run on text, whose token map knows the tokens' texts; this one "
            f"was trained on the generated corpus {trained_run.config.data.corpus!r}"
        )
    training = load_data(trained_run.config).train
    spellings = spellings_of(
        compression, np.bincount(training.ids, minlength=len(compression.table))
    )
    relabelled = by_last_spelling(trained_run.validation, spellings)
    return final_loss(replace(trained_run, validation=relabelled))


def spellings_of(compression: VocabCompression, seen: np.ndarray) -> np.ndarray:
    """Class of every token id, an index into `SPELLINGS`.

    Args:
        compression: a map with token texts.
        seen: occurrences of every token id; the most frequent spelling of a canonical id is the
            usual one, of equally frequent ones the first.
    """
    table, texts = compression.table.cpu().numpy(), compression.tokens
    order = np.lexsort((-seen, table))
    usual = order[np.append(True, np.diff(table[order]) != 0)][table]
    single = np.bincount(table)[table] == 1
    classes = np.where(single, 0, 1)
    for token_id in np.flatnonzero(usual != np.arange(len(table))):
        kind = merging_kind(texts[token_id], texts[usual[token_id]])
        classes[token_id] = SPELLINGS.index(kind)
    return classes


def by_last_spelling(documents: Documents, spellings: np.ndarray) -> Documents:
    """The same documents, every token in the class of the token before it.

    The first token of a document takes its own class; it is never predicted.

    Args:
        documents: token ids.
        spellings: class of every token id, as `spellings_of` gives them.
    """
    before = np.arange(documents.token_count) - 1
    before[documents.offsets[:-1]] += 1
    classes = spellings[documents.ids[before]].astype(np.uint8)
    return replace(documents, classes=classes, class_names=SPELLINGS)
