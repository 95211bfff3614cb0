"""A DFlash of ours as an assistant of `transformers`."""

from typing import Any

import pytest
import torch
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator

from engram_lab.draft.assistant import dflash_assistant
from engram_lab.draft.candidates import DrafterCandidates
from engram_lab.draft.target import Target
from tests.draft.tiny import drafter_for, family, some_ids

BARE = {"markov_rank": 0, "confidence": False, "sample_from_anchor": False}


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_both_libraries_draft_the_same_tokens(name: str, monkeypatch: pytest.MonkeyPatch):
    model = family(name)
    target = Target(model, (0, 1))
    drafter = drafter_for(target, num_hidden_layers=2, rope_theta=700.0, **BARE)
    drafts: dict[str, list[list[int]]] = {"ours": [], "theirs": []}
    note(monkeypatch, DrafterCandidates, drafts["ours"])
    note(monkeypatch, DFlashTokenCandidateGenerator, drafts["theirs"])
    ids = some_ids(model.config.vocab_size, 1, 8)
    options = {"do_sample": False, "max_new_tokens": 16, "pad_token_id": 0}
    ours = DrafterCandidates(target, drafter).generate(ids, **options)
    theirs = model.generate(
        ids, assistant_model=dflash_assistant(drafter), speculation_type="dflash", **options
    )
    assert torch.equal(ours, theirs)
    assert len(drafts["ours"]) > 3
    for mine, other in zip(drafts["ours"], drafts["theirs"], strict=True):
        assert mine == other[: len(mine)]  # theirs drafts a whole block also at the end


def note(monkeypatch: pytest.MonkeyPatch, cls: Any, drafts: list[list[int]]) -> None:
    """Note what a candidate generator drafts behind each text."""
    plain = cls.get_candidates

    def noting(self: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        found, logits = plain(self, input_ids, **options)
        if found.shape[1] > input_ids.shape[1]:
            drafts.append(found[0, input_ids.shape[1] :].tolist())
        return found, logits

    monkeypatch.setattr(cls, "get_candidates", noting)


@pytest.mark.parametrize(
    "changes",
    [
        {"markov_rank": 2},
        {"confidence": True},
        {"sample_from_anchor": True},
        {"causal_block": True},
        {"sliding_window": 4},
    ],
)
def test_what_that_librarys_drafter_does_not_do_is_refused(changes: dict):
    drafter = drafter_for(Target(family("llama"), (0, 1)), **BARE | changes)
    with pytest.raises(ValueError, match=f"{next(iter(changes))} must be"):
        dflash_assistant(drafter)
