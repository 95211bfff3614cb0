"""The frame of the theatre: it tells what decoding did, slot by slot, and leaves models alone."""

from dataclasses import replace

import pytest
import torch

from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.lookup import NgramLookup
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.schedule import FixedLength
from engram_lab.draft.target import Target
from engram_lab.probes.theatre import COLUMNS, OUTCOMES, theatre_frame
from tests.probes.drafted_theatre import BLOCK, company

GREEDY = GenerationConfig(max_new_tokens=12, sampling=Sampling(temperature=0.0))
WARM = GenerationConfig(max_new_tokens=24, sampling=Sampling(temperature=1.5), seed=3)
TEXT = "The end"


@pytest.fixture(scope="module")
def parts():
    return company()


def frame_of(parts, config=WARM, **options):
    target, drafters, tokenizer = parts
    return theatre_frame(target, drafters, TEXT, tokenizer, config=config, **options)


def decoded(parts, name: str, config):
    target, drafters, tokenizer = parts
    config = replace(config, whole_blocks=True)
    return speculative_generate(target, drafters[name], list(tokenizer.encode(TEXT)), config)


@pytest.mark.parametrize("config", [GREEDY, WARM], ids=["greedy", "warm"])
def test_it_tells_what_decoding_did(parts, config):
    frame = frame_of(parts, config)
    assert list(frame.columns) == list(COLUMNS) and set(frame["outcome"]) <= set(OUTCOMES)
    for name, rows in frame.groupby("drafter"):
        found = decoded(parts, name, config)
        tokens = [rows["anchor"].iloc[0], *rows.loc[rows["emitted"], "token"]]
        assert tokens[: config.max_new_tokens] == found.token_ids[0].tolist()
        drafts = rows[rows["verified"]].reset_index(drop=True)
        plain = found.positions()
        for column in ("round", "position", "token", "accepted"):
            assert drafts[column].tolist() == plain[column].tolist(), column
        torch.testing.assert_close(
            torch.tensor(drafts["expected"]), torch.tensor(plain["expected"])
        )


def test_a_round_is_a_kept_prefix_a_reject_the_rest_and_one_token_of_the_target(parts):
    for _, rows in frame_of(parts).groupby(["drafter", "round"]):
        outcomes = rows["outcome"].tolist()
        kept = outcomes.count("accepted")
        if kept == BLOCK:
            assert outcomes == ["accepted"] * BLOCK + ["bonus"]
        else:
            lost = BLOCK - kept - 1
            expected = ["accepted"] * kept + ["rejected"] + ["discarded"] * lost
            assert outcomes == [*expected, "correction"]
        assert rows["position"].iloc[-1] == kept + 1
        assert rows["emitted"].sum() == kept + 1


def test_the_base_choice_is_the_draft_where_no_head_corrects(parts):
    frame = frame_of(parts)
    drafts = frame[frame["base_token"].notna()]
    flash = drafts[drafts["drafter"] == "DFlash"]
    assert (flash["base_token"] == flash["token"]).all() and not flash["corrected"].any()
    spark = drafts[drafts["drafter"] == "DSpark"]
    assert spark["corrected"].any()
    assert (spark["corrected"] == (spark["base_token"] != spark["token"])).all()
    assert spark["confidence"].between(0, 1).all() and flash["confidence"].isna().all()


def test_a_head_that_says_nothing_corrects_nothing(parts):
    target, drafters, tokenizer = company()
    torch.nn.init.zeros_(drafters["DSpark"].markov_head.markov_w2.weight)
    frame = theatre_frame(target, drafters, TEXT, tokenizer, config=WARM)
    assert not frame["corrected"].any()


def test_drafts_that_a_schedule_cuts_are_not_verified(parts):
    target, drafters, tokenizer = parts
    only = {"DSpark": drafters["DSpark"]}
    frame = theatre_frame(
        target, only, TEXT, tokenizer, config=WARM, schedule=FixedLength(length=2)
    )
    cut = frame[frame["outcome"] == "not verified"]
    assert set(cut["position"]) == {3, 4} and cut["expected"].isna().all()
    assert cut["confidence"].notna().all() and not cut["emitted"].any()


def test_a_kept_stop_token_ends_the_text_without_a_token_behind_it(parts):
    rows = frame_of(parts, GREEDY)
    stop = int(rows.loc[rows["emitted"], "token"].iloc[-1])
    config = GenerationConfig(
        max_new_tokens=12, sampling=Sampling(temperature=0.0), stop_ids=(stop,)
    )
    for name, part in frame_of(parts, config).groupby("drafter"):
        tokens = [part["anchor"].iloc[0], *part.loc[part["emitted"], "token"]]
        assert tokens == decoded(parts, name, config).token_ids[0].tolist()


def test_a_drafter_of_another_kind_has_no_base_logits(parts):
    target, drafters, tokenizer = parts
    mixed = {"look-up": NgramLookup(block_size=3), "DFlash": drafters["DFlash"]}
    frame = theatre_frame(target, mixed, "abcabcabcabc", tokenizer, config=GREEDY)
    found = frame[frame["drafter"] == "look-up"]
    assert found["base_token"].isna().all() and not found["corrected"].any()
    assert (found["outcome"] != "bonus").any()


def test_models_are_left_as_they_were(parts):
    target, drafters, tokenizer = company()
    models = [target.model, *drafters.values()]
    for model in models:
        model.train()
    before = [{k: v.clone() for k, v in model.state_dict().items()} for model in models]
    theatre_frame(target, drafters, TEXT, tokenizer, config=GREEDY)
    for model, state in zip(models, before, strict=True):
        assert all(module.training for module in model.modules())
        assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
        assert not [module for module in model.modules() if module._forward_hooks]
        assert all(parameter.grad is None for parameter in model.parameters())


def test_what_cannot_be_shown_is_refused(parts):
    target, drafters, tokenizer = parts
    with pytest.raises(ValueError, match="at least one token"):
        theatre_frame(target, drafters, "", tokenizer)
    with pytest.raises(ValueError, match="needs at least one drafter"):
        theatre_frame(target, {}, TEXT, tokenizer)
    with pytest.raises(ValueError, match="leave room in the target's context"):
        theatre_frame(Target(target.model), drafters, "a" * 96, tokenizer)
