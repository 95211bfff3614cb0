"""Purity of rows: companions by chance are as alike as any, planted ones are found."""

import numpy as np
import pytest

from engram_lab.probes.hash_rules import HashRule
from engram_lab.probes.purity import cosine, purity_frame
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents

VOCAB = 64


def random_text(tokens: int = 20_000) -> Documents:
    ids = np.random.default_rng(0).integers(0, 16, tokens)
    return Documents.from_lists([ids], vocab_size=VOCAB)


def identity() -> VocabCompression:
    return VocabCompression.identity(VOCAB)


def test_companions_by_chance_are_no_more_alike_than_others():
    rule = HashRule(multipliers=(1_000_003, 998_244_353), lengths=((53, 59),))
    frame = purity_frame(rule, random_text(), identity(), layer=3)
    assert list(frame.columns) == [
        "layer", "order", "head", "pairs", "cosine", "chance_cosine", "error"
    ]  # fmt: skip
    assert frame["head"].tolist() == [0, 1] and (frame["order"] == 2).all()
    assert (frame["layer"] == 3).all() and (frame["pairs"] > 100).all()
    # 4 standard errors: one failure in 16,000 by luck, were the seed not fixed
    assert ((frame["cosine"] - frame["chance_cosine"]).abs() < 4 * frame["error"]).all()


def test_companions_that_want_the_same_are_found():
    # multipliers that ignore the older token: a row holds the bigrams that end in one token, and
    # here the newest token alone says what follows
    generator = np.random.default_rng(0)
    pairs = generator.integers(0, 16, 5_000)
    ids = np.stack([pairs, pairs + 16], axis=1).ravel()
    text = Documents.from_lists([ids], vocab_size=VOCAB)
    rule = HashRule(multipliers=(1, 0), lengths=((31,),))
    found = purity_frame(rule, text, identity(), layer=0, least=5).iloc[0]
    assert found["cosine"] > 0.5 > 10 * found["error"]
    assert found["cosine"] > found["chance_cosine"] + 0.3


def test_orders_without_company_have_no_row():
    rule = HashRule(multipliers=(1, 16, 0), lengths=((100_003,), (7,)))
    frame = purity_frame(rule, random_text(), identity(), layer=0, least=1, pairs=20)
    assert frame["order"].tolist() == [3] and frame["pairs"].tolist() == [20]


def test_cosine_of_known_samples():
    assert cosine(np.array([1, 2]), np.array([2, 1, 1, 2])) == pytest.approx(1)
    assert cosine(np.array([1]), np.array([2])) == 0
    assert cosine(np.array([1, 1, 2]), np.array([1])) == pytest.approx(2 / 5**0.5)


def test_bad_input_is_refused_with_the_way_out():
    rule = HashRule(multipliers=(1, 16), lengths=((100_003,),))
    with pytest.raises(ValueError, match="take more text, fewer rows or a smaller least="):
        purity_frame(rule, random_text(200), identity(), layer=0)
    with pytest.raises(ValueError, match="at least 1; got 0 and 500"):
        purity_frame(rule, random_text(200), identity(), layer=0, least=0)
