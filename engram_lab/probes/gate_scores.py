"""What a trained model's gates are worth, in one call: the measures of the gate experiments."""

import numpy as np
import pandas as pd

from engram_lab.model.budget import budget
from engram_lab.probes.allocation import rounded
from engram_lab.probes.gate_credit import credit_frame, credit_table, oracle_auc, route_losses
from engram_lab.probes.gate_statistics import (
    detector_scores,
    document_gates,
    surprise_scores,
    topic_gates,
)
from engram_lab.probes.ngrams import NgramCounts
from engram_lab.scales import pick
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.phrase_ends import phrase_places
from engram_lab.training.data import corpus_data, language
from engram_lab.training.fit import TrainedRun

NOTHING = -1  # stands for the layer, bin and help of a model without memory


def trained_gate_scores(trained_run: TrainedRun) -> pd.DataFrame:
    """Gates of a model trained on the phrasebook (D1), scored as detectors; the measure of E8.

    Returns:
        Columns statistic, layer, branch, measure, value, low, high, items and train_tokens.
        Statistics: "phrase_end" (area under the ROC curve for the last word of a phrase of the
        book, among all tokens), "phrase_end_inside" (among words of phrases alone) and "surprise"
        (rank correlation with the surprise of a trigram count model). Measures: "gate",
        "value_norm" and, with layer -1, "ngram_count", what counting the trigram that ends at the
        token would do.

    Raises:
        ValueError: if the model has no memory or was trained on another corpus.
    """
    if trained_run.config.data.corpus != "d1":
        raise ValueError(
            f"phrases of the book are labelled in corpus d1; got {trained_run.config.data.corpus}"
        )
    documents, counts = _held_out(trained_run), _counts(trained_run)
    frequency = counts.occurrences(documents, counts.order).astype(float)
    gates = document_gates(trained_run.model, documents)
    places = phrase_places(language(trained_run.config.data), documents)
    common = {
        "baselines": {"ngram_count": frequency},
        "resamples": pick(tiny=50, workshop=500, full=500),
    }
    parts = {
        "phrase_end": detector_scores(gates, places.last, **common),
        "phrase_end_inside": detector_scores(gates, places.last, among=places.inside, **common),
        "surprise": surprise_scores(gates, counts.surprise(documents), **common),
    }
    frame = pd.concat([part.assign(statistic=name) for name, part in parts.items()])
    frame = frame[["statistic", *frame.columns.drop("statistic")]].reset_index(drop=True)
    return rounded(frame).assign(train_tokens=trained_run.train_tokens)


def trained_topic_gates(trained_run: TrainedRun) -> pd.DataFrame:
    """`topic_gates` of a model trained on polysemy (D5), to four digits; the measure of E8 there.

    Raises:
        ValueError: if the model has no memory or was trained on another corpus.
    """
    if trained_run.config.data.corpus != "d5":
        raise ValueError(f"topics are swapped in corpus d5; got {trained_run.config.data.corpus}")
    pairs = pick(tiny=4, workshop=48, full=200)
    frame = topic_gates(trained_run.model, language(trained_run.config.data), pairs=pairs)
    return rounded(frame, 4).assign(train_tokens=trained_run.train_tokens)


def trained_credit(trained_run: TrainedRun) -> pd.DataFrame:
    """Losses by route, and for a memory its utility by gate; the measure of E14.

    Returns:
        The columns of `credit_table` and of `oracle_auc`, one memory after the other, with
        `params`. A model without memory has one row per route: layer, gate_bin and helped are -1,
        and what needs a gate is empty.
    """
    documents = _held_out(trained_run)
    hot = _counts(trained_run).hot(documents)
    model, config = trained_run.model, trained_run.config.model
    if config.engram is None:
        routes = route_losses(model, documents, hot)
        frame = routes.assign(layer=NOTHING, gate_bin=NOTHING, helped=NOTHING)
        empty = ["gate", "loss_off", "loss_on", "utility_nats", "auc", "auc_low", "auc_high"]
        return rounded(frame.assign(**dict.fromkeys(empty, np.nan), params=budget(config).total))
    parts = []
    for layer in config.engram.layer_ids:
        credit = credit_frame(model, documents, layer=layer)
        scores = oracle_auc(credit, resamples=pick(tiny=50, workshop=500, full=500))
        del scores["helped"]  # the table has it bin by bin
        parts.append(credit_table(credit, hot).assign(**scores))
    return rounded(pd.concat(parts, ignore_index=True).assign(params=budget(config).total))


def _held_out(trained_run: TrainedRun) -> Documents:
    """As many validation documents as a probe of single tokens can take."""
    documents = trained_run.validation
    return documents.select(np.arange(min(len(documents), pick(tiny=6, workshop=64, full=200))))


def _counts(trained_run: TrainedRun) -> NgramCounts:
    """Trigrams of the documents it was trained on."""
    return NgramCounts.of(corpus_data(trained_run.config.data).train, 3)
