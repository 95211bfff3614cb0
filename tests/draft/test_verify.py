"""Verification keeps the target's law: golden cases, enumerated chains, refusals."""

import functools
import itertools

import pytest
import torch

from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.verify import Proposal, verify, verify_greedy
from tests.draft.tiny import golden

GOLDEN = golden("rejection")
CHAIN = GOLDEN["two_step_chain"]
SINGLE = {case["name"]: case for case in GOLDEN["single_position"]}
DOUBLE = {"dtype": torch.float64}


class Given(Noise):
    """Noise with given numbers: one row for every sequence of a batch."""

    def __init__(self, accept: torch.Tensor, correct: torch.Tensor):
        self.numbers = {"accept": accept, "correct": correct[:, None]}

    def uniform(self, purpose: str, count: int, *, used: torch.Tensor | None = None):
        return self.numbers[purpose][:, :count]


def bisected(happens, count: int) -> torch.Tensor:
    """For each of `count` things, the number up to which it happens, to the last digit."""
    low, high = torch.zeros(count, **DOUBLE), torch.ones(count, **DOUBLE)
    for _ in range(48):
        middle = (low + high) / 2
        yes = happens(middle)
        low, high = torch.where(yes, middle, low), torch.where(yes, high, middle)
    return (low + high) / 2


def outcomes(rows: list, tokens: list, probs: list | None, length: int) -> dict:
    """Exact chance of every (accepted, next token), found from outside by turning the noise."""
    vocab = len(rows[0])
    block = len(tokens)

    def verified(accept: torch.Tensor, correct: torch.Tensor):
        batch = len(correct)
        proposal = Proposal(
            tokens=torch.tensor([tokens]).expand(batch, block),
            probs=None if probs is None else torch.tensor([probs], **DOUBLE).expand(batch, -1, -1),
        ).cut(torch.full((batch,), length))
        target = torch.tensor([rows[: length + 1]], **DOUBLE).expand(batch, -1, -1)
        return verify(target, proposal, noise=Given(accept, correct))

    found, reached = {}, 1.0
    for accepted in range(length + 1):
        chance = 0.0

        def up_to(number: torch.Tensor, kept: int = accepted) -> torch.Tensor:
            accept = torch.zeros(1, block, **DOUBLE)
            accept[:, kept : kept + 1] = number
            return verified(accept, torch.zeros(1, **DOUBLE)).accepted > kept

        if accepted < length:
            chance = float(bisected(up_to, 1))
        if chance < 1 - 1e-12:
            stops = torch.zeros(vocab, block, **DOUBLE)
            stops[:, accepted : accepted + 1] = 1 - 1e-13

            def not_above(number: torch.Tensor, stops: torch.Tensor = stops) -> torch.Tensor:
                return verified(stops, number).next_token <= torch.arange(vocab)

            mass = bisected(not_above, vocab).diff(prepend=torch.zeros(1, **DOUBLE))
            for token in range(vocab):
                found[accepted, token] = reached * (1 - chance) * float(mass[token])
        reached *= chance
    return found


@pytest.mark.parametrize("name", SINGLE)
def test_single_positions_are_golden(name: str):
    case = SINGLE[name]
    p, q = case["p_target"], case["q_draft"]
    output = torch.zeros(len(p), **DOUBLE)
    for token in range(len(p)):
        if q[token] == 0:
            continue
        law = outcomes([p, p], [token], [q], 1)
        refused = sum(chance for (accepted, _), chance in law.items() if not accepted)
        assert 1 - refused == pytest.approx(case["accept_prob_per_token"][token], abs=1e-7)
        output[token] += q[token] * (1 - refused)
        for word in range(len(p)):
            chance = law.get((0, word), 0.0)
            output[word] += q[token] * chance
            if refused:
                assert chance / refused == pytest.approx(case["residual"][word], abs=1e-7)
    assert torch.allclose(output, torch.tensor(case["output_marginal"], **DOUBLE), atol=1e-9)
    tokens = torch.tensor([[q.index(max(q))]])
    proposal = Proposal(tokens=tokens, probs=torch.tensor([[q]], **DOUBLE))
    found = verify(torch.tensor([[p, p]], **DOUBLE), proposal, noise=Noise(1, 0))
    assert float(found.expected) == pytest.approx(case["alpha"], abs=1e-9)
    assert case["alpha"] == pytest.approx(case["one_minus_half_l1"], abs=1e-9)


@functools.cache
def chain_outcomes(first: int, second: int, length: int) -> dict:
    rows = [CHAIN["p1"], CHAIN["p2_given_x1"][first], [1 / 3] * 3]
    return outcomes(rows, [first, second], [CHAIN["q1"], CHAIN["q2_given_x1"][first]], length)


