"""Claims about depth: right where it was planted so, wrong or undecided where not."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.experiments.depth_claims import (
    early_layers,
    entity_claims,
    entity_numbers,
    gain_claims,
    lens_claims,
    lens_numbers,
    rise_layer,
)

BLOCKS = 8
SEEDS = (0, 1, 2)


def lens_rows(early: float = -1.0, late: float = -0.2, removed: float = 0.0) -> pd.DataFrame:
    """KL falls by one a layer; the hybrid's is shifted in early and in later layers."""
    rows = []
    for model, blocks in (("experts", BLOCKS), ("engram", BLOCKS), ("deeper", BLOCKS + 1)):
        for memory in ("kept", "removed") if model == "engram" else ("kept",):
            for seed in SEEDS:
                for layer in range(blocks + 1):
                    kl = (blocks - layer) * (1 + 0.01 * seed)
                    if model == "engram" and 0 < layer < blocks:
                        shift = early if layer <= BLOCKS // 2 else late
                        kl += removed if memory == "removed" else shift
                    rows.append((model, memory, seed, "all", layer, kl, 500))
    columns = ["model", "memory", "seed", "token_class", "layer", "kl_nats", "positions"]
    return pd.DataFrame(rows, columns=columns)


def gain_rows(gain: float, error: float = 0.05) -> pd.DataFrame:
    values = {"engram": gain, "seed": 0.2, "neighbour": 0.2, "deeper": 0.9}
    rows = [
        {"comparison": name, "seed": seed, "estimator": "debiased", "removed": removed}
        | {"gain": value + 0.01 * seed * (name == "engram"), "samples": 512}
        | {"low": value - error, "high": value + error}
        for name, value in values.items()
        for seed in SEEDS
        for removed in (0, 2)
    ]
    return pd.DataFrame(rows)


def entity_rows(lead: float = 0.3, nobody_lead: float = 0.3, bare_lead: float = 0.0):
    """Accuracy rises by a tenth a layer; the hybrid's early layers are ahead by `lead`."""
    rows = []
    for model in ("experts", "engram", "neighbour"):
        for seed in SEEDS:
            for names, ahead in (("book", lead), ("nobody", nobody_lead)):
                probes = {"stream": ahead} | (
                    {"without_rows": bare_lead} if names == "book" else {}
                )
                probes |= {"patch": ahead} if names == "book" else {}
                for probe, shift in probes.items():
                    for layer in range(BLOCKS + 1):
                        accuracy = 0.2 + 0.1 * layer + 0.001 * seed
                        if model == "engram" and 1 <= layer <= BLOCKS // 2:
                            accuracy += shift
                        rows.append((model, seed, names, probe, layer, accuracy))
    frame = pd.DataFrame(rows, columns=["model", "seed", "names", "probe", "layer", "accuracy"])
    return frame.assign(
        low=frame["accuracy"] - 0.02,
        high=frame["accuracy"] + 0.02,
        control_accuracy=0.0,
        last_token_accuracy=0.2,
        mentions=900,
    )


def outcomes(verdicts) -> dict[str, str]:
    return {verdict.claim: verdict.outcome for verdict in verdicts}


def one(verdicts, words: str) -> str:
    (found,) = [outcome for claim, outcome in outcomes(verdicts).items() if words in claim]
    return found


def test_early_layers_lie_between_the_memory_and_the_middle_of_the_plain_model():
    assert early_layers(lens_rows()) == [2, 3, 4]
    with pytest.raises(ValueError, match="experts"):
        early_layers(lens_rows().query("model == 'engram'"))


def test_lens_numbers_are_means_areas_and_half_layers():
    numbers = lens_numbers(lens_rows()).set_index(["model", "memory", "seed"])
    plain = numbers.loc["experts", "kept", 0]
    assert plain["early_nats"] == pytest.approx(np.mean([6, 5, 4]))
    assert plain["area_nats"] == pytest.approx(4.0)
    assert plain["half_layer"] == 5  # below half of 8, not at it
    assert numbers.loc[("engram", "kept", 0), "early_nats"] == pytest.approx(4.0)


def test_a_lower_curve_that_nowhere_crosses_is_supported():
    verdicts = lens_claims(lens_rows())
    found = outcomes(verdicts)
    assert found["early layers are nearer to the end than those of experts alone"] == "supported"
    assert one(verdicts, "nowhere farther") == "supported"
    assert one(verdicts, "one more block does") == "contradicted"  # its end lies farther away
    removed = lens_claims(lens_rows(removed=0.5))
    assert one(removed, "without what the memory added") == "contradicted"


def test_one_later_layer_above_the_plain_model_is_a_crossing():
    frame = lens_rows()
    above = (frame["model"] == "engram") & (frame["memory"] == "kept") & (frame["layer"] == 6)
    frame.loc[above, "kl_nats"] += 1.0
    assert one(lens_claims(frame), "nowhere farther") == "contradicted"
    assert one(lens_claims(frame), "end than those of experts alone") == "supported"


def test_a_depth_gain_must_exceed_that_of_another_seed_by_its_interval():
    assert set(outcomes(gain_claims(gain_rows(0.8))).values()) == {"supported"}
    assert one(gain_claims(gain_rows(0.21, error=0.5))[:1], "another seed") == "undecided"
    assert one(gain_claims(gain_rows(-0.5))[:1], "another seed") == "contradicted"
    assert len(gain_claims(gain_rows(0.8))) == 6
    with pytest.raises(ValueError, match="seed"):
        gain_claims(gain_rows(0.8).query("comparison == 'engram'"))


def test_a_curve_that_rises_earlier_is_supported():
    verdicts = entity_claims(entity_rows())
    assert one(verdicts, "early layers tell more names than those of a neighbour") == "supported"
    assert one(verdicts, "patched") == "supported"
    assert one(verdicts, "earlier layer than by experts alone") == "supported"
    assert one(verdicts, "without the rows") == "undecided"
    assert one(verdicts, "names of the book than for nobody") == "undecided"
    ahead = entity_claims(entity_rows(nobody_lead=0.1, bare_lead=0.2))
    assert one(ahead, "names of the book than for nobody") == "supported"
    assert one(ahead, "without the rows") == "supported"
    behind = entity_claims(entity_rows(lead=-0.2))
    assert one(behind, "more names than those of a neighbour") == "contradicted"


def test_the_interval_over_entities_counts_where_it_is_wider_than_that_over_seeds():
    frame = entity_rows(lead=0.03)
    assert one(entity_claims(frame), "more names than those of a neighbour") == "supported"
    wide = frame.assign(low=frame["accuracy"] - 0.3, high=frame["accuracy"] + 0.3)
    assert one(entity_claims(wide), "more names than those of a neighbour") == "undecided"


def test_a_curve_rises_between_layers():
    curve = pd.Series([0.2, 0.4, 0.8], index=[0, 1, 2])
    assert rise_layer(curve, 0.6) == pytest.approx(1.5)
    assert rise_layer(curve, 0.1) == 0
    assert np.isnan(rise_layer(curve, 0.9))
    numbers = entity_numbers(entity_rows()).set_index(["model", "seed", "names", "probe"])
    assert numbers.loc[("experts", 0, "book", "stream"), "rise_layer"] == pytest.approx(4.0)
