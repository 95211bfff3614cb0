"""Greedy decoding of two hundred prompts: drafts change nothing, whether they are good or bad."""

import pytest

from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.lookup import NgramLookup
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import Target
from tests.draft.test_generate import Knowing
from tests.draft.tiny import TAPS, drafter_for, family, some_ids

COUNT, BATCH, TOKENS = 200, 40, 16
STOP = tuple(range(8))
PROMPTS = [some_ids(61, 1 + number % 23, seed=number) for number in range(COUNT)]


def decoded(target: Target, drafter_of) -> tuple[list[list[int]], int]:
    """Texts of all prompts, decoded in uneven batches, and the drafts that were kept."""
    config = GenerationConfig(
        max_new_tokens=TOKENS, sampling=Sampling(temperature=0.0), stop_ids=STOP
    )
    texts, kept = [], 0
    for start in range(0, COUNT, BATCH):
        rows = slice(start, start + BATCH)
        found = speculative_generate(target, drafter_of(rows), PROMPTS[rows], config)
        texts += [tokens.tolist() for tokens in found.token_ids]
        kept += sum(int(entry.accepted.sum()) for entry in found.rounds)
    return texts, kept


@pytest.mark.parametrize("name", ["memory", "plain", "llama"])
def test_drafts_of_any_quality_leave_two_hundred_greedy_texts_as_they_are(name: str):
    target = Target(family(name), TAPS)
    plain, _ = decoded(target, lambda rows: None)
    block = drafter_for(target)
    assert decoded(target, lambda rows: block)[0] == plain
    known = [prompt.tolist() + text + [0] * 8 for prompt, text in zip(PROMPTS, plain, strict=True)]
    blind = Target(target.model)
    texts, kept = decoded(blind, lambda rows: Knowing(known[rows], 61, wrong=4))
    assert texts == plain and kept > COUNT
    assert decoded(blind, lambda rows: NgramLookup(block_size=4))[0] == plain
    ends = sum(text[-1] in STOP and len(text) < TOKENS for text in plain)
    assert ends > 20  # stop tokens were met on the way