POLICIES = {
    "verify_0": lambda first, second: 0,
    "verify_1": lambda first, second: 1,
    "verify_2": lambda first, second: 2,
    "causal_len2_only_if_x1_is_0": lambda first, second: 2 if first == 0 else 1,
    "NONCAUSAL_len1_only_if_x1_is_0_else_0": lambda first, second: int(first == 0),
    "NONCAUSAL_len2_only_if_x2_is_0_else_1": lambda first, second: 2 if second == 0 else 1,
}


@pytest.mark.parametrize("name", CHAIN["policies"])
def test_the_joint_law_of_two_tokens_is_golden_for_every_length_rule(name: str):
    joint = torch.zeros(3, 3, **DOUBLE)
    for first, second in itertools.product(range(3), repeat=2):
        weight = CHAIN["q1"][first] * CHAIN["q2_given_x1"][first][second]
        length = POLICIES[name](first, second)
        for (accepted, token), chance in chain_outcomes(first, second, length).items():
            if accepted == 0:  # one token came out; the target goes on from it
                behind = torch.tensor(CHAIN["p2_given_x1"][token], **DOUBLE)
                joint[token] += weight * chance * behind
            else:
                joint[first, token if accepted == 1 else second] += weight * chance
    golden_law = torch.tensor(CHAIN["policies"][name]["law"], **DOUBLE)
    assert torch.allclose(joint, golden_law, atol=1e-9)
    distance = (joint - torch.tensor(CHAIN["target_joint"], **DOUBLE)).abs().sum() / 2
    assert distance == pytest.approx(CHAIN["policies"][name]["tv_from_target"], abs=1e-9)
    assert (distance > 0.1) == name.startswith("NONCAUSAL")


@pytest.mark.parametrize("case", range(3))
def test_drafting_at_another_temperature_keeps_the_targets_law(case: int):
    file = GOLDEN["draft_temperature_mismatch_still_lossless_if_q_matches"]
    wanted = file["cases"][case]
    logits = torch.tensor(file["draft_logits"], **DOUBLE)
    q = Sampling(temperature=wanted["draft_temperature"]).probs(logits).tolist()
    p = Sampling().probs(torch.tensor(file["target_logits"], **DOUBLE)).tolist()
    assert q == pytest.approx(wanted["q_draft"], abs=1e-6)
    output = torch.zeros(5, **DOUBLE)
    for token in range(5):
        law = outcomes([p, p], [token], [q], 1)
        refused = sum(chance for (accepted, _), chance in law.items() if not accepted)
        output[token] += q[token] * (1 - refused)
        for word in range(5):
            output[word] += q[token] * law.get((0, word), 0.0)
    assert output.tolist() == pytest.approx(p, abs=1e-9)
    assert p == pytest.approx(wanted["output_marginal"], abs=1e-6)


def test_a_certain_draft_is_kept_as_often_as_the_target_says_it():
    law = outcomes([[0.5, 0.3, 0.2]] * 2, [1], None, 1)
    assert [law[0, word] for word in range(3)] == pytest.approx([0.5, 0.0, 0.2], abs=1e-9)
    assert sum(law[1, word] for word in range(3)) == pytest.approx(0.3, abs=1e-9)


def test_a_residual_without_mass_falls_back_to_the_target():
    p, q = [0.5, 0.5 - 1e-10, 1e-10], [0.5, 0.5, 0.0]
    law = outcomes([p, p], [1], [q], 1)
    refused = sum(law[0, word] for word in range(3))
    assert [law[0, word] / refused for word in range(3)] == pytest.approx(p, abs=1e-3)


