"""What every drafter must do, whatever it is."""

import functools

import pytest
import torch
from torch import Tensor

from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.plain import SmallModelDrafter
from engram_lab.draft.proposer import Committed, Proposer
from engram_lab.draft.rounds import Generation
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target, target_for
from engram_lab.draft.verify import Proposal
from tests.draft.drafters import BLOCK, DRAFTERS, VOCAB, tiny_lm

LENGTH = 8
GREEDY = Sampling(temperature=0.0)
every_drafter = pytest.mark.parametrize("name", DRAFTERS)


def prompts(seed: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB, (length,), generator=generator) for length in (3, 11, 6)]


@functools.cache
def shared(memory: bool = True) -> torch.nn.Module:
    """A model that no test changes."""
    return tiny_lm(memory=memory)


@functools.cache
def plain(memory: bool = True, stops: tuple[int, ...] = ()) -> list[list[int]]:
    """Greedy output without a drafter."""
    return tokens(decoded(shared(memory), None, stop_ids=stops))


def decoded(model: torch.nn.Module, drafter: Proposer | None, **changes: object) -> Generation:
    settings = {"max_new_tokens": LENGTH, "sampling": GREEDY, "prefill_chunk": 4} | changes
    target = target_for(model, drafter) if drafter else Target(model)
    return speculative_generate(target, drafter, prompts(), GenerationConfig(**settings))


def tokens(generation: Generation) -> list[list[int]]:
    return [row.tolist() for row in generation.token_ids]


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "plain"])
@every_drafter
def test_greedy_output_is_that_of_plain_decoding(name: str, memory: bool) -> None:
    model = shared(memory)
    stop = plain(memory)[1][3]
    expected = plain(memory, (stop,))
    assert {len(row) for row in expected} > {LENGTH}  # some end early, some do not
    assert tokens(decoded(model, DRAFTERS[name](model), stop_ids=(stop,))) == expected


@every_drafter
def test_asking_beyond_the_block_names_both_numbers(name: str) -> None:
    model = shared()
    drafter = DRAFTERS[name](model)
    state = absorbed(drafter, model)
    with pytest.raises(ValueError, match=rf"{BLOCK}\b.*\b{BLOCK + 1}\b"):
        drafter.propose(state, BLOCK + 1, GREEDY, Noise(3, 0))
    with pytest.raises(ValueError, match=rf"{BLOCK}\b.*\b{BLOCK + 1}\b"):
        decoded(model, drafter, length=BLOCK + 1)


@every_drafter
def test_shorter_proposals_give_the_same_greedy_output(name: str) -> None:
    model = shared()
    generation = decoded(model, DRAFTERS[name](model), length=1)
    assert tokens(generation) == plain()
    assert generation.frame().proposed.max() <= 1


@every_drafter
def test_selected_sequences_are_proposed_for_as_before(name: str) -> None:
    model = shared()
    whole, part = DRAFTERS[name](model), DRAFTERS[name](model)
    state, kept = absorbed(whole, model), absorbed(part, model)
    part.select(kept, [2, 0])
    for _ in range(2):  # the second time with caches that were filled
        expected = whole.propose(state, BLOCK, GREEDY, Noise(3, 0))
        got = part.propose(kept, BLOCK, GREEDY, Noise(2, 0))
        assert drafts_of(got) == [drafts_of(expected)[row] for row in (2, 0)]
        accept(whole, state, model, expected, [0, 1, 3])
        accept(part, kept, model, got, [3, 0])


@every_drafter
def test_sampled_output_repeats_with_its_seed_and_is_valid(name: str) -> None:
    model = shared()
    sampling = Sampling(temperature=1.3, top_k=20, top_p=0.95)
    first, again = (decoded(model, DRAFTERS[name](model), sampling=sampling) for _ in range(2))
    assert tokens(first) == tokens(again)
    assert all(0 <= token < VOCAB for row in tokens(first) for token in row)
    assert all(len(row) == LENGTH for row in first.token_ids)
    for entry in first.rounds:
        probs, drafts = entry.proposal.probs, entry.proposal.tokens
        if probs is not None:
            torch.testing.assert_close(probs.sum(-1), torch.ones(drafts.shape))
            assert (probs.gather(-1, drafts[..., None]) > 0).all()
            assert ((probs > 0).sum(-1) <= 20).all()


@every_drafter
def test_drafting_leaves_the_target_as_it_was(name: str) -> None:
    model = tiny_lm().train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    decoded(model, DRAFTERS[name](model), max_new_tokens=4)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "plain"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_perfect_drafter_has_every_draft_accepted(memory: bool, temperature: float) -> None:
    model = tiny_lm(memory=memory)
    drafter = SmallModelDrafter(model, Target(model), block_size=BLOCK)
    sampling = Sampling(temperature=temperature)
    # one token of prefill and four whole rounds
    generation = decoded(
        model, drafter, sampling=sampling, max_new_tokens=1 + 4 * (BLOCK + 1), prefill_chunk=512
    )
    frame = generation.frame()
    assert (frame.emitted == BLOCK + 1).all()
    assert len(frame) == 3 * 4
    positions = generation.positions()
    assert positions.groupby("position").accepted.mean().tolist() == [1.0] * BLOCK
    torch.testing.assert_close(positions.expected.mean(), 1.0, atol=1e-5, rtol=0)


def absorbed(drafter: Proposer, model: torch.nn.Module) -> object:
    """State behind prefill, with prompts of unequal length."""
    rows = prompts()
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    read = target_for(model, drafter).read(ids)
    state = drafter.begin(3)
    counts = torch.tensor([len(row) for row in rows])
    drafter.absorb(
        state,
        Committed(
            token_ids=ids,
            counts=counts,
            features=read.features,
            final=read.final,
            anchor=torch.tensor([4, 5, 6]),
        ),
    )
    return state


def accept(
    drafter: Proposer, state: object, model: torch.nn.Module, proposal: Proposal, counts: list[int]
) -> None:
    """Tell a drafter that so many of its drafts were accepted, as far as it has so many."""
    anchors = {3: [4, 5, 6], 2: [6, 4]}[len(counts)]  # those of `absorbed`
    ids = torch.cat([torch.tensor(anchors)[:, None], proposal.tokens], dim=1)
    read = target_for(model, drafter).read(ids)
    kept = [min(count, len(row)) for count, row in zip(counts, drafts_of(proposal), strict=True)]
    committed = Committed(
        token_ids=ids,
        counts=torch.tensor(kept) + 1,
        features=read.features,
        final=read.final,
        anchor=torch.tensor(anchors),  # so that a look-up finds something
    )
    drafter.absorb(state, committed)


def drafts_of(proposal: Proposal) -> list[list[int]]:
    """Drafts of every sequence, without fillers."""
    rows, lengths = proposal.tokens.tolist(), proposal.lengths
    return (
        rows
        if lengths is None
        else [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]
    )
