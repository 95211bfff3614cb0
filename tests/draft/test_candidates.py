"""Our drafters inside `model.generate`: exact, lossless, and without a trace afterwards."""

import inspect
from typing import Any

import pytest
import torch
from transformers import GenerationMixin
from transformers.generation import utils as library

from engram_lab.draft.candidates import DrafterCandidates, generate_with
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.lookup import NgramLookup
from engram_lab.draft.proposer import Committed
from engram_lab.draft.sampling import Noise, Sampling, draw
from engram_lab.draft.target import Target
from engram_lab.draft.verify import Proposal
from tests.draft.tiny import FAMILIES, drafter_for, family, golden_pair, some_ids

GREEDY = {"do_sample": False, "max_new_tokens": 12}


class Backwards:
    """A rule that says of itself that it is not causal."""

    causal = False

    def __call__(self, confidence: torch.Tensor) -> torch.Tensor:
        """All drafts."""
        return torch.full((len(confidence),), confidence.shape[1])


class Prompter:
    """Drafts a known continuation, every fourth token of it wrong; keeps what it is told."""

    block_size = 5

    def __init__(self, continuation: list[int], layer_ids: tuple[int, ...] = (0, 1)):
        self.continuation, self.layer_ids = continuation, layer_ids
        self.told: list[Committed] = []
        self.told_tokens = 0

    def begin(self, batch: int) -> None:
        """No state beside what is kept for the test."""

    def absorb(self, state: Any, committed: Committed) -> None:
        """Keep it."""
        self.told.append(committed)
        self.told_tokens += int(committed.counts)

    def propose(self, state: Any, length: int, sampling: Sampling, noise: Noise) -> Proposal:
        """What comes next, with mistakes."""
        at = self.told_tokens + 1  # behind the anchor
        right = (self.continuation[at:] + [0] * length)[:length]
        wrong = [t if (at + i) % 4 else (t + 1) % 5 for i, t in enumerate(right)]
        return Proposal(tokens=torch.tensor([wrong]))

    def select(self, state: Any, rows: list[int]) -> None:
        """One sequence only."""


def plain(model: Any, ids: torch.Tensor, **options: Any) -> torch.Tensor:
    """What `generate` gives without drafts."""
    return model.generate(ids, pad_token_id=0, **options)


def prompt(model: Any, length: int = 9) -> torch.Tensor:
    """Some ids of a model."""
    return some_ids(model.get_input_embeddings().num_embeddings, 1, length)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("layout", [True, False])
def test_greedy_output_is_that_of_plain_generate(name: str, layout: bool):
    model = family(name)
    ids = prompt(model)
    drafter = drafter_for(Target(model, (0, 1)), sample_from_anchor=layout)
    found = generate_with(model, drafter, ids, pad_token_id=0, **GREEDY)
    assert torch.equal(found, plain(model, ids, **GREEDY))


@pytest.mark.parametrize("name", FAMILIES)
def test_good_and_bad_drafts_leave_greedy_output_alone_and_states_are_told_once(name: str):
    model = family(name)
    ids = prompt(model)
    expected = plain(model, ids, **GREEDY)
    target = Target(model, (0, 1))
    drafter = Prompter(expected[0].tolist())
    candidates = DrafterCandidates(target, drafter)
    assert torch.equal(candidates.generate(ids, pad_token_id=0, **GREEDY), expected)
    assert candidates.frame().accepted.sum() > 4
    told = torch.cat([c.token_ids for c in drafter.told], dim=1)
    assert torch.equal(told, expected[:, : told.shape[1]])
    read = target.read(told)
    features = torch.cat([c.features for c in drafter.told], dim=1)
    final = torch.cat([c.final for c in drafter.told], dim=1)
    assert torch.allclose(features, read.features, atol=2e-4)
    assert torch.allclose(final, read.final, atol=2e-4)


