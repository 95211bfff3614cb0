"""Verdicts: planted differences are found, absent ones are not, pairing helps."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engram_lab.experiments.paired import Bootstrap, paired_losses
from engram_lab.experiments.verdict import Verdict, paired_difference, verdict_frame
from tests.experiments.frames import loss_frame


@settings(max_examples=20, deadline=None)
@given(difference=st.floats(0.02, 0.5), sign=st.sampled_from((-1, 1)), seed=st.integers(0, 10**6))
def test_a_planted_difference_is_found(difference, sign, seed):
    frame = loss_frame({"a": sign * difference, "b": 0.0}, seed=seed)
    verdict = paired_difference(frame, "a", "b")
    assert verdict.outcome == ("supported" if sign < 0 else "contradicted")
    assert verdict.difference == pytest.approx(sign * difference, abs=0.02)
    assert verdict.low < verdict.difference < verdict.high


def test_no_difference_is_undecided_at_about_the_nominal_rate():
    # 150 draws at 95 %: the percentile interval covers about 94 %, so 88 % to 99 % are 3 sigma
    frames = (loss_frame({"a": 0.0, "b": 0.0}, seeds=1, documents=80, seed=i) for i in range(150))
    quick = Bootstrap(resamples=400)
    outcomes = [paired_difference(frame, "a", "b", bootstrap=quick).outcome for frame in frames]
    assert 0.88 < np.mean([outcome == "undecided" for outcome in outcomes]) < 0.99


def test_the_difference_is_weighted_by_tokens_and_averaged_over_seeds():
    frame = pd.DataFrame(
        {
            "arm": ["a", "a", "b", "b"] * 2,
            "seed": [0] * 4 + [1] * 4,
            "document": [0, 1] * 4,
            "loss_nats": [1.0, 2.0, 2.0, 2.0, 1.0, 4.0, 1.0, 2.0],
            "eval_tokens": [30, 10] * 4,
        }
    )
    expected = np.mean([(30 * -1 + 10 * 0) / 40, (30 * 0 + 10 * 2) / 40])
    assert paired_difference(frame, "a", "b").difference == pytest.approx(expected)


def test_pairing_makes_the_interval_narrower():
    frame = loss_frame({"a": -0.05, "b": 0.0})
    paired = paired_difference(frame, "a", "b")
    shuffled = frame.copy()
    arm = shuffled["arm"] == "a"
    order = np.random.default_rng(0).permutation(60)
    shuffled.loc[arm, "document"] = order[shuffled.loc[arm, "document"]]
    shuffled["eval_tokens"] = frame["eval_tokens"] = 100
    unpaired = paired_difference(shuffled, "a", "b")
    assert unpaired.high - unpaired.low > 5 * (paired.high - paired.low)


def test_resampling_seeds_too_makes_the_interval_wider_and_says_so():
    draw = np.random.default_rng(0)
    frame = loss_frame({"a": -0.05, "b": 0.0}, seeds=5)
    for seed in range(5):  # a seed moves arm a alone
        frame.loc[(frame["arm"] == "a") & (frame["seed"] == seed), "loss_nats"] += draw.normal(
            0, 0.1
        )
    documents = paired_difference(frame, "a", "b")
    both = paired_difference(frame, "a", "b", bootstrap=Bootstrap(seeds=True))
    assert both.high - both.low > 3 * (documents.high - documents.low)
    assert both.resampled == "documents and seeds"
    assert "documents and seeds resampled" in both.sentence


def test_the_same_frame_gives_the_same_interval_in_any_row_order():
    frame = loss_frame({"a": -0.05, "b": 0.0})
    assert paired_difference(frame.sample(frac=1, random_state=0), "a", "b") == paired_difference(
        frame, "a", "b"
    )


def test_two_thousand_resamples_take_less_than_a_second():
    frame = loss_frame({ratio: 0.0 for ratio in range(6)}, documents=500)
    losses = paired_losses(frame, by="arm")
    started = time.perf_counter()
    losses.resample(Bootstrap())
    assert time.perf_counter() - started < 1


def test_the_sentence_tells_outcome_interval_and_counts():
    verdict = Verdict(
        claim="memory helps",
        difference=-0.0123,
        low=-0.02,
        high=-0.01,
        n_seeds=3,
        n_documents=150,
        by_seed=(-0.01, -0.013, -0.0139),
    )
    assert str(verdict) == (
        "memory helps: supported. Difference -0.0123 nats per token (below 0 favours the "
        "claim), 95% interval -0.0200 to -0.0100 (3 paired seeds, -0.014 to -0.010; "
        "150 items; documents resampled)."
    )


def test_seeds_that_contradict_each_other_leave_a_claim_undecided():
    frame = loss_frame({"a": -0.05, "b": 0.0})
    frame.loc[(frame["arm"] == "a") & (frame["seed"] == 2), "loss_nats"] += 0.06
    verdict = paired_difference(frame, "a", "b")
    assert verdict.high < 0  # the documents agree
    assert verdict.seeds_disagree and verdict.outcome == "undecided"
    assert "3 paired seeds, which disagree, -0.04" in verdict.sentence


def test_the_difference_is_the_mean_of_those_of_the_seeds():
    verdict = paired_difference(loss_frame({"a": -0.05, "b": 0.0}), "a", "b")
    assert len(verdict.by_seed) == verdict.n_seeds == 3
    assert np.mean(verdict.by_seed) == pytest.approx(verdict.difference)


def test_verdict_frame_has_one_verdict_a_row():
    verdict = paired_difference(loss_frame({"a": -0.1, "b": 0.0}), "a", "b")
    frame = verdict_frame([verdict, verdict])
    assert frame["outcome"].tolist() == ["supported"] * 2
    assert {"claim", "difference", "low", "high", "sentence"} <= set(frame)


def without_documents(frame):
    return frame.drop(columns="document")


def with_another_document(frame):
    return frame[~((frame["arm"] == "a") & (frame["document"] == 3))]


def with_nan(frame):
    return frame.assign(loss_nats=frame["loss_nats"].mask(frame["document"] == 2))


def with_other_tokens(frame):
    return frame.assign(eval_tokens=frame["eval_tokens"] + (frame["arm"] == "a"))


def with_seeds_apart(frame):
    return frame.assign(seed=frame["seed"] + 10 * (frame["arm"] == "a"))


def with_two_corpora(frame):
    return pd.concat([frame.assign(corpus="d8"), frame.assign(corpus="d1")])


def with_one_document(frame):
    return frame[frame["document"] == 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_documents, "missing: document. probes.allocation.final_loss"),
        (with_another_document, r"missing in \[3\]"),
        (with_nan, "losses must be finite; they are not in documents"),
        (with_other_tokens, "evaluated on other tokens"),
        (with_seeds_apart, "share no seed"),
        (with_two_corpora, "several rows for one arm, seed and document"),
        (with_one_document, "needs at least 2 documents; got 1"),
    ],
)
def test_a_frame_that_cannot_be_paired_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(change(loss_frame({"a": 0.0, "b": 0.0})), "a", "b")


def test_an_unknown_arm_or_class_is_named():
    frame = loss_frame({"a": 0.0, "b": 0.0})
    with pytest.raises(
        ValueError, match=r"no rows with arm in \['c'\]; the frame has \['a', 'b'\]"
    ):
        paired_difference(frame, "a", "c")
    with pytest.raises(ValueError, match="no rows of token_class 'static'; the frame has all"):
        paired_difference(frame, "a", "b", token_class="static")


def test_a_seed_that_one_arm_lacks_is_left_out_with_a_warning():
    frame = loss_frame({"a": 0.0, "b": 0.0})
    with pytest.warns(UserWarning, match=r"seeds \[2\] are left out"):
        verdict = paired_difference(
            frame[~((frame["arm"] == "a") & (frame["seed"] == 2))], "a", "b"
        )
    assert verdict.n_seeds == 2


def test_a_null_of_three_noisy_seeds_is_rarely_called():
    rng, called = np.random.default_rng(0), 0
    for _ in range(200):
        effects = rng.normal(0, 0.2, size=3)
        rows = [
            {"arm": arm, "seed": seed, "document": document, "token_class": "all"}
            | {"loss_nats": 2 + (effects[seed] if arm == "a" else 0.0), "eval_tokens": 60}
            for arm in "ab"
            for seed in range(3)
            for document in range(4)
        ]
        strict = Bootstrap(seeds=True, resamples=200)
        verdict = paired_difference(pd.DataFrame(rows), "a", "b", bootstrap=strict)
        called += verdict.outcome != "undecided"
    assert called <= 20  # 5 % of 200 expected; 20 or more by luck about once in 1,000


def test_one_seed_says_nothing_of_seeds():
    rows = [
        {"arm": arm, "seed": 0, "document": document, "token_class": "all"}
        | {"loss_nats": 2.0 - (arm == "a"), "eval_tokens": 60}
        for arm in "ab"
        for document in range(9)
    ]
    frame = pd.DataFrame(rows)
    assert paired_difference(frame, "a", "b").outcome == "supported"
    strict = paired_difference(frame, "a", "b", bootstrap=Bootstrap(seeds=True))
    assert strict.outcome == "undecided"
