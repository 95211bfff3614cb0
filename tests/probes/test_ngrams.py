"""The count model against dicts."""

from collections import Counter

import numpy as np
import pytest

from engram_lab.probes.ngrams import SMOOTHING, NgramCounts
from engram_lab.tokens.documents import Documents


@pytest.fixture(scope="module")
def parts() -> tuple[Documents, Documents]:
    rng = np.random.default_rng(0)
    make = [Documents.from_lists(
        [rng.integers(5, size=rng.integers(1, 9)) for _ in range(count)], vocab_size=6
    ) for count in (60, 20)]  # fmt: skip
    return make[0], make[1]


def ngrams(documents: Documents, order: int) -> list[tuple[int, ...]]:
    return [
        tuple(ids[i : i + order].tolist()) for ids in documents for i in range(len(ids) - order + 1)
    ]


def test_occurrences_are_those_of_a_dict_and_none_spans_documents(parts):
    train, held_out = parts
    counts = NgramCounts.of(train, 3)
    for order in (1, 2, 3):
        expected = Counter(ngrams(train, order))
        found, place = counts.occurrences(held_out, order), 0
        for ids in held_out:
            for end in range(1, len(ids) + 1):
                own = tuple(ids[end - order : end].tolist()) if end >= order else None
                assert found[place] == expected[own] if own else found[place] == 0
                place += 1


def test_surprise_is_that_of_mixed_counts(parts):
    train, held_out = parts
    tables = {order: Counter(ngrams(train, order)) for order in (1, 2, 3)}
    contexts = {order: Counter(gram[:-1] for gram in tables[order].elements()) for order in tables}
    surprise, place = NgramCounts.of(train, 3).surprise(held_out), 0
    for ids in held_out:
        for end in range(1, len(ids) + 1):
            p = 1 / 6
            for order in range(1, min(3, end) + 1):
                gram = tuple(ids[end - order : end].tolist())
                joint, context = tables[order][gram], contexts[order][gram[:-1]]
                p = (joint + SMOOTHING * p) / (context + SMOOTHING)
            assert surprise[place] == pytest.approx(-np.log(p))
            place += 1


def test_probabilities_of_all_tokens_add_up_to_one(parts):
    train, _ = parts
    asked = Documents.from_lists([[1, 2, token] for token in range(6)], vocab_size=6)
    surprise = NgramCounts.of(train, 3).surprise(asked)[2::3]
    assert np.exp(-surprise).sum() == pytest.approx(1)


def test_hot_tokens_end_the_most_frequent_ngrams():
    train = Documents.from_lists([[1, 2, 3]] * 6 + [[1, 1, 1]] * 2 + [[2, 2, 2]], vocab_size=6)
    asked = Documents.from_lists([[1, 2, 3], [1, 1, 1], [4, 4, 4]], vocab_size=6)
    counts = NgramCounts.of(train, 3)
    assert counts.hot(asked).tolist() == [False, False, True] + [False] * 6
    assert counts.hot(asked, share=0.8).tolist() == [False, False, True] * 2 + [False] * 3


def test_impossible_orders_and_shares_are_refused(parts):
    with pytest.raises(ValueError, match="order must be at least 1.*got 0"):
        NgramCounts.of(parts[0], 0)
    with pytest.raises(ValueError, match="below 2"):
        NgramCounts.of(parts[0], 25)
    with pytest.raises(ValueError, match="share must lie between 0 and 1; got 1.0"):
        NgramCounts.of(parts[0], 1).hot(parts[1], share=1.0)