@pytest.mark.parametrize("case", [0, 1, 2, 3])
def test_rounds_are_those_of_our_own_decoding_with_and_without_a_length_rule(case: int):
    target, drafter, file = golden_pair()
    trace = file["greedy_decoding"][case]
    threshold = trace["threshold"]

    def rule(confidence: torch.Tensor) -> torch.Tensor:
        low = confidence < threshold
        return torch.where(low.any(1), low.int().argmax(1), confidence.shape[1])

    ids = torch.tensor([trace["prompt"]])
    count = len(trace["output_ids"])
    candidates = DrafterCandidates(target, drafter, schedule=rule)
    found = candidates.generate(ids, do_sample=False, max_new_tokens=count)
    assert found[0].tolist()[:count] == trace["output_ids"]
    frame = candidates.frame()
    whole = len(trace["acceptance_lengths"]) - 1  # the length limit cuts the last round
    assert frame.emitted.tolist()[:whole] == trace["acceptance_lengths"][:whole]
    assert frame.proposed.tolist()[:whole] == trace["proposal_lengths"][:whole]


def test_a_block_longer_than_the_memory_usually_rewinds_is_taken_back():
    model = family("memory")
    drafter = drafter_for(Target(model, (0, 1)), block_size=20)
    ids = prompt(model)
    options = {"do_sample": False, "max_new_tokens": 28}
    assert torch.equal(generate_with(model, drafter, ids, **options), plain(model, ids, **options))


def test_an_end_of_sequence_inside_the_drafts_ends_the_text():
    model = family("qwen3")
    ids = prompt(model)
    expected = plain(model, ids, **GREEDY)
    options = GREEDY | {"eos_token_id": int(expected[0, ids.shape[1] + 3]), "pad_token_id": 0}
    found = generate_with(model, Prompter(expected[0].tolist()), ids, **options)
    assert torch.equal(found, model.generate(ids, **options))


def test_a_look_up_that_finds_nothing_proposes_nothing():
    model = family("llama")
    ids = torch.arange(1, 10)[None]  # generate takes the padding id in a prompt for padding
    candidates = DrafterCandidates(Target(model), NgramLookup(block_size=3))
    assert torch.equal(
        candidates.generate(ids, pad_token_id=0, **GREEDY), plain(model, ids, **GREEDY)
    )
    assert candidates.frame().proposed[0] == 0


def test_penalties_apply_to_the_target_and_leave_greedy_output_exact():
    target, drafter, _ = golden_pair()
    ids = some_ids(19, 1, 6)
    options = GREEDY | {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2}
    found = generate_with(target.model, drafter, ids, **options)
    assert torch.equal(found, plain(target.model, ids, **options))


def test_the_handed_logits_are_those_of_the_distributions_drafts_were_drawn_from(
    monkeypatch: pytest.MonkeyPatch,
):
    target, drafter, _ = golden_pair()
    given, handed = [], []
    propose, speculative = drafter.propose, library._speculative_sampling

    def watched(*args: Any) -> Proposal:
        given.append((propose(*args), args[2]))
        return given[-1][0]

    def spied(ids: torch.Tensor, logits: torch.Tensor, *rest: Any, **options: Any) -> Any:
        handed.append((ids[:, -logits.shape[1] :], logits))
        return speculative(ids, logits, *rest, **options)

    monkeypatch.setattr(drafter, "propose", watched)
    monkeypatch.setattr(library, "_speculative_sampling", spied)
    options = {"do_sample": True, "temperature": 0.8, "top_k": 6, "top_p": 0.9}
    generate_with(target.model, drafter, some_ids(19, 1, 6), max_new_tokens=20, **options)
    assert len(given) == len(handed) > 3
    for (proposal, sampling), (tokens, logits) in zip(given, handed, strict=True):
        assert sampling == Sampling(temperature=0.8, top_k=6, top_p=0.9)
        assert torch.equal(tokens, proposal.tokens)
        assert torch.allclose(logits.softmax(-1), proposal.probs, atol=1e-6)


