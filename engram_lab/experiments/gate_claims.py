"""Claims about gates: as detectors of phrases and topics (E8), and their credit (E14)."""

import pandas as pd

from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.verdict import Verdict
from engram_lab.probes.gate_statistics import topic_difference


def gate_claims(frame: pd.DataFrame) -> list[Verdict]:
    """Verdicts on "the gate opens at the end of phrases, and not for frequency alone".

    Every layer and branch has claims of its own, so that none is picked after the fact.

    Args:
        frame: rows of `probes.gate_scores.trained_gate_scores` with columns model and seed.
    """
    verdicts = []
    own = frame[(frame["model"] == "engram") & (frame["measure"] == "gate")]
    for (layer, branch), part in own.groupby(["layer", "branch"]):
        place = f"gate of block {layer}" + (f", branch {branch}" if branch else "")
        inside = _by_seed(part, "phrase_end_inside")
        counted = frame[(frame["model"] == "engram") & (frame["measure"] == "ngram_count")]
        control = frame[
            (frame["model"] == "neighbour")
            & (frame["measure"] == "gate")
            & (frame["layer"] == layer)
            & (frame["branch"] == branch)
        ]
        differences = {
            "tells last words of phrases from all others": 0.5 - _by_seed(part, "phrase_end"),
            "tells last words from other words of phrases": 0.5 - inside,
            "does so better than counting n-grams": _by_seed(counted, "phrase_end_inside") - inside,
            "falls with the surprise of a token": _by_seed(part, "surprise"),
        }
        if len(control):
            name = "does so better than with a neighbour's addresses"
            differences[name] = _by_seed(control, "phrase_end_inside") - inside
        units = {"falls with the surprise of a token": "of rank correlation"}
        verdicts += [
            seed_claim(
                values.to_dict(),
                claim=f"{place} {claim}",
                unit=units.get(claim, "of area under the ROC curve"),
                n_items=int(part["items"].max()),
            )
            for claim, values in differences.items()
        ]
    return verdicts


def topic_claims(frame: pd.DataFrame) -> list[Verdict]:
    """Verdicts on "under the right topic the gate opens wider", by kind of model, layer and branch.

    Args:
        frame: rows of `probes.gate_scores.trained_topic_gates` with columns model and seed.
    """
    verdicts = []
    for model, own in frame.groupby("model", sort=False):
        whose = {"engram": "own addresses", "neighbour": "a neighbour's addresses"}.get(
            model, model
        )
        parts = [
            topic_difference(part, resamples=200).assign(seed=seed)
            for seed, part in own.groupby("seed")
        ]
        gates = pd.concat(parts)
        gates = gates[gates["measure"] == "gate"]
        for (layer, branch), part in gates.groupby(["layer", "branch"]):
            place = f"{whose}, block {layer}" + (f", branch {branch}" if branch else "")
            rows = part.set_index("seed")
            verdicts.append(
                seed_claim(
                    (-rows["value"]).to_dict(),
                    claim=f"{place}: the gate opens wider under the right topic",
                    unit="of gate",
                    errors=((rows["high"] - rows["low"]) / 4).to_dict(),
                    n_items=int(part["items"].max()),
                )
            )
    return verdicts


def credit_claims(frame: pd.DataFrame) -> list[Verdict]:
    """Verdicts on "the gate opens where memory helps", and on frequent against rare n-grams.

    Args:
        frame: rows of `probes.gate_scores.trained_credit` with columns model, train_tokens and
            seed; the longest training is judged.
    """
    final = frame[frame["train_tokens"] == frame["train_tokens"].max()]
    own = final[final["model"] == "engram"]
    verdicts = []
    for layer, part in own.groupby("layer"):
        rows = part.groupby("seed")[["auc", "auc_low", "auc_high"]].first()
        verdicts.append(
            seed_claim(
                (0.5 - rows["auc"]).to_dict(),
                claim=f"gate of block {layer} opens where memory helps",
                unit="of area under the ROC curve",
                errors=((rows["auc_high"] - rows["auc_low"]) / 4).to_dict(),
                n_items=int(part.groupby("seed")["tokens"].sum().max()),
            )
        )
    gaps = route_gaps(final)
    gap = gaps.pivot(index="seed", columns="model", values="gap_nats")
    if {"engram", "experts"} <= set(gap):
        verdicts.append(
            seed_claim(
                (gap["engram"] - gap["experts"]).to_dict(),
                claim="memory narrows the gap between rare and frequent n-grams",
                unit="nats per token",
                n_items=int(own.groupby(["seed", "layer"])["tokens"].sum().max()),
            )
        )
    return verdicts


def route_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Loss behind rare n-grams minus that behind frequent ones, by model, budget and seed.

    Args:
        frame: rows of `probes.gate_scores.trained_credit` with columns model, train_tokens, seed.

    Returns:
        Columns model, train_tokens, seed, hot_nats, cold_nats and gap_nats (cold minus hot).
    """
    first = frame.groupby(["model", "train_tokens", "seed"])["layer"].transform("min")
    rows = frame[frame["layer"] == first]  # every layer tells the same losses
    rows = rows.assign(total=rows["loss_nats"] * rows["tokens"])
    keys = ["model", "train_tokens", "seed", "route"]
    sums = rows.groupby(keys, as_index=False)[["total", "tokens"]].sum()
    sums["loss_nats"] = sums["total"] / sums["tokens"]
    wide = sums.pivot(index=keys[:-1], columns="route", values="loss_nats").reset_index()
    wide = wide.rename(columns={"hot": "hot_nats", "cold": "cold_nats"}).rename_axis(columns=None)
    return wide.assign(gap_nats=wide["cold_nats"] - wide["hot_nats"])[
        [*keys[:-1], "hot_nats", "cold_nats", "gap_nats"]
    ]


def _by_seed(frame: pd.DataFrame, statistic: str) -> pd.Series:
    rows = frame[frame["statistic"] == statistic]
    return rows.set_index("seed")["value"]