def test_greedy_verification_is_exact_matching():
    logits = torch.tensor([[[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    probs = Sampling(temperature=0.0).probs(logits)
    for tokens in itertools.product(range(3), repeat=2):
        found = verify(probs, Proposal(tokens=torch.tensor([tokens])), noise=Noise(1, 0))
        matches = 2 if tokens == (1, 0) else int(tokens[0] == 1)
        assert int(found.accepted) == matches
        assert int(found.next_token) == [1, 0, 2][matches]


def sequences(law: torch.Tensor, count: int) -> torch.Tensor:
    return torch.multinomial(law, count, replacement=True)


class Uniforms(Noise):
    """Noise of one stream for all sequences, since a generator for each would take long."""

    def __init__(self, batch: int):
        self.batch = batch

    def uniform(self, purpose: str, count: int, *, used: torch.Tensor | None = None):
        return torch.rand(self.batch, count)


def test_two_hundred_thousand_rounds_have_the_golden_joint_law():
    # the likeliest cell is 0.3, of which five deviations are 0.0051
    count = CHAIN["sampling_test"]["draws"]
    p1, q1 = torch.tensor(CHAIN["p1"]), torch.tensor(CHAIN["q1"])
    p2, q2 = torch.tensor(CHAIN["p2_given_x1"]), torch.tensor(CHAIN["q2_given_x1"])
    first = torch.multinomial(q1, count, replacement=True)
    second = torch.multinomial(q2[first], 1)[:, 0]
    proposal = Proposal(
        tokens=torch.stack([first, second], 1),
        probs=torch.stack([q1.expand(count, 3), q2[first]], 1),
    )
    bonus = torch.full((count, 3), 1 / 3)  # behind two drafts, not looked at
    rows = torch.stack([p1.expand(count, 3), p2[first], bonus], 1)
    found = verify(rows, proposal, noise=Uniforms(count))
    tokens = torch.cat([proposal.tokens, torch.zeros(count, 1, dtype=torch.int64)], 1)
    tokens[torch.arange(count), found.accepted] = found.next_token
    alone = found.accepted == 0  # these rounds gave one token; the target goes on from it
    tokens[alone, 1] = torch.multinomial(p2[found.next_token[alone]], 1)[:, 0]
    shares = (tokens[:, 0] * 3 + tokens[:, 1]).bincount(minlength=9).view(3, 3) / count
    error = (shares - torch.tensor(CHAIN["target_joint"])).abs()
    assert error.max() < CHAIN["sampling_test"]["max_abs_error_per_cell"]
    assert error.sum() / 2 < 0.006
    emitted = float(found.accepted.double().mean()) + 1
    assert emitted == pytest.approx(CHAIN["expected_tau_verify_2"], abs=0.01)


def test_expected_acceptance_is_zero_behind_what_is_verified():
    probs = torch.tensor([[[0.5, 0.5], [0.9, 0.1]]])
    proposal = Proposal(
        tokens=torch.zeros(1, 2, dtype=torch.int64), probs=probs, lengths=torch.tensor([1])
    )
    found = verify(probs[:, [0, 1, 1]], proposal, noise=Noise(1, 0))
    assert found.expected.tolist() == [[1.0, 0.0]]
    assert int(found.accepted) == 1


def test_the_bonus_is_drawn_from_the_row_behind_the_last_verified_draft():
    certain = torch.eye(4)[[1, 2, 3]][None]  # rows that can only say 1, 2, 3
    tokens = torch.tensor([[1, 2]])
    for length in (0, 1, 2):
        proposal = Proposal(tokens=tokens, lengths=torch.tensor([length]))
        found = verify(certain, proposal, noise=Noise(1, 0))
        assert (int(found.accepted), int(found.next_token)) == (length, length + 1)


def test_a_cut_drops_what_no_sequence_verifies():
    proposal = Proposal(tokens=torch.zeros(2, 4, dtype=torch.int64), probs=torch.ones(2, 4, 3))
    cut = proposal.cut(torch.tensor([1, 3]))
    assert cut.tokens.shape == (2, 3)
    assert cut.probs.shape == (2, 3, 3)
    again = cut.cut(torch.tensor([4, 2]))
    assert again.lengths.tolist() == [1, 2]  # never more than the drafter meant


def test_an_empty_proposal_is_a_plain_step():
    proposal = Proposal(tokens=torch.zeros(2, 0, dtype=torch.int64))
    found = verify(torch.eye(3)[:2, None], proposal, noise=Noise(2, 0))
    assert found.accepted.tolist() == [0, 0]
    assert found.next_token.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("rows", "fields", "told"),
    [
        (2, {}, r"\(1, 3\) for drafts of shape \(1, 2\); got \(1, 2\)"),
        (3, {"probs": torch.ones(1, 2, 6)}, "distributions have 6 entries, the target's 5"),
        (3, {"lengths": torch.tensor([3])}, r"1 numbers in 0\.\.2.*got \[3\]"),
        (3, {"lengths": torch.tensor([-1])}, r"in 0\.\.2.*got \[-1\]"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_both_numbers(
    rows: int, fields: dict, told: str
):
    proposal = Proposal(tokens=torch.zeros(1, 2, dtype=torch.int64), **fields)
    with pytest.raises(ValueError, match=told):
        verify(torch.full((1, rows, 5), 0.2), proposal, noise=Noise(1, 0))


@pytest.mark.parametrize("block", [0, 1, 5])
@pytest.mark.parametrize("cut", [False, True])
def test_greedy_verification_is_that_of_one_hot_rows(block, cut):
    generator = torch.Generator().manual_seed(block)
    logits = torch.randn(64, block + 1, 3, generator=generator)
    proposal = Proposal(
        tokens=torch.randint(3, (64, block), generator=generator),
        lengths=torch.randint(block + 1, (64,), generator=generator) if cut else None,
    )
    found = verify_greedy(logits, proposal)
    rows = Sampling(temperature=0.0).probs(logits)
    wanted = verify(rows, proposal, noise=Noise(64, 0))
    for name in ("accepted", "next_token", "expected"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


def test_greedy_verification_refuses_drawn_drafts():
    drawn = Proposal(tokens=torch.tensor([[1]]), probs=torch.full((1, 1, 3), 1 / 3))
    with pytest.raises(ValueError, match=r"Proposal\.probs is given, use verify"):
        verify_greedy(torch.zeros(1, 2, 3), drawn)
