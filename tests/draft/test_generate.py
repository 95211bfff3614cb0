"""Decoding with drafts: greedy is plain greedy, sequences never meet, limits are kept."""

import functools

import pytest
import torch

from engram_lab.draft.costs import affine
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.oracle import GlobalSearch
from engram_lab.draft.rounds import Generation
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.schedule import FixedLength, PrefixScheduler, Threshold, TopK
from engram_lab.draft.target import Target
from engram_lab.draft.verify import Proposal
from tests.draft.test_target import same, traces
from tests.draft.tiny import FAMILIES, TAPS, drafter_for, family, golden_pair, some_ids

GREEDY = Sampling(temperature=0.0)
SAMPLED = Sampling(temperature=0.8, top_k=20, top_p=0.95)
GOLDEN_TARGET, GOLDEN_DRAFTER, FILE = golden_pair()
TRACES = FILE["greedy_decoding"]
LENGTHS = (3, 9, 1, 6)
each_family = pytest.mark.parametrize("name", FAMILIES)


class Knowing:
    """A drafter that proposes given texts, every `wrong`-th token of them spoilt."""

    block_size, layer_ids = 4, ()

    def __init__(self, texts: list[list[int]], vocab: int, wrong: int = 10**9):
        self.texts, self.vocab, self.wrong = texts, vocab, wrong

    def begin(self, batch: int):
        return {"rows": list(range(batch)), "at": [0] * batch}

    def absorb(self, state, committed):
        state["at"] = [
            at + count for at, count in zip(state["at"], committed.counts.tolist(), strict=True)
        ]

    def propose(self, state, length, sampling, noise):
        drafts = []
        for row, at in zip(state["rows"], state["at"], strict=True):
            text = self.texts[row]
            ahead = range(at + 1, at + 1 + length)
            drafts.append([(text[i] + (i % self.wrong == 0)) % self.vocab for i in ahead])
        return Proposal(tokens=torch.tensor(drafts))

    def select(self, state, rows):
        state["rows"] = [state["rows"][row] for row in rows]
        state["at"] = [state["at"][row] for row in rows]


def prompts(vocab: int = 61, lengths: tuple[int, ...] = LENGTHS) -> list[torch.Tensor]:
    return [some_ids(vocab, length, seed=length) for length in lengths]


def decoded(target: Target, drafter, texts: list, *, schedule=None, **fields) -> Generation:
    settings = {"max_new_tokens": 8, "sampling": GREEDY} | fields
    config = GenerationConfig(**settings)
    return speculative_generate(target, drafter, texts, config, schedule=schedule)


def tokens(generation: Generation) -> list[list[int]]:
    return [row.tolist() for row in generation.token_ids]


@functools.cache
def pair(name: str, context: int = 128, **changes) -> tuple[Target, Drafter]:
    target = Target(family(name, context=context), TAPS)
    return target, drafter_for(target, **changes)


@pytest.mark.parametrize("trace", range(len(TRACES)))
def test_greedy_traces_are_golden(trace: int):
    wanted = TRACES[trace]
    count = len(wanted["output_ids"]) - len(wanted["prompt"])
    generation = decoded(
        GOLDEN_TARGET,
        GOLDEN_DRAFTER,
        [torch.tensor(wanted["prompt"])],
        max_new_tokens=count,
        whole_blocks=True,
        schedule=Threshold(threshold=wanted["threshold"]),
    )
    assert tokens(generation)[0] == wanted["output_ids"][len(wanted["prompt"]) :]
    assert wanted["output_ids"] == wanted["target_greedy_ids"]
    frame = generation.frame()
    # the reference goes on until the anchor reaches the limit, one round more at times
    assert len(wanted["rounds"]) - 1 <= len(frame) <= len(wanted["rounds"])
    for ours, round_, theirs in zip(
        frame.itertuples(), generation.rounds, wanted["rounds"], strict=False
    ):
        verified = theirs["verify_len"]
        assert (ours.proposed, ours.accepted) == (verified, theirs["accepted"])
        drafts = round_.proposal.tokens[0].tolist()
        assert drafts == theirs["draft_tokens_full_block"][:verified]
        confidence = torch.tensor(theirs["confidence_logits_full_block"])
        assert torch.allclose(round_.proposal.confidence[0], confidence, atol=2e-4)
    common = len(frame)
    assert frame["emitted"].tolist() == wanted["acceptance_lengths"][:common]
    assert frame["proposed"].tolist() == wanted["proposal_lengths"][:common]


