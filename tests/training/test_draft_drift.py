"""A drafter beside a moving target: nothing flows back, policies differ in the drafter alone."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.eagle import EagleConfig
from engram_lab.draft.target import Target
from engram_lab.model import presets
from engram_lab.training import draft_drift
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import load_data, vocab_size
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig, draw_answers, load_answers
from engram_lab.training.draft_drift import POLICIES, Drift, DriftConfig, run_drift
from engram_lab.training.draft_fit import load_or_fit_drafter
from engram_lab.training.draft_loss import DraftLossConfig
from engram_lab.training.fit import load_or_fit
from engram_lab.training.loop import Loop
from engram_lab.training.objective import NextToken

DATA = DataConfig(corpus="d1", train_tokens=4_000, eval_tokens=1_000, document_length=48)
TARGET = RunConfig(
    model=presets.tiny(vocab_size(DATA)).replace(num_hidden_layers=3, moe=None),
    data=DATA,
    train=TrainConfig(batch_size=8, seq_len=48, steps=6),
)
SHAPE = {
    "vocab_size": TARGET.model.vocab_size,
    "hidden_size": 32,
    "target_depth": 3,
    "target_layer_ids": (0, 1),
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_size": 16,
    "intermediate_size": 64,
    "block_size": 4,
}
DRAFTER = DraftRunConfig(
    target=TARGET,
    drafter=DraftConfig(**SHAPE, mask_token_id=3, markov_rank=8, confidence=True),
    loss=DraftLossConfig(num_anchors=4),
    answers=AnswerConfig(rows=8, prompt_tokens=4, answer_tokens=12),
    train=draft_train_config(batch_size=4, steps=2),
)


def config(**changes: object) -> DriftConfig:
    settings = {
        "drafter": DRAFTER,
        "onto": replace(DATA, seed=5),
        "move": TrainConfig(batch_size=4, seq_len=48, steps=4, lr=1e-2, schedule="constant"),
        "follow": draft_train_config(batch_size=4, schedule="constant"),
        "refresh_every": 2,
        "measure_every": 2,
        "answers": AnswerConfig(rows=4, prompt_tokens=4, answer_tokens=12),
        "held_out": AnswerConfig(rows=3, prompt_tokens=4, answer_tokens=12, split="validation"),
        "anchors": 3,
    }
    return DriftConfig(**(settings | changes))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drift")


@pytest.fixture(autouse=True)
def _home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(home))


@pytest.fixture(scope="module")
def drifts(home: Path) -> dict[str, Drift]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGRAM_LAB_HOME", str(home))
        return {p: run_drift(config(policy=p), progress=False) for p in POLICIES}


def test_the_targets_path_is_the_same_whatever_becomes_of_the_drafter(
    drifts: dict[str, Drift],
) -> None:
    frozen = drifts["frozen"].model.state_dict()
    for policy in ("refreshed", "beside"):
        own = drifts[policy].model.state_dict()
        assert all(torch.equal(own[name], value) for name, value in frozen.items())


def test_policies_that_follow_make_the_same_number_of_updates(drifts: dict[str, Drift]) -> None:
    updates = {policy: drift.frame["draft_updates"].max() for policy, drift in drifts.items()}
    assert updates == {"frozen": 0, "refreshed": 4, "beside": 4}


def test_a_frozen_drafter_is_the_one_that_was_trained(drifts: dict[str, Drift]) -> None:
    trained = load_or_fit_drafter(DRAFTER, progress=False)
    kept = {policy: _same(drift.drafter, trained.drafter) for policy, drift in drifts.items()}
    assert kept == {"frozen": True, "refreshed": False, "beside": False}


def test_a_refreshed_drafter_is_measured_before_and_after(drifts: dict[str, Drift]) -> None:
    def course(policy: str) -> list[tuple[int, int]]:
        new = drifts[policy].frame.query("text == 'new'")
        return list(zip(new["target_step"], new["draft_updates"], strict=True))

    assert course("frozen") == [(0, 0), (2, 0), (4, 0)]
    assert course("beside") == [(0, 0), (2, 2), (4, 4)]
    assert course("refreshed") == [(0, 0), (2, 0), (2, 2), (4, 2), (4, 4)]


def test_policies_begin_alike_and_shift_alike(drifts: dict[str, Drift]) -> None:
    starts = [drift.frame[drift.frame["target_step"] == 0] for drift in drifts.values()]
    assert all(start.equals(starts[0]) for start in starts)
    assert starts[0]["text"].tolist() == ["old", "new"]
    assert starts[0]["target_shift"].tolist() == [0.0, 0.0]
    for drift in drifts.values():
        later = drift.frame[drift.frame["target_step"] > 0]
        assert (later["target_shift"] > 0.01).all()
        shifts = later.groupby(["target_step", "text"])["target_shift"].nunique()
        assert (shifts == 1).all()


def test_lengths_lie_between_one_token_and_the_block_with_its_bonus(
    drifts: dict[str, Drift],
) -> None:
    for drift in drifts.values():
        assert drift.frame["accept_rate"].between(0, 1).all()
        for name in ("accepted_length", "sampled_length"):
            assert drift.frame[name].between(1, 5).all()


def test_no_parameter_of_the_target_gets_a_gradient_from_the_drafters_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    follow = draft_drift._Course._follow

    def watched(course: draft_drift._Course, updates: int) -> bool:
        loss_of = course.objective.loss_of

        def checked(drafter: nn.Module, read: object, *others: object) -> object:
            assert not read.logits.requires_grad and not read.features.requires_grad
            found = loss_of(drafter, read, *others)
            gradients = torch.autograd.grad(
                found.total,
                list(course.target.model.parameters()),
                allow_unused=True,
                retain_graph=True,
            )
            seen.append(all(gradient is None for gradient in gradients))
            return found

        course.objective.loss_of = checked
        finished = follow(course, updates)
        course.objective.loss_of = loss_of
        assert all(p.requires_grad and p.grad is None for p in course.target.model.parameters())
        return finished

    monkeypatch.setattr(draft_drift._Course, "_follow", watched)
    run_drift(config(policy="beside"), progress=False)
    assert seen == [True] * 4


def test_what_is_kept_stays_as_it_was(drifts: dict[str, Drift]) -> None:
    again = run_drift(config(policy="beside"), progress=False)
    assert again.frame.equals(drifts["beside"].frame)
    kept = load_or_fit(TARGET, progress=False).model
    assert not _same(again.model, kept)


def test_answers_of_a_moved_model_are_not_those_kept_for_its_run() -> None:
    run = load_or_fit(TARGET, progress=False)
    kept = load_answers(run, DRAFTER.answers, progress=False)
    assert torch.equal(draw_answers(run, DRAFTER.answers).token_ids, kept.token_ids)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    moved = draw_answers(run, DRAFTER.answers)
    assert torch.equal(moved.prompts, kept.prompts)
    assert not torch.equal(moved.token_ids, kept.token_ids)


def test_a_loop_that_pauses_trains_as_one_that_does_not() -> None:
    run = load_or_fit(TARGET, progress=False)
    settings = TrainConfig(batch_size=4, seq_len=48, steps=4)
    documents = load_data(TARGET).train

    def trained(*pauses: int | None) -> tuple[Loop, nn.Module]:
        model = copy.deepcopy(run.model)
        objective = NextToken(documents, settings, 0)
        loop = Loop(model, objective, settings, steps=4, identity=TARGET)
        assert all(loop.run(progress=False, until=until) for until in pauses)
        return loop, model

    whole, paused = trained(None), trained(1, 1, 3, 9)
    assert whole[0].step == paused[0].step == 4
    assert [row["lr"] for row in paused[0].history] == [row["lr"] for row in whole[0].history]
    assert _same(whole[1], paused[1])


def test_a_drafter_that_is_no_block_drafter_is_refused() -> None:
    eagle = replace(DRAFTER, drafter=EagleConfig(**SHAPE))
    with pytest.raises(ValueError, match="block drafter .DraftConfig.; got one of EagleConfig"):
        config(drafter=eagle)


def test_unequal_numbers_of_updates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"multiple of refresh_every .3.*got 4"):
        config(refresh_every=3)
    with pytest.raises(ValueError, match="measure_every must be at least 1; got 0"):
        config(measure_every=0)


def test_the_target_read_is_the_copy(drifts: dict[str, Drift]) -> None:
    drift = drifts["beside"]
    assert isinstance(drift.drafter.target, Target)
    assert drift.drafter.target.model is drift.model


def _same(first: nn.Module, second: nn.Module) -> bool:
    ours, theirs = first.state_dict(), second.state_dict()
    return all(torch.equal(ours[name], value) for name, value in theirs.items())
