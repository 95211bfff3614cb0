"""Diagnosis of low acceptance: a sound drafter has no cause, and every planted one is named."""

from dataclasses import replace

import pytest
import torch

from engram_lab.draft.drafter import Drafter
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.target import Target
from engram_lab.model.residual import residual_stream
from engram_lab.probes.diagnosis import Diagnosis, diagnose_acceptance
from tests.draft.tiny import TAPS, drafter_for, family, golden_pair, some_ids

SHORT = GenerationConfig(max_new_tokens=6)
IDS = some_ids(61, 2, 16)


class Longer(Drafter):
    """Drafts six tokens, trained on four."""

    block_size = property(lambda self: 6)

    def block(self, state):
        trained, self.config = self.config, replace(self.config, block_size=6)
        try:
            return super().block(state)
        finally:
            self.config = trained


class Early(Drafter):
    """Its slots stand one position early in decoding."""

    def block(self, state):
        right = state.context.positions
        state.context.positions = lambda count: right(count) - 1
        try:
            return super().block(state)
        finally:
            state.context.positions = right


class FirstSlots(Drafter):
    """Reads the anchor's slot for the first draft, though training taught the one behind."""

    def block(self, state):
        trained = self.config
        self.config = replace(trained, block_size=trained.slots, sample_from_anchor=True)
        try:
            hidden, base = super().block(state)
        finally:
            self.config = trained
        return hidden[:, :-1], base[:, :-1]


class Stale(Drafter):
    """Counts rejected drafts as context."""

    def absorb(self, state, committed):
        everything = torch.full_like(committed.counts, committed.token_ids.shape[1])
        super().absorb(state, replace(committed, counts=everything))


class BeforeNorm(Target):
    """Shows the states before the final norm as those that the head reads."""

    def read(self, token_ids, *, document_ids=None):
        raw = residual_stream(self.model, token_ids)[-1]
        return replace(super().read(token_ids), final=raw)


def planted(kind: type[Drafter], **changes: object) -> Diagnosis:
    target = Target(family("qwen3"), TAPS)
    sound = drafter_for(target, **changes)
    drafter = kind(sound.config, target).eval()
    drafter.load_state_dict(sound.state_dict())
    return diagnose_acceptance(target, drafter, IDS, config=SHORT)


def test_a_sound_drafter_has_no_cause():
    for changes in ({}, {"sample_from_anchor": False}, {"sliding_window": 5, "causal_block": True}):
        diagnosis = planted(Drafter, **changes)
        assert diagnosis.causes == [], diagnosis.checks.to_string()
        assert diagnosis.positions["position"].tolist() == [1, 2, 3, 4]


def test_acceptance_stands_beside_the_published_curve_of_the_same_kind_of_drafter():
    for changes, curve in (({"markov_rank": 4}, "DSpark"), ({"markov_rank": 0}, "DFlash")):
        positions = planted(Drafter, **changes).positions
        assert set(positions["published_drafter"]) == {curve}
        curves = positions[["published_math", "published_code", "published_chat"]]
        assert curves.notna().to_numpy().all()


@pytest.mark.parametrize(
    ("kind", "changes", "cause", "measure"),
    [
        (Longer, {}, "block size", 6),
        (Early, {}, "positions", -1),
        (FirstSlots, {"sample_from_anchor": False}, "layout", -1),
        (Stale, {}, "stale context", None),
    ],
)
def test_a_planted_fault_is_named_and_no_other(kind: type, changes: dict, cause: str, measure):
    diagnosis = planted(kind, **changes)
    assert diagnosis.causes == [cause], diagnosis.checks.to_string()
    row = diagnosis.checks.set_index("cause").loc[cause]
    assert measure is None or row["measure"] == measure


def test_a_teacher_before_the_norm_is_named():
    target = BeforeNorm(family("qwen3"), TAPS)
    diagnosis = diagnose_acceptance(target, drafter_for(target), IDS, config=SHORT)
    assert diagnosis.causes == ["teacher"], diagnosis.checks.to_string()


def test_a_trained_drafter_in_the_other_layout_is_named():
    target, drafter, _ = golden_pair()
    ids = speculative_generate(
        target, None, some_ids(20, 4, 2), GenerationConfig(max_new_tokens=30)
    ).token_ids
    ids = torch.stack(ids)
    assert diagnose_acceptance(target, drafter, ids, config=SHORT).causes == []
    swapped = Drafter(replace(drafter.config, sample_from_anchor=False), target)
    swapped.load_state_dict(drafter.state_dict())
    assert diagnose_acceptance(target, swapped, ids, config=SHORT).causes == ["layout flag"]


def test_texts_of_somebody_else_are_told_from_the_targets_own():
    target, drafter, _ = golden_pair()
    ids = some_ids(20, 2, 12)
    prompts = some_ids(20, 8, 3)
    own = speculative_generate(target, None, prompts, GenerationConfig(max_new_tokens=40)).token_ids
    answers = torch.ones(8, 43, dtype=torch.bool)
    answers[:, :3] = False
    rows = {}
    for name, told in (("own", torch.stack(own)), ("other", some_ids(20, 8, 40))):
        training = (torch.cat([prompts, told], dim=1), answers)
        checks = diagnose_acceptance(target, drafter, ids, training=training, config=SHORT).checks
        rows[name] = checks.set_index("cause").loc["data"]
    assert not rows["own"]["found"]
    assert rows["other"]["found"]
    assert rows["other"]["measure"] > 0.5
    assert "nats a token" in rows["other"]["evidence"]


def test_texts_too_short_are_refused_with_both_numbers():
    target = Target(family("qwen3"), TAPS)
    with pytest.raises(ValueError, match="at least 10 tokens.* got 9"):
        diagnose_acceptance(target, drafter_for(target), IDS[:, :9])