@each_family
@pytest.mark.parametrize("block", [1, 4])
def test_greedy_output_is_plain_greedy_decoding(name: str, block: int):
    target, drafter = pair(name, block_size=block)
    texts = prompts()
    for text, ours in zip(texts, decoded(target, drafter, texts).token_ids, strict=True):
        logits = target.read(torch.cat([text, ours])[None]).logits[0]
        assert torch.equal(logits[len(text) - 1 : -1].argmax(-1), ours)


@each_family
@pytest.mark.parametrize("wrong", [1, 3, 10**9])
def test_good_drafts_are_taken_and_spoilt_ones_are_not(name: str, wrong: int):
    target = Target(family(name))
    texts = prompts()
    plain = decoded(target, None, texts, max_new_tokens=11)  # one of prefill, two rounds of five
    known = [text.tolist() + row + [0] * 9 for text, row in zip(texts, tokens(plain), strict=True)]
    generation = decoded(target, Knowing(known, 61, wrong), texts, max_new_tokens=11)
    assert tokens(generation) == tokens(plain)
    frame = generation.frame()
    if wrong == 1:
        assert (frame["accepted"] == 0).all()
    if wrong == 10**9:
        assert (frame["emitted"] == 5).all()
        assert generation.accepted_length == 5


@each_family
def test_a_batch_decodes_each_prompt_as_alone(name: str):
    target, drafter = pair(name)
    texts = prompts()
    together = tokens(decoded(target, drafter, texts))
    assert together == [tokens(decoded(target, drafter, [text]))[0] for text in texts]


@each_family
@pytest.mark.parametrize("rule", [None, Threshold(threshold=0.6)], ids=["all", "threshold"])
def test_what_is_sampled_does_not_hang_on_the_neighbours(name: str, rule):
    target, drafter = pair(name)
    texts = prompts()
    whole = tokens(decoded(target, drafter, texts, sampling=SAMPLED, seed=3, schedule=rule))
    others = [some_ids(61, length, seed=50 + length) for length in (12, 2, 5, 4)]
    for kept in (1, 2):
        mixed = [texts[row] if row == kept else others[row] for row in range(4)]
        again = decoded(target, drafter, mixed, sampling=SAMPLED, seed=3, schedule=rule)
        assert tokens(again)[kept] == whole[kept]
    alone = decoded(target, drafter, texts[:1], sampling=SAMPLED, seed=3, schedule=rule)
    assert tokens(alone)[0] == whole[0]


def test_a_seed_repeats_the_output_and_another_changes_it():
    target, drafter = pair("qwen3")
    one, same_seed, other = (
        tokens(decoded(target, drafter, prompts(), sampling=SAMPLED, seed=seed))
        for seed in (1, 1, 2)
    )
    assert one == same_seed != other


@each_family
@pytest.mark.parametrize("chunk", [1, 7, 32])
def test_chunks_of_prefill_change_nothing(name: str, chunk: int):
    target, drafter = pair(name)
    settings = {"sampling": SAMPLED, "max_new_tokens": 4}
    texts = prompts(lengths=(9, 2, 14))
    whole = tokens(decoded(target, drafter, texts, **settings))
    assert tokens(decoded(target, drafter, texts, prefill_chunk=chunk, **settings)) == whole


def test_a_batch_given_as_one_tensor_is_the_list_of_its_rows():
    target, drafter = pair("llama")
    ids = some_ids(61, 3, 5)
    assert tokens(decoded(target, drafter, ids)) == tokens(decoded(target, drafter, list(ids)))


def test_one_token_comes_from_prefill_without_a_round():
    target, drafter = pair("llama")
    generation = decoded(target, drafter, prompts(), max_new_tokens=1)
    assert [len(row) for row in tokens(generation)] == [1] * 4
    assert generation.rounds == []
    assert generation.accepted_length != generation.accepted_length  # nothing to take a mean of
    assert generation.frame().empty


@pytest.mark.parametrize("limit", [2, 3, 7, 11])
def test_no_more_tokens_than_asked_for(limit: int):
    whole = tokens(decoded(GOLDEN_TARGET, GOLDEN_DRAFTER, prompts(20), max_new_tokens=20))
    cut = decoded(GOLDEN_TARGET, GOLDEN_DRAFTER, prompts(20), max_new_tokens=limit)
    assert tokens(cut) == [row[:limit] for row in whole]


