"""Areas, ranks and intervals against slow second opinions."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from engram_lab.probes.intervals import auc, draws, middle, over_documents, rank_statistic


def slow_auc(scores, labels) -> float:
    above, below = scores[labels], scores[~labels]
    pairs = [(a, b) for a in above for b in below]
    return float(np.mean([(a > b) + (a == b) / 2 for a, b in pairs]))


@pytest.mark.parametrize("seed", range(5))
def test_auc_counts_pairs_and_halves_ties(seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(6, size=30).astype(float), rng.random(30) < 0.4
    assert auc(scores, labels) == pytest.approx(slow_auc(scores, labels))
    assert auc(-scores, labels) == pytest.approx(1 - auc(scores, labels))


def test_auc_of_a_perfect_detector_is_one_and_of_one_label_is_empty():
    labels = np.array([True, False, True, False])
    assert auc(labels.astype(float), labels) == 1
    assert auc(np.zeros(4), labels) == 0.5
    assert np.isnan(auc(np.arange(4.0), np.ones(4, dtype=bool)))


def test_rank_correlation_is_spearmans_also_with_ties():
    rng = np.random.default_rng(0)
    one, other = rng.integers(5, size=40).astype(float), rng.normal(size=40)
    found = rank_statistic(one, other)(np.ones(40))
    assert found == pytest.approx(spearmanr(one, other).statistic)
    assert np.isnan(rank_statistic(np.zeros(40), other)(np.ones(40)))


def test_weights_count_items_as_often_as_they_say():
    rng = np.random.default_rng(1)
    one, other, counts = rng.normal(size=12), rng.normal(size=12), rng.integers(3, size=12)
    repeated = [np.repeat(values, counts) for values in (one, other)]
    assert rank_statistic(one, other)(counts.astype(float)) == pytest.approx(
        spearmanr(*repeated).statistic
    )


def test_documents_are_drawn_whole():
    documents = np.repeat(np.arange(4), 5)
    values = documents.astype(float)
    mean, low, high = over_documents(lambda w: np.average(values, weights=w), documents)
    assert mean == 1.5
    by_item = over_documents(lambda w: np.average(values, weights=w), np.arange(20))
    assert high - low > 1.7 * (by_item[2] - by_item[1])  # 2.2 = sqrt(5) expected


def test_draws_keep_their_number_and_middles_know_gaps():
    assert (draws(7, resamples=50).sum(axis=1) == 7).all()
    assert np.array_equal(draws(7, seed=1), draws(7, seed=1))
    assert middle(np.arange(101.0), level=0.9) == pytest.approx((5.0, 95.0))
    assert all(np.isnan(middle(np.array([1.0, np.nan]))))
