"""Multi-token prediction: what its rows are made of, and what is carried on."""

import pytest
import torch

from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.mtp import MtpDrafter
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import Target
from tests.draft.drafters import VOCAB, mtp, tiny_lm


def test_the_first_step_reads_what_the_targets_head_was_given() -> None:
    drafter = mtp(tiny_lm())
    final = torch.randn(1, 3, 32)
    assert drafter.states(None, final) is final
    assert drafter.layer_ids == ()


def test_later_steps_read_the_output_behind_the_norm() -> None:
    drafter = mtp(tiny_lm(memory=False))
    ids = torch.randint(VOCAB, (1, 6), generator=torch.Generator().manual_seed(0))
    embedded, final = drafter.target.embed(ids), drafter.target.read(ids).final
    seen = []
    drafter.hidden_layernorm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    outputs = list(drafter.unroll(final, embedded))
    assert torch.equal(seen[0], final)
    assert all(torch.equal(read, out) for read, out in zip(seen[1:], outputs, strict=False))


def test_a_row_is_the_projection_of_token_then_state() -> None:
    drafter = mtp(tiny_lm())
    token, state = torch.randn(1, 2, 32), torch.randn(1, 2, 32)
    left, right = drafter.input_proj.weight.split(32, dim=1)
    normed = [values / values.square().mean(-1, keepdim=True).sqrt() for values in (token, state)]
    expected = normed[0] @ left.T + normed[1] @ right.T
    torch.testing.assert_close(drafter.row(token, state).stream, expected, atol=1e-4, rtol=1e-4)


def test_with_one_draft_two_tokens_are_verified_a_round() -> None:
    model = tiny_lm(memory=False)
    greedy = Sampling(temperature=0.0)
    config = GenerationConfig(max_new_tokens=8, sampling=greedy, whole_blocks=True)
    drafter = mtp(model, block_size=1)
    generation = speculative_generate(Target(model), drafter, torch.tensor([[1, 2]]), config)
    assert (generation.frame().proposed == 1).all()
    assert generation.block_size == 1


def test_a_target_of_another_width_is_refused_with_both() -> None:
    with pytest.raises(ValueError, match=r"width; the drafter's config says 16, .* has 32"):
        mtp(tiny_lm(), hidden_size=16)
    with pytest.raises(ValueError, match=r"tapped blocks.*\(\).*\(0,\)"):
        MtpDrafter(mtp(tiny_lm()).config, Target(tiny_lm(), (0,)))