def test_a_stop_token_inside_a_draft_ends_the_sequence_there():
    target = Target(family("qwen3"))
    texts = prompts()
    plain = tokens(decoded(target, None, texts, max_new_tokens=20))
    known = [text.tolist() + row + [0] * 9 for text, row in zip(texts, plain, strict=True)]
    stop = plain[0][3]  # the third draft of the first round: prefill gives token 0
    generation = decoded(target, Knowing(known, 61), texts, max_new_tokens=20, stop_ids=(stop,))
    wanted = [row[: row.index(stop) + 1] if stop in row else row for row in plain]
    assert tokens(generation) == wanted
    ended = generation.frame().query("sequence == 0").iloc[-1]
    first = plain[0].index(stop)
    assert ended["stopped"]
    assert ended["emitted"] == ended["accepted"] == ended["proposed"] == (first - 1) % 5 + 1


def test_a_stop_token_from_prefill_or_as_correction_ends_it_too():
    target = Target(family("qwen3"))
    texts = prompts()
    plain = tokens(decoded(target, None, texts, max_new_tokens=8))
    for place in (0, 1):
        stop = plain[2][place]
        rows = tokens(decoded(target, None, texts, max_new_tokens=8, stop_ids=(stop,)))
        assert rows[2] == plain[2][: plain[2].index(stop) + 1]
        spoilt = Knowing([[0] * 40] * 4, 61, wrong=1)
        assert tokens(decoded(target, spoilt, texts, max_new_tokens=8, stop_ids=(stop,))) == rows


@each_family
def test_the_context_is_filled_and_never_exceeded(name: str):
    target, drafter = pair(name, context=24)
    texts = prompts(lengths=(20, 23, 9))
    generation = decoded(target, drafter, texts, max_new_tokens=50)
    # every position is used; the last token needs none, since nothing follows it
    lengths = [len(text) + len(row) for text, row in zip(texts, tokens(generation), strict=True)]
    assert lengths == [25, 25, 25]
    assert tokens(generation) == tokens(decoded(target, None, texts, max_new_tokens=50))


@pytest.mark.parametrize("length", [0, 1, 2])
def test_fewer_drafts_a_round_give_the_same_text(length: int):
    texts = prompts(20)
    whole = decoded(GOLDEN_TARGET, GOLDEN_DRAFTER, texts)
    short = decoded(GOLDEN_TARGET, GOLDEN_DRAFTER, texts, length=length, whole_blocks=True)
    assert tokens(short) == tokens(whole)
    assert (short.frame()["proposed"] == length).all()


RULES = {
    "none": FixedLength(length=0),
    "two": FixedLength(length=2),
    "threshold": Threshold(threshold=0.4),
    "early stop": PrefixScheduler(costs=affine(base=1.0, per_token=0.05)),
    "stale capacity": TopK(costs=affine(base=1.0, per_token=0.05)),
}


@pytest.mark.parametrize("rule", RULES)
def test_schedules_change_the_rounds_and_not_the_text(rule: str):
    texts = prompts(20)
    settings = {"max_new_tokens": 20, "whole_blocks": True}
    whole = decoded(GOLDEN_TARGET, GOLDEN_DRAFTER, texts, **settings)
    cut = decoded(GOLDEN_TARGET, GOLDEN_DRAFTER, texts, schedule=RULES[rule], **settings)
    assert tokens(cut) == tokens(whole)
    assert cut.frame()["proposed"].max() <= 4
    longest = [int(entry.proposal.lengths.max()) for entry in cut.rounds]
    assert [
        entry.proposal.tokens.shape[1] for entry in cut.rounds
    ] == longest  # cut before the pass


def test_a_rule_with_a_memory_is_told_who_is_there_and_starts_afresh():
    seen = []

    class Watching(TopK):
        def __call__(self, confidences, *, requests=None):
            seen.append(list(requests))
            return super().__call__(confidences, requests=requests)

    rule = Watching(costs=affine(base=1.0, per_token=0.05))
    texts = prompts(20)
    stop = tokens(decoded(GOLDEN_TARGET, None, texts))[1][4]
    settings = {"sampling": SAMPLED, "stop_ids": (stop,), "schedule": rule, "max_new_tokens": 20}
    once = decoded(GOLDEN_TARGET, GOLDEN_DRAFTER, texts, **settings)
    assert seen == [entry.sequences for entry in once.rounds]
    assert len(set(map(len, seen))) > 1  # some left before others
    assert tokens(decoded(GOLDEN_TARGET, GOLDEN_DRAFTER, texts, **settings)) == tokens(once)


