"""Bigram counts: chances, memory, and the bias they give to a block drafter."""

import pytest
import torch

from engram_lab.draft.bigram import BigramCounts, BigramDrafter, with_bigram_bias
from engram_lab.draft.target import Target
from tests.draft.drafters import BLOCK, VOCAB, bigram_counts, block_drafter, tiny_lm


def test_chances_are_those_counted_by_hand() -> None:
    counts = BigramCounts.from_documents([[0, 1, 0, 2], [1, 0]], 4, smoothing=2.0)
    single = torch.tensor([4, 3, 2, 1]) / 10  # occurrences and one more, of 6 + 4
    behind_0 = (torch.tensor([0, 1, 1, 0]) + 2 * single) / (2 + 2)
    behind_1 = (torch.tensor([2, 0, 0, 0]) + 2 * single) / (2 + 2)
    logs = counts.log_probs(torch.tensor([[0, 1], [3, 2]]))
    torch.testing.assert_close(logs[0].exp(), torch.stack([behind_0, behind_1]))
    torch.testing.assert_close(logs[1].exp(), torch.stack([single, single]))  # nothing follows


def test_bias_is_nothing_behind_a_token_that_was_never_seen() -> None:
    counts = BigramCounts.from_documents([[0, 1, 0, 1]], 3)
    torch.testing.assert_close(counts.bias(torch.tensor([2])), torch.zeros(1, 3))
    assert counts.bias(torch.tensor(0))[1] > 0 > counts.bias(torch.tensor(0))[0]


def test_memory_follows_distinct_pairs_and_a_large_one_is_refused_with_its_bytes() -> None:
    ids = torch.randint(4096, (20, 1000), generator=torch.Generator().manual_seed(0))
    counts = BigramCounts.from_documents(ids, 4096)
    assert counts.nbytes <= 8 * 20 * 999 + 12 * 4097
    with pytest.raises(ValueError, match=r"of 4096 may take 209,164 bytes.*max_bytes=100,000"):
        BigramCounts.from_documents(ids, 4096, max_bytes=100_000)
    with pytest.raises(ValueError, match=r"vocabulary of 100000000 .*1,200,000,"):
        BigramCounts.from_documents([[1, 2]], 100_000_000)


@pytest.mark.parametrize(
    ("documents", "message"),
    [([[0, 5]], r"0\.\.3 .*got 0\.\.5"), ([], "at least one token"), ([[]], "at least one token")],
)
def test_documents_that_cannot_be_counted_are_refused(documents: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BigramCounts.from_documents(documents, 4)


def test_counts_of_another_vocabulary_are_refused_with_both_sizes() -> None:
    model = tiny_lm(memory=False)
    for make in (
        lambda counts: BigramDrafter(counts, Target(model)),
        lambda counts: with_bigram_bias(block_drafter(model), counts),
    ):
        with pytest.raises(ValueError, match=rf"know {VOCAB + 1} ids, the target {VOCAB}"):
            make(bigram_counts(VOCAB + 1))


def test_weight_nought_is_the_drafter_itself_and_weight_one_adds_the_bias() -> None:
    model = tiny_lm(memory=False)
    drafter, counts = block_drafter(model), bigram_counts()
    ids = torch.randint(VOCAB, (2, 12), generator=torch.Generator().manual_seed(0))
    features = drafter.target.read(ids).features
    anchors, keep = torch.tensor([[3], [5]]), torch.ones(2, 1, dtype=torch.bool)
    base = drafter(ids, features, anchors, keep)
    none = with_bigram_bias(drafter, counts, 0.0)(ids, features, anchors, keep)
    assert torch.equal(none.logits, base.logits)
    full = with_bigram_bias(drafter, counts, 1.0)(ids, features, anchors, keep)
    previous = torch.stack([ids[0, 3 : 3 + BLOCK], ids[1, 5 : 5 + BLOCK]])[:, None]
    torch.testing.assert_close(full.logits, base.logits + counts.bias(previous))


def test_a_biased_copy_shares_parameters_and_leaves_the_drafter_alone() -> None:
    drafter = block_drafter(tiny_lm(memory=False), confidence=True)
    biased = with_bigram_bias(drafter, bigram_counts())
    assert drafter.markov_head is None
    assert biased.state_dict().keys() == drafter.state_dict().keys()
    assert biased.fc.weight is drafter.fc.weight


def test_a_trained_sequential_head_is_not_replaced() -> None:
    with pytest.raises(ValueError, match="one of rank 4"):
        with_bigram_bias(block_drafter(tiny_lm(), markov_rank=4), bigram_counts())
