"""Look-up of n-grams: which place is found, and what is copied from it."""

import pytest
import torch

from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.lookup import LookupState, NgramLookup
from engram_lab.draft.proposer import Committed
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from engram_lab.draft.verify import Proposal
from tests.draft.drafters import tiny_lm

GREEDY = Sampling(temperature=0.0)


def told(drafter: NgramLookup, state: LookupState, texts: list[list[int]]) -> None:
    """Commit texts, the last token of each as its anchor."""
    counts = torch.tensor([len(text) - 1 for text in texts])
    rows = [torch.tensor(text[:-1], dtype=torch.int64) for text in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    drafter.absorb(
        state,
        Committed(
            token_ids=ids,
            counts=counts,
            features=None,
            final=torch.zeros(*ids.shape, 1),
            anchor=torch.tensor([text[-1] for text in texts]),
        ),
    )


def proposed(drafter: NgramLookup, *texts: list[int], length: int = 3) -> Proposal:
    state = drafter.begin(len(texts))
    told(drafter, state, list(texts))
    return drafter.propose(state, length, GREEDY, Noise(len(texts), 0))


def test_the_longest_suffix_wins_over_a_later_shorter_one() -> None:
    #                                  1 2 3 was followed by 4 5 6; a later 3 by 9
    text = [1, 2, 3, 4, 5, 6, 3, 9, 1, 2, 3]
    assert proposed(NgramLookup(), text).tokens.tolist() == [[4, 5, 6]]
    assert proposed(NgramLookup(max_ngram=1), text).tokens.tolist() == [[9, 1, 2]]


def test_of_equal_suffixes_the_latest_counts() -> None:
    assert proposed(NgramLookup(), [7, 1, 7, 2, 7, 3, 4, 7]).tokens.tolist() == [[3, 4, 7]]


def test_a_copy_runs_on_into_itself() -> None:
    assert proposed(NgramLookup(), [8, 5, 6, 5, 6], length=4).tokens.tolist() == [[5, 6, 5, 6]]


def test_a_sequence_without_a_match_proposes_nothing() -> None:
    both = proposed(NgramLookup(), [1, 2, 3], [4, 5, 4])
    assert both.lengths.tolist() == [0, 3]
    assert both.probs is None
    assert both.tokens[1].tolist() == [5, 4, 5]
    none = proposed(NgramLookup(), [1, 2, 3], [4, 5, 6])
    assert none.tokens.shape == (2, 0)
    assert none.lengths.tolist() == [0, 0]


def test_shorter_suffixes_than_the_shortest_do_not_match() -> None:
    assert proposed(NgramLookup(min_ngram=2), [4, 5, 4]).lengths.tolist() == [0]


def test_text_in_pieces_is_indexed_like_text_at_once() -> None:
    text = torch.randint(3, (30,), generator=torch.Generator().manual_seed(0)).tolist()
    whole, pieces = NgramLookup(), NgramLookup()
    state, parts = whole.begin(1), pieces.begin(1)
    told(whole, state, [text])
    for start, end in ((0, 5), (4, 6), (5, 20), (19, 30)):  # each begins with the last anchor
        told(pieces, parts, [text[start:end]])
    for name in ("tokens", "after"):
        assert getattr(parts.texts[0], name) == getattr(state.texts[0], name)


def test_a_target_that_repeats_itself_accepts_what_is_looked_up() -> None:
    target = Target(tiny_lm(memory=False))
    config = GenerationConfig(max_new_tokens=40, sampling=GREEDY)
    generation = speculative_generate(target, NgramLookup(), torch.tensor([[1, 2]]), config)
    assert generation.frame().accepted.iloc[-2] == 4  # greedy decoding ends in a loop


@pytest.mark.parametrize("shortest", [0, 4])
def test_lengths_out_of_range_are_refused(shortest: int) -> None:
    with pytest.raises(ValueError, match=rf"1\.\.3 .*got {shortest}"):
        NgramLookup(min_ngram=shortest)
