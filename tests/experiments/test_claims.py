"""Claims of the allocation experiment on planted losses."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.experiments.claims import allocation_claims, class_claims, control_claims


def planted(column: str, losses: dict[object, float]) -> pd.DataFrame:
    noise = np.random.default_rng(0).normal(0, 0.01, size=(3, 40))
    rows = [
        {
            column: arm,
            "seed": seed,
            "document": document,
            "token_class": "all",
            "loss_nats": loss + noise[seed, document],
            "eval_tokens": 60,
        }
        for arm, loss in losses.items()
        for seed in range(3)
        for document in range(40)
    ]
    return pd.DataFrame(rows)


def test_the_ratio_nearest_the_published_one_is_tested_against_both_ends():
    frame = planted("allocation_ratio", {0.0: 3.2, 0.5: 2.0, 0.75: 3.0, 1.0: 2.9})
    against_experts, against_memory = allocation_claims(frame, "toy")
    assert against_experts.claim == "toy: 75% experts beat experts alone"
    assert against_experts.outcome == "contradicted"
    assert against_memory.outcome == "supported"


def test_a_frame_without_an_end_is_refused():
    frame = planted("allocation_ratio", {0.5: 2.0, 1.0: 2.9})
    with pytest.raises(ValueError, match="claims need the ratios 0, 1"):
        allocation_claims(frame, "toy")


def test_controls_are_compared_with_the_hybrid():
    frame = planted("arm", {"engram": 2.0, "neighbour": 2.5, "wide_ffn": 1.5, "experts": 2.2})
    outcomes = [verdict.outcome for verdict in control_claims(frame)]
    assert outcomes == ["supported", "supported", "contradicted"]


def test_classes_are_compared_between_the_tested_split_and_the_ends():
    static = planted("allocation_ratio", {0.0: 1.0, 0.75: 2.0, 1.0: 3.0})
    computed = planted("allocation_ratio", {0.0: 2.0, 0.75: 1.0, 1.0: 1.5})
    frame = pd.concat(
        [static.assign(token_class="static"), computed.assign(token_class="computed")]
    )
    verdicts = class_claims(frame, "toy")
    assert [v.claim for v in verdicts] == [
        "toy, static tokens: memory alone beats 75% experts",
        "toy, static tokens: 75% experts beat experts alone",
        "toy, computed tokens: 75% experts beat memory alone",
        "toy, computed tokens: experts alone beat 75% experts",
    ]
    assert [v.outcome for v in verdicts] == ["supported"] * 3 + ["contradicted"]
