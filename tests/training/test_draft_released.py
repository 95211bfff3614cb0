"""Training a drafter in production form: it learns a text, is balanced, kept and loaded."""

from functools import partial
from pathlib import Path

import pytest
import torch

from engram_lab.configs import from_json, to_json
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.released import ReleasedDrafter
from engram_lab.draft.released_config import quick
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import target_for
from engram_lab.model import presets
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig, Answers
from engram_lab.training.draft_fit import fit_drafter, load_or_fit_drafter
from engram_lab.training.draft_loss import DraftLossConfig, block_loss, dflash_loss
from engram_lab.training.draft_objective import DraftObjective
from engram_lab.training.fit import TrainedRun, load_or_fit
from engram_lab.training.loop import Loop
from tests.draft.released_shapes import drafter_of
from tests.draft.tiny import some_ids

DATA = DataConfig(corpus="d1", train_tokens=4_000, eval_tokens=1_000, document_length=48)
RUN = RunConfig(
    model=presets.tiny(vocab_size(DATA)).replace(num_hidden_layers=3, moe=None),
    data=DATA,
    train=TrainConfig(batch_size=8, seq_len=48, steps=6),
)


def run_config(**changes: object) -> DraftRunConfig:
    drafter = quick(
        vocab_size=RUN.model.vocab_size,
        hidden_size=32,
        target_depth=3,
        mask_token_id=3,
        num_hidden_layers=1,
        block_size=4,
        markov_rank=8,
    )
    settings = {
        "target": RUN,
        "drafter": drafter,
        "loss": DraftLossConfig(num_anchors=4),
        "answers": AnswerConfig(rows=8, prompt_tokens=4, answer_tokens=20),
        "train": draft_train_config(batch_size=4, steps=3, log_every=1),
    }
    return DraftRunConfig(**settings | changes)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainedRun:
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))
    return load_or_fit(RUN, progress=False)


def test_a_run_is_read_back_from_its_text() -> None:
    config = run_config()
    assert from_json(DraftRunConfig, to_json(config)) == config


def test_memory_rows_are_for_drafters_of_the_other_form() -> None:
    with pytest.raises(ValueError, match="rows_of needs a block drafter"):
        run_config(rows_of=RUN)


def test_a_trained_drafter_is_kept_and_loaded_with_its_balance(run: TrainedRun) -> None:
    trained = load_or_fit_drafter(run_config(), progress=False)
    again = load_or_fit_drafter(run_config(), progress=False)
    assert isinstance(again.drafter, ReleasedDrafter) and again.target.tap == "entering"
    for name, value in trained.drafter.state_dict().items():
        assert torch.equal(value, again.drafter.state_dict()[name])
    assert again.drafter.layers[0].moe.router.bias.any()
    assert again.history["step"].tolist() == [1, 2, 3]


def test_telling_what_a_training_takes_does_not_change_it(run: TrainedRun) -> None:
    silent = fit_drafter(run_config(), progress=False, target_run=run).drafter.state_dict()
    told = fit_drafter(run_config(), progress=True, target_run=run).drafter.state_dict()
    assert all(torch.equal(value, told[name]) for name, value in silent.items())


def test_overfitting_one_text_reaches_the_whole_block() -> None:
    drafter = drafter_of("memory", num_hidden_layers=1, block_size=4)
    target, greedy = drafter.target, Sampling(temperature=0.0)
    prompt = some_ids(61, 4)
    alone = GenerationConfig(max_new_tokens=20, sampling=greedy)
    answer = speculative_generate(target, None, [prompt], alone).token_ids[0]
    assert len(set(answer.tolist())) > 8  # not one that repeats itself
    answers = Answers(
        token_ids=torch.cat([prompt, answer])[None],
        loss_mask=torch.arange(24)[None] >= 4,
        prompt_tokens=4,
    )
    train = draft_train_config(batch_size=1, lr=1e-2)
    loss = partial(block_loss, config=dflash_loss(num_anchors=19))
    objective = DraftObjective(target, answers, loss, train, seed=0)
    Loop(drafter, objective, train, steps=80, identity=drafter.config).run(progress=False)
    found = speculative_generate(
        target_for(target.model, drafter),
        drafter,
        answers.prompts,
        GenerationConfig(max_new_tokens=16, sampling=greedy),
    )
    assert torch.equal(found.token_ids[0], answer[:16])  # one of prefill, three whole rounds
    assert found.accepted_length == 5.0
