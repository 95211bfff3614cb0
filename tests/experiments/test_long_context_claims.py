"""Claims of E9 on frames whose answers are known."""

import itertools

import pandas as pd
import pytest

from engram_lab.experiments.long_context_claims import (
    attention_claims,
    equal_loss_share,
    key_token_claims,
    loss_by_share,
    needle_claims,
)

MODELS = {
    ("experts", 1.0): 0.4,
    ("neighbour", 1.0): 0.4,
    ("engram", 1.0): 0.7,
    ("engram", 0.5): 0.4,
}


def losses() -> pd.DataFrame:
    nats = {
        ("experts", 1.0): 2.0,
        ("engram", 1.0): 1.7,
        ("engram", 0.5): 1.98,
        ("engram", 0.2): 2.4,
    }
    return pd.DataFrame(
        {
            "arm": arm,
            "share": share,
            "seed": seed,
            "document": document,
            "token_class": "all",
            "loss_nats": value + 0.1 * document,
            "eval_tokens": 10,
        }
        for ((arm, share), value), seed, document in itertools.product(nats.items(), (0, 1), (0, 1))
    )


def scores(models=MODELS, **columns) -> pd.DataFrame:
    rows = [
        {
            "arm": arm,
            "share": share,
            "seed": seed,
            "context": context,
            "task": task,
            "score": score + 0.01 * seed if context == 256 else 0.9,
            "stderr": 0.02,
            "items": 500,
            "texts": 64,
            "window": window,
            "layer": 0,
            "mass": 1 - score + 0.001 * seed,
        }
        for ((arm, share), score), seed, context, task, window in itertools.product(
            models.items(), (0, 1, 2), (64, 256), ("single", "tracking"), (8,)
        )
    ]
    return pd.DataFrame(rows).assign(**columns)


def test_equal_loss_is_where_the_hybrid_comes_nearest_to_the_experts():
    frame = loss_by_share(losses())
    assert len(frame) == 8
    assert frame.loc[frame["arm"] == "experts", "loss_nats"].tolist() == pytest.approx([2.05, 2.05])
    assert equal_loss_share(losses()) == 0.5
    with pytest.raises(ValueError, match="several shares of the tokens"):
        equal_loss_share(losses()[losses()["share"] == 1.0])


def test_a_gain_at_equal_steps_alone_is_undecided_at_equal_loss():
    verdicts = {verdict.claim: verdict for verdict in needle_claims(scores(), 0.5)}
    assert len(verdicts) == 6 and all(" at 256 tokens" in claim for claim in verdicts)
    words = "single at 256 tokens, unseen keys, equal {}: the hybrid finds more than experts"
    steps = verdicts[words.format("steps")]
    assert steps.outcome == "supported" and steps.difference == pytest.approx(-0.3)
    assert steps.high - steps.low == pytest.approx(2 * 1.96 * (0.0008 / 3) ** 0.5, rel=1e-3)
    assert steps.n_seeds == 3 and steps.n_documents == 500
    equal = verdicts[words.format("loss")]
    assert equal.outcome == "undecided" and equal.difference == pytest.approx(0)


def test_a_model_without_the_seeds_of_the_other_is_refused():
    frame = scores()
    short = frame[~((frame["arm"] == "neighbour") & (frame["seed"] == 2))]
    with pytest.raises(ValueError, match="same seeds"):
        needle_claims(short, 0.5)


def test_attention_further_away_supports_the_claim():
    outcomes = {v.claim: v.outcome for v in attention_claims(scores(), 0.5)}
    name = "needles: attention of the hybrid on the newest 8 tokens"
    assert outcomes[f"{name}, equal steps: less than experts"] == "supported"
    assert outcomes[f"{name}, equal loss: less than experts"] == "undecided"
    text = scores().query("share == 1 and arm != 'neighbour'").drop(columns="share")
    (alone,) = attention_claims(text, corpus="text")
    assert alone.claim.startswith("text: ") and alone.outcome == "supported"


def test_key_tokens_are_compared_alone_and_against_the_others():
    frame = pd.DataFrame(
        {
            "arm": arm,
            "seed": seed,
            "document": document,
            "token_class": name,
            "loss_nats": loss + 0.01 * seed,
            "eval_tokens": 10,
        }
        for arm, pair in {"experts": (3.0, 5.0), "engram": (2.5, 4.9)}.items()
        for name, loss in zip(("key", "other"), pair, strict=True)
        for seed in (0, 1, 2)
        for document in (0, 1, 2)
    )
    key, other, more = key_token_claims(frame)
    assert [verdict.outcome for verdict in (key, other, more)] == ["supported"] * 3
    assert key.difference == pytest.approx(-0.5) and other.difference == pytest.approx(-0.1)
    assert more.difference == pytest.approx(-0.4)
    (alone,) = key_token_claims(frame[frame["token_class"] == "other"])
    assert alone.claim == other.claim
