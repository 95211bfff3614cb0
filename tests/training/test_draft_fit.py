"""Training a drafter: it learns, resumes, is kept, and tells what it will take."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import Target
from engram_lab.training.draft_config import draft_train_config
from engram_lab.training.draft_data import AnswerConfig, Answers, load_answers
from engram_lab.training.draft_fit import build_drafter, fit_drafter, load_or_fit_drafter
from engram_lab.training.draft_loss import dflash_loss
from engram_lab.training.draft_objective import DraftObjective
from engram_lab.training.fit import TrainedRun, load_or_fit
from engram_lab.training.loop import Loop
from tests.training.draft_runs import ANSWERS, TARGET, draft_run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def run(home: Path) -> TrainedRun:
    return load_or_fit(TARGET, progress=False)


def test_the_target_answers_its_prompts_and_answers_are_kept_as_ids_alone(
    run: TrainedRun, home: Path
) -> None:
    first = load_answers(run, ANSWERS, progress=False)
    again = load_answers(run, ANSWERS, progress=False)
    assert first.token_ids.shape == (16, 24)
    assert torch.equal(first.token_ids, again.token_ids)
    assert not first.loss_mask[:, :4].any() and first.loss_mask[:, 4:].any(1).all()
    files = list((home / "data").rglob("answers_*.npz"))
    assert len(files) == 1 and files[0].stat().st_size < 10_000


def test_answers_of_the_corpus_are_what_documents_go_on_with(run: TrainedRun) -> None:
    own = load_answers(run, replace(ANSWERS, source="corpus"), progress=False)
    drawn = load_answers(run, ANSWERS, progress=False)
    assert torch.equal(own.prompts, drawn.prompts)
    assert not torch.equal(own.token_ids, drawn.token_ids)


def test_prompts_longer_than_every_document_are_refused(run: TrainedRun) -> None:
    with pytest.raises(ValueError, match="prompt_tokens .100.*the longest"):
        load_answers(run, AnswerConfig(rows=2, prompt_tokens=100), progress=False)


def test_a_part_that_is_not_there_is_named(run: TrainedRun) -> None:
    with pytest.raises(ValueError, match="parts.*novels"):
        load_answers(run, replace(ANSWERS, parts=("novels",)), progress=False)


def test_overfitting_one_text_reaches_the_whole_block(run: TrainedRun) -> None:
    prompt = torch.from_numpy(run.validation.ids[:4].astype("int64"))
    greedy = Sampling(temperature=0.0)
    alone = GenerationConfig(max_new_tokens=24, sampling=greedy)
    target_ids = speculative_generate(_target(run), None, [prompt], alone).token_ids[0]
    text = torch.cat([prompt, target_ids])
    answers = Answers(
        token_ids=text[None], loss_mask=torch.arange(len(text))[None] >= 4, prompt_tokens=4
    )
    trained = _train_on(run, answers, steps=120)
    found = speculative_generate(
        trained.target,
        trained,
        answers.prompts,
        GenerationConfig(max_new_tokens=20, sampling=greedy, whole_blocks=True),
    )
    assert torch.equal(found.token_ids[0], target_ids[:20])
    assert found.accepted_length == 5.0


def test_the_estimate_is_told_before_training_and_the_drafter_is_kept(
    home: Path, capsys: pytest.CaptureFixture
) -> None:
    trained = load_or_fit_drafter(draft_run())
    told = capsys.readouterr().out
    assert "4 updates on 384 tokens" in told and "nothing is cached" in told
    again = load_or_fit_drafter(draft_run(), progress=False)
    for name, value in trained.drafter.state_dict().items():
        assert torch.equal(value, again.drafter.state_dict()[name])
    assert again.history["step"].tolist() == [1, 2, 3, 4]


def test_a_resumed_training_gives_the_same_drafter(run: TrainedRun, tmp_path: Path) -> None:
    whole = fit_drafter(draft_run(), progress=False, target_run=run)
    folder = tmp_path / "steps"
    fit_drafter(draft_run(), progress=False, target_run=run, checkpoint_dir=folder)
    newest = sorted(folder.iterdir())[-1]
    for path in newest.iterdir():
        path.unlink()
    newest.rmdir()
    resumed = fit_drafter(draft_run(), progress=False, target_run=run, checkpoint_dir=folder)
    for name, value in whole.drafter.state_dict().items():
        assert torch.equal(value, resumed.drafter.state_dict()[name])


def test_training_leaves_the_target_as_it_was(run: TrainedRun) -> None:
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    fit_drafter(draft_run(), progress=False, target_run=run)
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())
    assert all(parameter.grad is None for parameter in run.model.parameters())


def test_a_drafter_of_another_shape_than_the_target_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="hidden_size must be that of the target, 32; got 64"):
        draft_run(drafter=replace(draft_run().drafter, hidden_size=64))


def _target(run: TrainedRun) -> Target:
    return Target(run.model, (0, 1))


def _train_on(run: TrainedRun, answers: Answers, *, steps: int) -> torch.nn.Module:
    torch.manual_seed(0)
    settings = draft_run(loss=dflash_loss(num_anchors=16))
    train = draft_train_config(batch_size=1, lr=2e-2)
    drafter, loss = build_drafter(settings, _target(run))
    objective = DraftObjective(drafter.target, answers, loss, train, seed=0)
    Loop(drafter, objective, train, steps=steps, identity=settings).run(progress=False)
    return drafter.eval()
