"""Drafters that read rows: of their own target or of another run, trained, kept and loaded."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engram_lab.configs import fingerprint, from_dict, to_dict
from engram_lab.draft.memory_head import MemoryDrafter
from engram_lab.training.config import RunConfig
from engram_lab.training.draft_config import DraftRunConfig
from engram_lab.training.draft_fit import load_or_fit_drafter
from engram_lab.training.fit import load_or_fit
from tests.training.draft_runs import SHAPE, TARGET, draft_run

OWNER = TARGET
PLAIN = replace(OWNER, model=OWNER.model.replace(engram=None))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))


@pytest.mark.parametrize("target", [OWNER, PLAIN])
def test_a_drafter_with_rows_is_trained_kept_and_loaded(target: RunConfig) -> None:
    run = draft_run(target=target, rows_of=OWNER)
    table = load_or_fit(OWNER, progress=False).model.memories[1].table.weight.detach().clone()
    first = load_or_fit_drafter(run, progress=False)
    again = load_or_fit_drafter(run, progress=False)
    assert isinstance(again.drafter, MemoryDrafter)
    kept = again.drafter.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in first.drafter.state_dict().items())
    ids = torch.arange(12)[None]
    rows = [each.drafter.rows for each in (first, again)]
    assert torch.equal(*(row.read(row.addresses(ids)) for row in rows))
    after = load_or_fit(OWNER, progress=False).model.memories[1].table.weight
    assert torch.equal(after, table)  # the rows were read and not trained
    owns = again.drafter.rows._model is again.target.model
    assert owns == (target is OWNER)  # a table at hand is not loaded twice


def test_no_rows_means_the_run_that_was_before_there_were_any() -> None:
    run = draft_run(target=OWNER)
    assert "rows_of" in to_dict(run)
    assert fingerprint(run) != fingerprint(draft_run(target=OWNER, rows_of=OWNER))
    assert (
        from_dict(DraftRunConfig, to_dict(draft_run(target=PLAIN, rows_of=OWNER))).rows_of == OWNER
    )
    without = to_dict(run)
    without.pop("rows_of")
    assert fingerprint(from_dict(DraftRunConfig, without)) == fingerprint(run)


def test_rows_need_a_head_that_can_read_them_and_a_memory() -> None:
    with pytest.raises(ValueError, match="rows_of must be the run of a model with a memory"):
        draft_run(target=OWNER, rows_of=PLAIN)
    with pytest.raises(ValueError, match="rows_of needs a block drafter with a sequential head"):
        draft_run(target=OWNER, rows_of=OWNER, drafter=replace(SHAPE, markov_rank=0))
