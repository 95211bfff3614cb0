"""Does the gate open where text is stereotyped? Gates of many documents, and numbers that say so.

A gate is scored as a detector: the area under its ROC curve for "last token of a phrase of the
book" (D1), its rank correlation with the surprise of an n-gram count model, and the difference
between the right and the wrong topic for the same phrase (D5). What is written is the gate times
the memory's value, so all of it is also told for that length.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import nn

from engram_lab.hooks import record
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.gates import GATE, VALUE
from engram_lab.probes.intervals import (
    RESAMPLES,
    Statistic,
    auc_statistic,
    over_documents,
    rank_statistic,
)
from engram_lab.probes.tasks import read_batches
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.synthetic import PolysemyConfig, polysemy_twins

MEASURES = ("gate", "value_norm")
SCORES = ["value", "low", "high", "items"]


def document_gates(model: nn.Module, documents: Documents, *, batch_size: int = 32) -> pd.DataFrame:
    """Gate of every memory layer and branch at every token of many documents, each read alone.

    Args:
        model: a model with memory; left as it was.
        documents: none longer than the model's context.
        batch_size: documents per forward pass.

    Returns:
        Columns layer, branch, document, position, place (index of the token in `documents.ids`),
        token_class (where there are classes), gate and value_norm (gate times the length of the
        memory's value), the last two in float32.

    Raises:
        ValueError: if the model has no memory or there is no document.
    """
    if not any(name.endswith("engram.hook_gate") for name, _ in model.named_modules()):
        raise ValueError(
            f"gates are read from a model with memory; this {type(model).__name__} has none. "
            "Give its config an EngramConfig and train it again."
        )
    if not len(documents):
        raise ValueError("document_gates needs at least one document; got none")
    device, parts = next(model.parameters()).device, []
    with undisturbed(model), record(model, [GATE, VALUE], dtype=torch.float32) as seen:
        gates = [name for name in seen.names if name.endswith("hook_gate")]
        for chosen, batch in read_batches(documents, batch_size):
            batch = batch.to(device)
            model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
            live = batch.attention_mask == 1
            row, position = (index.cpu().numpy() for index in torch.nonzero(live, as_tuple=True))
            for name in gates:
                gate = seen[name][live].cpu()  # token branch
                length = seen[name.replace("hook_gate", "hook_value")][live].norm(dim=-1).cpu()
                place = (chosen[row], position)
                parts.append(_rows(int(name.split(".")[1]), place, gate.numpy(), length.numpy()))
    frame = pd.concat(parts, ignore_index=True)
    frame.insert(4, "place", documents.offsets[frame["document"]] + frame["position"])
    if documents.classes is not None:
        names = np.array(documents.class_names)
        frame.insert(5, "token_class", names[documents.classes[frame["place"]]])
    index = ["layer", "branch", "document", "position"]
    return frame.sort_values(index, kind="stable", ignore_index=True)


def detector_scores(
    gates: pd.DataFrame,
    labels: Bool[np.ndarray, "token"],
    *,
    among: Bool[np.ndarray, "token"] | None = None,
    baselines: Mapping[str, Float[np.ndarray, "token"]] | None = None,
    resamples: int = RESAMPLES,
) -> pd.DataFrame:
    """Area under the ROC curve of every gate, read as a detector of labelled tokens.

    Args:
        gates: from `document_gates`.
        labels: which tokens of the documents are to be found.
        among: which tokens are looked at; None for all.
        baselines: other numbers by token that could do as well, by name, for instance how often
            the n-gram was counted; told as layer -1.
        resamples: bootstrap samples over documents.

    Returns:
        Columns layer, branch, measure ("gate", "value_norm" or the name of a baseline), value (0.5
        says nothing), low, high (95 %) and items (tokens looked at).

    Raises:
        ValueError: if all tokens looked at have the same label.
    """
    among = np.ones(len(labels), dtype=bool) if among is None else among
    if len(set(labels[among].tolist())) < 2:
        raise ValueError(
            "detector_scores needs tokens with the label and tokens without; got "
            f"{int(labels[among].sum())} labelled of {int(among.sum())}"
        )
    kept = gates[among[gates["place"]]]

    def statistic_of(scores: np.ndarray, places: np.ndarray) -> Statistic:
        return auc_statistic(scores, labels[places])

    return _scores(kept, baselines, statistic_of, resamples)


def surprise_scores(
    gates: pd.DataFrame,
    surprise: Float[np.ndarray, "token"],
    *,
    baselines: Mapping[str, Float[np.ndarray, "token"]] | None = None,
    resamples: int = RESAMPLES,
) -> pd.DataFrame:
    """Rank correlation of every gate with the surprise of the token it stands at.

    Args:
        gates: from `document_gates`.
        surprise: nats by token, as `NgramCounts.surprise` gives them.
        baselines: as in `detector_scores`.
        resamples: bootstrap samples over documents.

    Returns:
        The columns of `detector_scores`; value is Spearman's correlation: below 0 the gate opens
        where text is stereotyped.
    """

    def statistic_of(scores: np.ndarray, places: np.ndarray) -> Statistic:
        return rank_statistic(scores, surprise[places])

    return _scores(gates, baselines, statistic_of, resamples)


def topic_gates(
    model: nn.Module, config: PolysemyConfig, *, pairs: int = 64, seed: int = 0
) -> pd.DataFrame:
    """Gates at the same phrases under the topic they are at home in and under another one (D5).

    Args:
        model: a model with memory, trained on the language of `config`; left as it was.
        config: of D5.
        pairs: pairs of documents that hold the same phrases.
        seed: of the documents.

    Returns:
        Columns layer, branch, document (number of the pair), position, phrase (its rank), and gate
        and value_norm under either topic: gate_home, gate_elsewhere, value_norm_home,
        value_norm_elsewhere.

    Raises:
        ValueError: if the model has no memory.
    """
    twins = polysemy_twins(config, pairs, seed)
    keys = ["layer", "branch", "document", "position"]
    sides = {
        name: document_gates(model, documents)[[*keys, *MEASURES]]
        for name, documents in (("first", twins.first), ("second", twins.second))
    }
    both = sides["first"].merge(sides["second"], on=keys, suffixes=("_first", "_second"))
    both = twins.places.merge(both, on=["document", "position"])
    at_home = both["home"] == "first"
    for measure in MEASURES:
        first, second = both[f"{measure}_first"], both[f"{measure}_second"]
        both[f"{measure}_home"] = first.where(at_home, second)
        both[f"{measure}_elsewhere"] = second.where(at_home, first)
    columns = [f"{measure}_{where}" for measure in MEASURES for where in ("home", "elsewhere")]
    return both[[*keys, "phrase", *columns]].sort_values(keys, ignore_index=True)


def topic_difference(frame: pd.DataFrame, *, resamples: int = RESAMPLES) -> pd.DataFrame:
    """Gate at home minus gate elsewhere, pair by pair, with its interval over documents.

    Args:
        frame: from `topic_gates`, of one model.
        resamples: bootstrap samples over pairs of documents.

    Returns:
        The columns of `detector_scores`; value above 0 says that memory is believed more under the
        right topic. Items are phrases.
    """
    rows = []
    for (layer, branch), part in frame.groupby(["layer", "branch"]):
        for measure in MEASURES:
            difference = (part[f"{measure}_home"] - part[f"{measure}_elsewhere"]).to_numpy(float)
            found = over_documents(
                lambda weights, values=difference: np.average(values, weights=weights),
                part["document"].to_numpy(),
                resamples=resamples,
            )
            rows.append((layer, branch, measure, *found, len(part)))
    return pd.DataFrame(rows, columns=["layer", "branch", "measure", *SCORES])


def _scores(
    gates: pd.DataFrame,
    baselines: Mapping[str, np.ndarray] | None,
    statistic_of: Callable[[np.ndarray, np.ndarray], Statistic],
    resamples: int,
) -> pd.DataFrame:
    """One row per layer, branch and measure, and one per baseline."""
    rows = []
    for (layer, branch), part in gates.groupby(["layer", "branch"]):
        places, documents = part["place"].to_numpy(), part["document"].to_numpy()
        for measure in MEASURES:
            statistic = statistic_of(part[measure].to_numpy(float), places)
            found = over_documents(statistic, documents, resamples=resamples)
            rows.append((layer, branch, measure, *found, len(part)))
    if baselines:
        part = gates[(gates["layer"] == layer) & (gates["branch"] == branch)]
        places, documents = part["place"].to_numpy(), part["document"].to_numpy()
        for name, values in baselines.items():
            statistic = statistic_of(np.asarray(values, float)[places], places)
            found = over_documents(statistic, documents, resamples=resamples)
            rows.append((-1, 0, name, *found, len(part)))
    return pd.DataFrame(rows, columns=["layer", "branch", "measure", *SCORES])


def _rows(
    layer: int, place: tuple[np.ndarray, np.ndarray], gate: np.ndarray, length: np.ndarray
) -> pd.DataFrame:
    """Rows of one layer and batch, branch by branch."""
    document, position = place
    branches = gate.shape[1]
    return pd.DataFrame(
        {
            "layer": layer,
            "branch": np.repeat(np.arange(branches), len(document)),
            "document": np.tile(document, branches),
            "position": np.tile(position, branches),
            "gate": gate.T.ravel(),
            "value_norm": (gate * length[:, None]).T.ravel(),
        }
    )
