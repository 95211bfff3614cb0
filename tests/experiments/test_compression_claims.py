"""Claims about the token map: digits compared as published, losses paired."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.experiments.compression_claims import count_checks, map_claims, share_of_gain
from engram_lab.published import load_published


def counts(ids: int, removed: int) -> pd.DataFrame:
    row = {"tokenizer": "deepseek_v4", "kind": "all", "ids": ids, "alone": removed}
    return pd.DataFrame([row | {"canonical_ids": ids - removed, "alone_share": removed / ids}])


def groups(sizes) -> pd.DataFrame:
    rows = enumerate(sizes, 1)
    return pd.DataFrame([{"tokenizer": "deepseek_v4", "rank": r, "size": s} for r, s in rows])


def checks(kinds: pd.DataFrame, sizes=(163, 54, 40, 35, 30)) -> pd.DataFrame:
    return count_checks(
        kinds,
        groups(sizes),
        table6=load_published("engram_table6_tokenizer_compression"),
        reports=load_published("community_offload"),
        tokenizers=("deepseek_v4",),
    ).set_index("claim")


def test_counts_agree_or_tell_by_how_many_ids_they_miss():
    frame = checks(counts(129_280, 129_280 - 99_092), (163, 54, 41, 35, 30))
    assert (
        frame["outcome"].tolist()
        == ["differs", "exact", "exact", "exact", "differs"] + ["exact"] * 2
    )
    assert frame.loc["canonical ids", ["published", "measured"]].tolist() == [99_092, 99_092]
    assert frame.loc["group 3 (o)", "ids_off"] == -1
    missing = int(frame.loc["ids removed (%)", "ids_off"])
    for off, outcome in ((missing, "exact"), (missing - 1, "differs")):
        again = checks(counts(129_280, 129_280 - 99_092 + off))
        assert again.loc["ids removed (%)", "outcome"] == outcome
        assert (round(again.loc["ids removed (%)", "measured"], 2) == 23.43) == (outcome == "exact")


def test_a_share_that_is_too_large_misses_by_a_negative_number():
    assert checks(counts(128_815, 30_188)).loc["ids removed (%)", "ids_off"] == -1


def test_a_missing_tokenizer_is_named():
    with pytest.raises(ValueError, match="no rows of tokenizer deepseek_v3"):
        count_checks(counts(10, 2), groups((1,)), table6=pd.DataFrame(), reports=pd.DataFrame())


def losses() -> pd.DataFrame:
    rows, generator = [], np.random.default_rng(0)
    for seed in range(3):
        for document in range(40):
            level = generator.normal(4, 0.3)
            for arm, ratio, shift in (
                ("canonical", 0.75, 0.0), ("raw", 0.75, 0.01), ("experts", 1.0, 0.05)
            ):  # fmt: skip
                for name, harm in (("all", 1), ("space", -1), ("case", 0)):
                    noise = generator.normal(0, 0.001)
                    loss = level + (shift * harm if arm == "raw" else shift) + noise
                    row = {"arm": arm, "allocation_ratio": ratio, "seed": seed}
                    row |= {"document": document, "token_class": name, "eval_tokens": 100}
                    rows.append(row | {"loss_nats": loss})
    return pd.DataFrame(rows)


def test_planted_gain_harm_and_nothing_are_found():
    everything, space, case = map_claims(losses())
    assert everything.outcome == "supported" and "75% experts" in everything.claim
    assert everything.difference == pytest.approx(-0.01, abs=0.001)
    assert space.outcome == "supported" and "other white space" in space.claim
    assert case.outcome == "undecided"


def test_the_map_s_part_of_the_gain():
    frame = share_of_gain(losses())
    assert frame["seed"].tolist() == [0, 1, 2]
    assert frame["gain_nats"].to_numpy() == pytest.approx(0.05, abs=0.002)
    assert frame["map_share"].to_numpy() == pytest.approx(0.2, abs=0.03)