def test_the_librarys_sampling_has_exactly_the_targets_law_with_what_we_hand_over(
    monkeypatch: pytest.MonkeyPatch,
):
    generator = torch.Generator().manual_seed(4)
    vocab = 4
    first, then = (torch.randn(n, vocab, generator=generator) for n in (1, vocab))
    draft_first = torch.tensor([[0.5, 0.3, 0.2, 0.0]])  # one token is never drafted
    draft_then = torch.softmax(torch.randn(vocab, vocab, generator=generator), dim=-1)
    p_first, p_then = first.softmax(-1)[0], then.softmax(-1)
    law, law_then = torch.zeros(vocab), torch.zeros(vocab, vocab)
    kept = torch.zeros(vocab)
    for a in range(vocab):
        for b in range(vocab):
            chance = float(draft_first[0, a] * draft_then[a, b])
            if not chance:
                continue
            proposal = Proposal(
                tokens=torch.tensor([[a, b]]),
                probs=torch.stack([draft_first[0], draft_then[a]])[None],
            )
            ratios = [p_first[a] / draft_first[0, a], p_then[a, b] / draft_then[a, b]]
            target = torch.stack([first[0], then[a], torch.zeros(vocab)])[None]
            for count, weight, source in outcomes(proposal, target, ratios, monkeypatch):
                if count == 0:
                    law += chance * weight * source
                    continue
                law[a] += chance * weight
                kept[a] += chance * weight
                second = source if count == 1 else torch.eye(vocab)[b]
                law_then[a] += chance * weight * second
    assert torch.allclose(law, p_first, atol=1e-6)
    seen = kept > 0
    assert torch.allclose((law_then / kept[:, None])[seen], p_then[seen], atol=1e-6)


def outcomes(
    proposal: Proposal, target: torch.Tensor, ratios: list, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, float, torch.Tensor]]:
    """Drafts kept by the library, the chance of it, and what it then draws from; all of them."""
    candidates = DrafterCandidates(*golden_pair()[:2])
    logits = candidates._logits(proposal)
    chances = [min(1.0, float(ratio)) for ratio in ratios]
    found = []
    for count in range(3):
        uniform = torch.tensor([0.0] * count + [1.0] * (2 - count))
        weight = float(torch.tensor([*chances[:count], 1.0]).prod())
        weight *= 1 - chances[count] if count < 2 else 1.0
        if weight == 0:
            continue
        drawn: list[torch.Tensor] = []
        with monkeypatch.context() as patch:
            patch.setattr(torch, "rand_like", lambda like, u=uniform: u.view_as(like))
            patch.setattr(torch, "multinomial", spy(drawn))
            _, kept = library._speculative_sampling(proposal.tokens, logits, 2, target)
        assert int(kept) == count
        found.append((count, weight, drawn[0][0]))
    return found


def spy(drawn: list[torch.Tensor]) -> Any:
    """A `multinomial` that notes its distribution and draws the first token."""

    def multinomial(probs: torch.Tensor, num_samples: int) -> torch.Tensor:
        drawn.append(probs)
        return torch.zeros(len(probs), num_samples, dtype=torch.int64)

    return multinomial


def test_a_draft_without_a_distribution_is_handed_over_as_certain():
    target, drafter, _ = golden_pair()
    logits = DrafterCandidates(target, drafter)._logits(Proposal(tokens=torch.tensor([[3, 7]])))
    assert torch.equal(logits.softmax(-1)[0], torch.eye(20)[[3, 7]])


def test_sampled_text_of_our_model_follows_the_seed_and_takes_certain_drafts():
    model = family("memory")
    ids = prompt(model)
    drafters = (drafter_for(Target(model, (0, 1))), Prompter(ids[0].tolist()))
    options = {"do_sample": True, "temperature": 5.0, "max_new_tokens": 10}
    for drafter in drafters:
        texts = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            drafter.told_tokens = 0
            texts.append(generate_with(model, drafter, ids, **options))
        assert torch.equal(texts[0], texts[1])
        assert not torch.equal(texts[0], texts[2])