@each_family
@pytest.mark.parametrize("training", [False, True])
def test_target_and_drafter_are_left_as_they_were(name: str, training: bool):
    target, drafter = pair(name)
    target.model.train(training)
    before, own = traces(target.model), traces(drafter)
    decoded(target, drafter, prompts())
    assert same(before, traces(target.model))
    assert same(own, traces(drafter))


def test_they_are_left_as_they_were_by_a_generation_that_fails():
    target, drafter = pair("memory")
    target.model.train()
    before = traces(target.model)

    def failing(confidence: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        decoded(target, drafter, prompts(), schedule=failing)
    with pytest.raises(ValueError, match="input_ids must lie in 0..60"):
        decoded(target, drafter, [torch.tensor([5, 61])])
    assert same(before, traces(target.model))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("texts", "fields", "told"),
    [
        ([], {}, r"at least one prompt.*\[\]"),
        ([torch.tensor([], dtype=torch.int64)], {}, r"at least one token; got shapes \[\(0,\)\]"),
        ([torch.zeros(24, dtype=torch.int64)], {}, "context of 24 positions.* has 24 tokens"),
        ([torch.tensor([1])], {"length": 5}, r"block_size \(4\); got 5"),
        ([torch.tensor([1])], {"length": -1}, "length must be at least 0 or None; got -1"),
        ([torch.tensor([1])], {"max_new_tokens": 0}, "max_new_tokens must be at least 1; got 0"),
        ([torch.tensor([1])], {"prefill_chunk": 0}, "prefill_chunk must be at least 1; got 0"),
    ],
)
def test_bad_requests_are_refused_with_both_numbers(texts: list, fields: dict, told: str):
    target, drafter = pair("llama", context=24)
    with pytest.raises(ValueError, match=told):
        decoded(target, drafter, texts, **fields)


def test_a_target_that_shows_other_blocks_is_refused():
    target, drafter = pair("llama")
    with pytest.raises(ValueError, match=r"blocks \(0, 1\), the target shows \(0,\)"):
        decoded(Target(target.model, (0,)), drafter, prompts())


def test_schedules_that_are_not_causal_or_have_nothing_to_go_by_are_refused():
    target, drafter = pair("llama")
    bound = GlobalSearch(costs=affine(base=1.0, per_token=0.1))
    with pytest.raises(ValueError, match="GlobalSearch lets later drafts decide"):
        decoded(target, drafter, prompts(), schedule=bound)
    silent = drafter_for(target, confidence=False)
    with pytest.raises(ValueError, match="Drafter gives none"):
        decoded(target, silent, prompts(), schedule=Threshold(threshold=0.5))
    with pytest.raises(ValueError, match=r"4 numbers in 0\.\.4"):
        decoded(target, drafter, prompts(), schedule=lambda c: torch.tensor([5, 1, 1, 1]))


def test_a_schedule_without_a_drafter_is_refused():
    target, _, _ = golden_pair()
    with pytest.raises(ValueError, match="without a drafter there are none"):
        speculative_generate(target, None, [torch.tensor([1, 2])], schedule=lambda chances: chances)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_no_draft_is_verified_that_has_no_room(sampling):
    target, drafter = pair("memory")
    settings = {"max_new_tokens": 6, "sampling": sampling}
    found = decoded(target, drafter, prompts(), **settings)
    frame = found.frame()
    before = 1 + frame.groupby("sequence").emitted.cumsum() - frame.emitted
    assert (frame.proposed <= (6 - before - 1).clip(upper=drafter.block_size)).all()
    assert all(len(text) == 6 for text in tokens(found))
    whole = decoded(target, drafter, prompts(), whole_blocks=True, **settings).frame()
    assert (whole.proposed == drafter.block_size).all()


def test_room_for_one_token_takes_no_draft():
    target, drafter = pair("memory")
    found = decoded(target, drafter, prompts(), max_new_tokens=2)
    assert [entry.proposal.tokens.shape[1] for entry in found.rounds] == [0]
    assert tokens(found) == tokens(decoded(target, None, prompts(), max_new_tokens=2))
