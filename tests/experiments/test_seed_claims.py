"""Claims about any number over seeds, and those of tasks and gates made from small frames."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student_t

from engram_lab.experiments.gate_claims import credit_claims, gate_claims, route_gaps, topic_claims
from engram_lab.experiments.seed_claims import seed_claim
from engram_lab.experiments.task_claims import ablation_claims, family_claims, rival_claims
from engram_lab.experiments.verdict import verdict_frame
from tests.experiments.frames import loss_frame


def outcomes(verdicts) -> dict[str, str]:
    return {verdict.claim: verdict.outcome for verdict in verdicts}


def test_an_interval_over_seeds_is_students():
    verdict = seed_claim({0: -0.1, 1: -0.2, 2: -0.3}, claim="it falls", unit="of accuracy")
    half = student_t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert (verdict.low, verdict.high) == pytest.approx((-0.2 - half, -0.2 + half))
    assert verdict.outcome == "undecided" and "Difference -0.2000 of accuracy" in verdict.sentence
    assert verdict.sentence.endswith("-0.300 to -0.100; Student's t over seeds).")
    assert verdict_frame([verdict])["unit"].tolist() == ["of accuracy"]


def test_errors_over_items_widen_an_interval_that_seeds_leave_too_narrow():
    close = {0: -0.10, 1: -0.11, 2: -0.12}
    assert seed_claim(close, claim="c", unit="u").outcome == "supported"
    errors = dict.fromkeys(close, 0.2)
    wide = seed_claim(close, claim="c", unit="u", errors=errors)
    assert wide.high - wide.low == pytest.approx(2 * 1.959964 * 0.2 / 3**0.5)
    assert wide.outcome == "undecided"


def test_one_seed_decides_nothing_and_numbers_must_be_finite():
    assert seed_claim({0: -1.0}, claim="c", unit="u").outcome == "undecided"
    with pytest.raises(ValueError, match="finite number for every seed"):
        seed_claim({0: -1.0, 1: np.nan}, claim="c", unit="u")


def test_rivals_are_those_the_frame_has():
    frame = loss_frame({"engram": -0.05, "experts": 0.0, "engram_3x": -0.08})
    assert outcomes(rival_claims(frame, "D3")) == {
        "D3: the hybrid beats experts alone": "supported",
        "D3: three times the rows beat one": "supported",
    }


def item_rows(levels: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"arm": arm, "seed": seed, "family": family, "task": task, "item": item}
            | {"score": float(item < 40 * level - seed)}
            for arm, level in levels.items()
            for seed in (0, 1, 2)
            for family, task in (("recall", "a"), ("recall", "b"), ("reading", "c"))
            for item in range(40)
        ]
    )


def test_families_compare_accuracies_pair_by_pair():
    verdicts = family_claims(item_rows({"experts": 0.4, "engram": 0.8}))
    assert outcomes(verdicts) == {
        "recall: the hybrid answers more than experts alone": "supported",
        "reading: the hybrid answers more than experts alone": "supported",
    }
    assert verdicts[0].difference == pytest.approx(-0.4) and verdicts[0].n_documents == 80
    with pytest.raises(ValueError, match="arms 'engram' and 'dense' on the same items"):
        family_claims(item_rows({"experts": 0.4, "engram": 0.8}), rival="dense")


def ablation_rows(recall=0.1, reading=0.9, permuted=0.05) -> pd.DataFrame:
    shares = {"closed_book": (recall, permuted), "passage": (reading, reading)}
    return pd.DataFrame(
        [
            {"task": task, "arm": arm, "layer": layer, "seed": seed, "items": 200}
            | {"retained": share + 0.002 * seed * (arm == "rows_zero"), "retained_corrected": share}
            for task, (zero, other) in shares.items()
            for arm, share in (("rows_zero", zero), ("rows_permuted", other))
            for layer in ("all", "1")
            for seed in (0, 1, 2)
        ]
    )


def test_facts_in_the_table_and_reading_outside_are_four_claims():
    assert list(outcomes(ablation_claims(ablation_rows())).values()) == ["supported"] * 4
    other = outcomes(ablation_claims(ablation_rows(recall=0.9, reading=0.3, permuted=0.95)))
    assert list(other.values()) == ["contradicted"] * 4


def test_what_a_model_never_knew_it_cannot_keep():
    rows = ablation_rows()
    nothing = rows.assign(
        retained_corrected=rows["retained_corrected"].where(rows["task"] != "passage")
    )
    claims = outcomes(ablation_claims(nothing))
    assert len(claims) == 2 and not any("reading" in claim for claim in claims)
    with pytest.raises(ValueError, match="models that know the answers of task 'closed_book'"):
        ablation_claims(rows.assign(retained_corrected=np.nan))
    with pytest.raises(ValueError, match="need task 'chains' under 'rows_zero'"):
        ablation_claims(rows, reading="chains")


def gate_rows() -> pd.DataFrame:
    values = {"phrase_end": 0.8, "phrase_end_inside": 0.7, "surprise": -0.3}
    rows = [
        {"model": model, "seed": seed, "layer": layer, "branch": 0, "measure": measure}
        | {"statistic": statistic, "value": value - 0.2 * (measure == "ngram_count") + 0.001 * seed}
        | {"items": 100}
        for model in ("engram", "neighbour")
        for seed in (0, 1, 2)
        for measure, layer in (("gate", 1), ("ngram_count", -1))
        for statistic, value in values.items()
    ]
    return pd.DataFrame(rows)


def test_every_gate_has_claims_of_its_own():
    verdicts = outcomes(gate_claims(gate_rows()))
    assert all(claim.startswith("gate of block 1 ") for claim in verdicts)
    assert list(verdicts.values()) == ["supported"] * 4 + ["undecided"]  # the control is no worse


def test_topics_are_compared_pair_by_pair():
    rng = np.random.default_rng(0)
    gaps = {"engram": 0.3, "neighbour": 0.0}
    index = [(m, seed, n) for m in gaps for seed in (0, 1, 2) for n in range(40)]
    frame = pd.DataFrame(index, columns=["model", "seed", "position"])
    frame = frame.assign(layer=1, branch=0, document=frame["position"] // 4)
    frame = frame.assign(value_norm_home=1.0, value_norm_elsewhere=1.0)
    frame["gate_home"] = 0.6 + 0.1 * rng.random(len(frame))
    frame["gate_elsewhere"] = 0.6 - frame["model"].map(gaps) + 0.1 * rng.random(len(frame))
    found = outcomes(topic_claims(frame))
    assert found == {
        "own addresses, block 1: the gate opens wider under the right topic": "supported",
        "a neighbour's addresses, block 1: the gate opens wider under the right topic": "undecided",
    }


def credit_rows() -> pd.DataFrame:
    rows = []
    for model, gain in (("engram", 0.5), ("experts", 0.0)):
        for tokens in (100, 200):
            for seed in (0, 1, 2):
                for layer in (1, 2) if model == "engram" else (-1,):
                    for route, loss in (("hot", 1.0), ("cold", 3.0 - gain)):
                        rows.append(
                            {"model": model, "train_tokens": tokens, "seed": seed, "layer": layer}
                            | {"route": route, "tokens": 50, "loss_nats": loss + 0.01 * seed}
                            | {"auc": 0.8 - 0.01 * seed, "auc_low": 0.75, "auc_high": 0.83}
                        )
    return pd.DataFrame(rows)


def test_gaps_are_rare_minus_frequent_and_layers_are_counted_once():
    gaps = route_gaps(credit_rows())
    assert len(gaps) == 12
    assert gaps.groupby("model")["gap_nats"].mean().to_dict() == pytest.approx(
        {"engram": 1.5, "experts": 2.0}
    )


def test_credit_is_judged_after_the_longest_training():
    frame = credit_rows()
    frame.loc[frame["train_tokens"] == 100, "auc"] = 0.2
    assert outcomes(credit_claims(frame)) == {
        "gate of block 1 opens where memory helps": "supported",
        "gate of block 2 opens where memory helps": "supported",
        "memory narrows the gap between rare and frequent n-grams": "supported",
    }
