"""Exact n-grams: equal numbers for equal n-grams alone, and nothing behind a document's end."""

import numpy as np
import pytest

from engram_lab.probes.contexts import context_ids, followed, read_followers
from engram_lab.tokens.documents import Documents


def test_context_numbers_are_equal_only_for_equal_ngrams():
    ids, offsets = np.random.default_rng(0).integers(0, 4, 200), np.array([0, 70, 71, 200])
    for order in (1, 2, 4):
        numbers, ends = context_ids(ids, offsets, order)
        ngrams = [tuple(ids[end + 1 - order : end + 1]) for end in ends]
        assert len(set(zip(numbers, ngrams, strict=True))) == len(set(numbers)) == len(set(ngrams))
        assert len(ends) == sum(max(size - order + 1, 0) for size in (70, 1, 129))


def test_followers_are_those_of_the_same_document():
    documents = Documents.from_lists([[1, 2, 1, 3], [1], [2, 1, 2]], vocab_size=9)
    assert followed(documents).tolist() == [True, True, True, False, False, True, True, False]
    followers = read_followers(documents.ids.astype(np.int64), documents)
    assert followers.numbers.tolist() == [1, 2] and followers.counts.tolist() == [3, 2]
    assert [part.tolist() for part in followers.behind(np.array([1, 0]))] == [[1, 1], [2, 3, 2]]
    assert followers.ends.tolist() == [0, 1]


def test_followers_of_longer_and_of_merged_ngrams():
    documents = Documents.from_lists([[1, 2, 5], [3, 2, 6], [3, 2, 7]], vocab_size=9)
    ids = documents.ids.astype(np.int64)
    assert read_followers(ids, documents, 2).counts.tolist() == [1, 2]
    merged = np.where(ids == 3, 1, ids)  # 3 is another spelling of 1
    assert read_followers(merged, documents, 2).behind(np.array([0]))[0].tolist() == [5, 6, 7]


def test_an_order_of_0_is_refused():
    documents = Documents.from_lists([[1, 2]], vocab_size=9)
    with pytest.raises(ValueError, match="at least 1 token; got order 0"):
        read_followers(documents.ids.astype(np.int64), documents, 0)