def test_drafts_are_drawn_as_draw_draws_them_from_the_handed_distribution():
    target, drafter, _ = golden_pair()
    state = drafter.begin(1)
    read = target.read(some_ids(19, 1, 6))
    drafter.absorb(
        state,
        Committed(
            token_ids=some_ids(19, 1, 6),
            counts=torch.tensor([6]),
            features=read.features,
            final=read.final,
            anchor=torch.tensor([4]),
        ),
    )
    proposal = drafter.propose(state, 4, Sampling(), Noise(1, 9))
    uniform = Noise(1, 9).uniform("draft", 4)
    assert torch.equal(draw(proposal.probs, uniform), proposal.tokens)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was_also_after_an_exception(fails: bool):
    model = family("qwen3").train()
    drafter = drafter_for(Target(model, (0, 1)))
    before = hooks(model)
    if fails:
        drafter.propose = None
        with pytest.raises(TypeError):
            generate_with(model, drafter, prompt(model), **GREEDY)
    else:
        generate_with(model, drafter, prompt(model), **GREEDY)
    assert hooks(model) == before
    assert model.training
    assert "_get_candidate_generator" not in vars(model)


def hooks(model: Any) -> int:
    """How many hooks hang on a model."""
    modules = list(model.modules())
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)


def test_the_library_has_no_public_place_for_a_candidate_generator():
    """When this fails, give the generator there, and leave the private method alone."""
    parameters = inspect.signature(GenerationMixin.generate).parameters
    assert not [name for name in parameters if "candidate" in name]
    source = inspect.getsource(GenerationMixin._assisted_decoding)
    assert "self._get_candidate_generator(" in source
    assert "only supported for batch_size = 1" in source


def test_what_generate_cannot_draft_for_is_refused():
    model = family("qwen3")
    drafter = drafter_for(Target(model, (0, 1)))
    ids = prompt(model)
    with pytest.raises(ValueError, match="one sequence at a time.*got 2"):
        generate_with(model, drafter, ids.repeat(2, 1), **GREEDY)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    with pytest.raises(ValueError, match="got 2 of padding"):
        generate_with(model, drafter, ids, attention_mask=mask, **GREEDY)
    with pytest.raises(ValueError, match="got assistant_model"):
        generate_with(model, drafter, ids, assistant_model=model, **GREEDY)
    with pytest.raises(ValueError, match="got num_beams"):
        generate_with(model, drafter, ids, num_beams=2, **GREEDY)
    cache = model(ids, use_cache=True).cache
    with pytest.raises(ValueError, match="already holds 9 whose states are gone"):
        generate_with(model, drafter, torch.cat([ids, ids], 1), cache=cache, **GREEDY)
    with pytest.raises(ValueError, match="reads the target's blocks"):
        DrafterCandidates(Target(model, (0,)), drafter)
    silent = drafter_for(Target(model, (0, 1)), confidence=False)
    with pytest.raises(ValueError, match="Drafter gives none"):
        generate_with(model, silent, ids, schedule=lambda c: torch.ones(1).long(), **GREEDY)


def test_a_rule_that_is_not_causal_is_refused():
    target, drafter, _ = golden_pair()
    with pytest.raises(ValueError, match="Backwards lets later drafts decide"):
        DrafterCandidates(target, drafter, schedule=Backwards())


def test_generate_and_speculative_generate_agree_greedily():
    target, drafter, _ = golden_pair()
    ids = some_ids(19, 1, 6)
    config = GenerationConfig(max_new_tokens=12, sampling=Sampling(temperature=0.0))
    ours = speculative_generate(target, drafter, ids, config)
    found = generate_with(target.model, drafter, ids, **GREEDY)
    assert found[0, 6:].tolist() == ours.token_ids[0].tolist()
