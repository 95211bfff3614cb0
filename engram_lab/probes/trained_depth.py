"""Depth in trained models: their lens, and the layers of two of them beside each other."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from engram_lab.model.budget import budget
from engram_lab.probes.allocation import rounded
from engram_lab.probes.cka import compare_models
from engram_lab.probes.cka_alignment import alignment_frame, depth_gains
from engram_lab.probes.cka_map import CKAMap
from engram_lab.probes.cka_sums import ESTIMATORS
from engram_lab.probes.lens import logit_lens
from engram_lab.probes.lens_summary import layer_means
from engram_lab.scales import pick
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.synthetic import FactbookConfig
from engram_lab.training.data import language
from engram_lab.training.fit import TrainedRun

REMOVED = (0, 2)  # directions of most variance taken out before a CKA


@dataclass(frozen=True, kw_only=True)
class ModelPair:
    """Two trained models that are compared layer by layer, on the held-out documents of the first.

    Attributes:
        plain: the one without memory.
        other: another model of the same corpus.
    """

    plain: TrainedRun
    other: TrainedRun

    @property
    def interrupted(self) -> bool:
        """Whether the training of either was cut short."""
        return self.plain.interrupted or self.other.interrupted

    @property
    def model(self) -> torch.nn.Module:
        """The other model, whose device the record of a result names."""
        return self.other.model


def trained_lens(trained_run: TrainedRun) -> pd.DataFrame:
    """Means of the logit lens over held-out documents, layer by layer; the measure of E5.

    Returns:
        The columns of `layer_means`, with token_class (class of the token that comes next, or
        "all"), memory ("kept", and for a model with memory also "removed": the stream minus what
        the memories added to it, compared with the whole model's output), train_tokens and params.

    Source: Engram paper, section 6.1 and figure 4a.
    """
    documents = _held_out(trained_run.validation, pick(tiny=4, workshop=96, full=200))
    token_ids = _rows(documents)
    classes = _rows(documents, documents.classes)
    config = trained_run.config.model
    parts = []
    for memory in ("kept", "removed") if config.engram is not None else ("kept",):
        frame = _lens(trained_run.model, token_ids, without_memory=memory == "removed")
        following = frame["position"].to_numpy() + 1
        frame = frame[following < token_ids.shape[1]]
        sequence, position = frame["sequence"].to_numpy(), frame["position"].to_numpy()
        names = np.array(documents.class_names)[classes[sequence, position + 1]]
        labelled = frame.assign(token_class=names)
        parts += [
            layer_means(part, by=["token_class"]).assign(memory=memory)
            for part in (labelled, labelled.assign(token_class="all"))
        ]
    return rounded(pd.concat(parts, ignore_index=True)).assign(
        train_tokens=trained_run.train_tokens, params=budget(config).total
    )


def pair_map(pair: ModelPair) -> pd.DataFrame:
    """CKA of every pair of layers at the last tokens of names; the measure of E6.

    Returns:
        The columns of `CKAMap.frame` and removed (directions of most variance taken out first), for
        every estimator, and without the first two directions for the debiased one.

    Raises:
        ValueError: if the corpus is not the fact book (D3).

    Source: Engram paper, section 6.1 and figure 4b.
    """
    maps = [_compare(pair, estimator=name) for name in ESTIMATORS]
    frames = [found.frame().assign(removed=0) for found in maps]
    frames += [_compare(pair, remove_top=top).frame().assign(removed=top) for top in REMOVED[1:]]
    return rounded(pd.concat(frames, ignore_index=True), 4)


def pair_alignment(pair: ModelPair) -> pd.DataFrame:
    """Plain layer that every layer of the other model stands for; a measure of E6.

    Returns:
        The columns of `alignment_frame` and removed, as in `pair_map`.

    Raises:
        ValueError: as `pair_map`.
    """
    return _by_removed(pair, alignment_frame)


def pair_gain(pair: ModelPair) -> pd.DataFrame:
    """How much deeper than itself an early layer of the other model is; a measure of E6.

    Returns:
        The columns of `depth_gains` but comparison, and removed, as in `pair_map`.

    Raises:
        ValueError: as `pair_map`.
    """
    return _by_removed(pair, lambda cka: depth_gains({"": cka}).drop(columns="comparison"))


def _by_removed(pair: ModelPair, read: Callable[[CKAMap], pd.DataFrame]) -> pd.DataFrame:
    frames = [read(_compare(pair, remove_top=top)).assign(removed=top) for top in REMOVED]
    return rounded(pd.concat(frames, ignore_index=True), 4)


def _compare(pair: ModelPair, **how: object) -> CKAMap:
    rules = language(pair.plain.config.data)
    if not isinstance(rules, FactbookConfig):
        raise ValueError(
            "layers are compared at the last tokens of names, which corpus d3 has; got "
            f"{pair.plain.config.data.corpus!r}"
        )
    token_ids = torch.from_numpy(_rows(pair.plain.validation))
    keep = name_ends(rules, token_ids)
    return compare_models(pair.plain.model, pair.other.model, token_ids, keep=keep, **how)


def name_ends(
    rules: FactbookConfig, token_ids: Int64[Tensor, "batch seq"]
) -> Bool[Tensor, "batch seq"]:
    """Where the last word of a name stands: before the relation.

    Args:
        rules: language of the documents.
        token_ids: documents of the fact book.
    """
    words, relations = rules.token_ranges["n"], rules.token_ranges["r"]
    ends = torch.zeros_like(token_ids, dtype=torch.bool)
    before, after = token_ids[:, :-1], token_ids[:, 1:]
    ends[:, :-1] = (before >= words.start) & (before < words.stop)
    ends[:, :-1] &= (after >= relations.start) & (after < relations.stop)
    return ends


def _lens(
    model: torch.nn.Module, token_ids: Int64[np.ndarray, "batch seq"], *, without_memory: bool
) -> pd.DataFrame:
    """The lens over documents whose ids stand for themselves."""
    tokens = [[str(number) for number in row] for row in token_ids]
    return logit_lens(
        model,
        torch.from_numpy(token_ids),
        tokens,
        decode=lambda ids: [str(number) for number in ids],
        without_memory=without_memory,
    )


def _held_out(documents: Documents, most: int) -> Documents:
    return documents.select(np.arange(min(len(documents), most)))


def _rows(
    documents: Documents, values: np.ndarray | None = None
) -> Int64[np.ndarray, "document place"]:
    """Ids, or other values of every token, of generated documents, which are of one length."""
    values = documents.ids if values is None else values
    return values.astype(np.int64).reshape(len(documents), -1)
