"""Drafting with a small model: what it reads, keeps and refuses."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.plain import SmallModelDrafter
from engram_lab.draft.proposer import Committed
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from tests.draft.drafters import BLOCK, VOCAB, tiny_lm

GREEDY = Sampling(temperature=0.0)


def committed(ids: list[list[int]], counts: list[int], anchor: list[int]) -> Committed:
    tokens = torch.tensor(ids)
    return Committed(
        token_ids=tokens,
        counts=torch.tensor(counts),
        features=None,
        final=torch.zeros(*tokens.shape, 32),
        anchor=torch.tensor(anchor),
    )


def test_a_model_of_another_vocabulary_is_refused_with_both_sizes() -> None:
    with pytest.raises(ValueError, match=rf"{VOCAB + 2} ids, the target {VOCAB}"):
        SmallModelDrafter(tiny_lm(vocab_size=VOCAB + 2), Target(tiny_lm()))


def test_the_last_draft_is_never_read_and_rejected_ones_are_forgotten() -> None:
    model = tiny_lm()
    drafter = SmallModelDrafter(model, Target(model), block_size=BLOCK)
    state = drafter.begin(2)
    drafter.absorb(state, committed([[1, 2, 3], [4, 0, 0]], [3, 1], [5, 6]))
    drafts = drafter.propose(state, BLOCK, GREEDY, Noise(2, 0)).tokens
    # prompt, anchor and all drafts but the last
    assert state.cache.lengths.tolist() == [3 + BLOCK, 1 + BLOCK]
    rows = torch.cat([torch.tensor([[5], [6]]), drafts], dim=1).tolist()
    drafter.absorb(state, committed(rows, [BLOCK + 1, 1], [7, 8]))
    assert state.cache.lengths.tolist() == [3 + BLOCK, 2]  # all accepted; none accepted
    assert [row.tolist() for row in state.pending] == [[rows[0][-1]], []]
    fresh = drafter.begin(2)
    text = [[1, 2, 3, *rows[0]], [4, 6, *[0] * (BLOCK + 2)]]
    drafter.absorb(fresh, committed(text, [4 + BLOCK, 2], [7, 8]))
    again = drafter.propose(state, BLOCK, GREEDY, Noise(2, 0))
    assert (
        again.tokens.tolist() == drafter.propose(fresh, BLOCK, GREEDY, Noise(2, 0)).tokens.tolist()
    )


def test_a_round_costs_as_many_passes_as_drafts_whatever_was_accepted() -> None:
    model = tiny_lm(memory=False)
    drafter = SmallModelDrafter(model, Target(model), block_size=BLOCK)
    passes = []
    drafter.model.model.register_forward_hook(lambda *_: passes.append(1))
    target = Target(tiny_lm(memory=False))
    config = GenerationConfig(max_new_tokens=1 + 3 * (BLOCK + 1), sampling=GREEDY)
    generation = speculative_generate(target, drafter, torch.tensor([[1, 2]]), config)
    assert (generation.frame().accepted == BLOCK).all()
    assert len(passes) == BLOCK * len(generation.rounds)


def test_where_the_small_context_ends_nothing_is_proposed() -> None:
    target = Target(tiny_lm(memory=False))
    short = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            max_position_embeddings=10,
        )
    )
    drafter = SmallModelDrafter(short.eval(), target, block_size=BLOCK)
    prompts = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6, 7, 8])]
    config = GenerationConfig(max_new_tokens=12, sampling=GREEDY)
    generation = speculative_generate(target, drafter, prompts, config)
    plain = speculative_generate(target, None, prompts, config)
    assert [row.tolist() for row in generation.token_ids] == [
        row.tolist() for row in plain.token_ids
    ]
    proposed = generation.frame().proposed
    assert proposed.max() == BLOCK and proposed.iloc[-1] == 0
