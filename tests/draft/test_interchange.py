"""Drafters in files: our folders, and checkpoints that the `speculators` library reads.

What that library made of them was recorded by `tests/peers/make_speculators_golden.py`.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engram_lab.configs import to_dict
from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafted, Drafter
from engram_lab.draft.interchange import (
    checkpoint_taps,
    load_drafter,
    load_speculators,
    save_drafter,
    save_speculators,
)
from engram_lab.draft.target import Target
from engram_lab.training.draft_loss import DraftLossConfig, slot_loss
from tests.draft.interchange_cases import CASES, MASKED_IN, TEXT, case
from tests.draft.tiny import drafter_for, family

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "speculators_checkpoints.json").read_text()
)


def drafted(drafter: Drafter) -> Drafted:
    """Blocks at every anchor that the library chose."""
    ids, anchors = torch.tensor([TEXT]), torch.tensor([MASKED_IN])
    read = drafter.target.read(ids)
    with torch.no_grad():
        return drafter(ids, read.features, anchors, torch.ones_like(anchors).bool())


def predicting(rows: list[Any], drafter: Drafter) -> torch.Tensor:
    """Of the library's slots, those that predict, with the batch axis of ours."""
    idle = drafter.config.slots - drafter.block_size
    return torch.tensor(rows)[None, :, idle:]


def changed(folder: Path, **changes: Any) -> None:
    """Change keys of a folder's config; None removes them."""
    values = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        values.pop(key, None)
        if value is not None:
            values[key] = value
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("name", CASES)
def test_speculators_computes_the_same_logits_and_confidences_from_our_checkpoint(name: str):
    _, drafter = case(name)
    ours, theirs = drafted(drafter), GOLDEN["cases"][name]
    logits = predicting(theirs["logits"], drafter)
    assert (ours.logits - logits).abs().max() < 1e-4
    if theirs["confidence"] is None:
        assert ours.confidence is None
    else:
        assert (ours.confidence - predicting(theirs["confidence"], drafter)).abs().max() < 1e-4


@pytest.mark.parametrize("name", CASES)
def test_speculators_computes_the_same_loss_from_our_checkpoint(name: str):
    target, drafter = case(name)
    ours, theirs = drafted(drafter), GOLDEN["cases"][name]
    steps = torch.arange(drafter.block_size)
    rows = torch.tensor(MASKED_IN)[:, None] + steps
    mask = predicting(theirs["loss_mask"], drafter).bool()
    loss = slot_loss(
        ours.logits,
        target.read(torch.tensor([TEXT])).logits[:, rows],
        torch.zeros_like(rows)[None],
        mask,
        ours.confidence,
        config=DraftLossConfig(
            cross_entropy=GOLDEN["loss_weights"]["ce"],
            distribution=GOLDEN["loss_weights"]["tv"],
            distance="tv",
            convention="speculators",
        ),
    )
    assert float(loss.total) == pytest.approx(theirs["loss"], abs=1e-4)
    if theirs["accepted_length"] is not None:
        tau = float(loss.terms["accepted_length"])
        assert tau == pytest.approx(theirs["accepted_length"], abs=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_the_recorded_answers_belong_to_the_config_we_write(name: str, tmp_path: Path):
    _, drafter = case(name)
    save_speculators(drafter, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == GOLDEN["cases"][name]["written"]
    written = set(load_file(tmp_path / "model.safetensors"))
    assert written == set(GOLDEN["cases"][name]["resaved_tensors"])


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_comes_back_the_same_also_as_speculators_saved_it(name: str, tmp_path: Path):
    target, drafter = case(name)
    save_speculators(drafter, tmp_path)
    ours = load_speculators(tmp_path, target)
    (tmp_path / "config.json").write_text(json.dumps(GOLDEN["cases"][name]["resaved"]))
    theirs = load_speculators(tmp_path, target)
    assert ours.config == theirs.config == drafter.config
    assert torch.equal(drafted(theirs).logits, drafted(drafter).logits)


@pytest.mark.parametrize("name", CASES)
def test_our_own_folder_gives_back_config_and_weights(name: str, tmp_path: Path):
    target, drafter = case(name)
    loaded = load_drafter(save_drafter(drafter, tmp_path / "new" / name), target)
    assert loaded.config == drafter.config
    assert not loaded.training
    assert all(torch.equal(loaded.state_dict()[k], v) for k, v in drafter.state_dict().items())


def test_our_config_file_has_every_field_and_the_tap_point(tmp_path: Path):
    _, drafter = case("gated")
    save_drafter(drafter, tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["tap_point"] == "block_output"
    assert values["config"] == to_dict(drafter.config)
    assert set(values["config"]) == {field.name for field in dataclasses.fields(DraftConfig)}


@pytest.mark.parametrize("kind", ["dspark", "dflash"])
def test_a_speculators_checkpoint_without_layout_is_refused_until_it_is_named(
    kind: str, tmp_path: Path
):
    target, drafter = case(kind)
    save_speculators(drafter, tmp_path)
    changed(tmp_path, sample_from_anchor=None)
    assumed = "predicts, so" if kind == "dspark" else "predicts nothing"
    with pytest.raises(ValueError, match=f"would assume that it {assumed}.*sample_from_anchor="):
        load_speculators(tmp_path, target)
    first = load_speculators(tmp_path, target, sample_from_anchor=True)
    assert (first.block_size, first.config.slots) == (drafter.config.slots,) * 2
    idle = load_speculators(tmp_path, target, sample_from_anchor=False)
    assert (idle.block_size, idle.config.slots) == (
        drafter.config.slots - 1,
        drafter.config.slots,
    )


def test_our_own_folder_without_layout_is_refused_until_it_is_named(tmp_path: Path):
    target, drafter = case("dspark")
    save_drafter(drafter, tmp_path)
    fields = to_dict(drafter.config)
    del fields["sample_from_anchor"]
    changed(tmp_path, config=fields)
    with pytest.raises(ValueError, match="would assume that it predicts"):
        load_drafter(tmp_path, target)
    assert load_drafter(tmp_path, target, sample_from_anchor=True).config == drafter.config


def test_a_caller_cannot_contradict_the_stored_layout(tmp_path: Path):
    target, drafter = case("dspark")
    save_drafter(drafter, tmp_path / "ours")
    save_speculators(drafter, tmp_path / "theirs")
    for load, folder in ((load_drafter, "ours"), (load_speculators, "theirs")):
        with pytest.raises(ValueError, match="True in config.json; the caller said False"):
            load(tmp_path / folder, target, sample_from_anchor=False)


def test_the_wrong_layout_drafts_otherwise_without_any_error(tmp_path: Path):
    target, drafter = case("dflash")
    save_speculators(drafter, tmp_path)
    changed(tmp_path, sample_from_anchor=True)
    wrong = load_speculators(tmp_path, target)
    right = drafted(drafter).logits
    assert not torch.allclose(drafted(wrong).logits[:, :, : right.shape[2]], right, atol=0.1)


@pytest.mark.parametrize("load", [load_drafter, load_speculators])
def test_states_taken_elsewhere_are_refused(load: Any, tmp_path: Path):
    target, drafter = case("dspark")
    if load is load_drafter:
        save_drafter(drafter, tmp_path)
        changed(tmp_path, tap_point="block_input")
    else:
        save_speculators(drafter, tmp_path)
        changed(tmp_path, engram_lab={"tap_point": "block_input"})
    with pytest.raises(ValueError, match="tap_point must be 'block_output'.*'block_input'"):
        load(tmp_path, target)


def test_taps_are_counted_one_higher_by_speculators(tmp_path: Path):
    target, drafter = case("confident")
    save_speculators(drafter, tmp_path / "theirs")
    save_drafter(drafter, tmp_path / "ours")
    values = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert values["aux_hidden_state_layer_ids"] == [0, 2]
    assert checkpoint_taps(tmp_path / "theirs") == checkpoint_taps(tmp_path / "ours") == (-1, 1)
    changed(tmp_path / "theirs", aux_hidden_state_layer_ids=[0, 3])
    with pytest.raises(ValueError, match="must leave out the last block"):
        load_speculators(tmp_path / "theirs", target)


def test_a_confidence_that_does_not_read_the_previous_token_keeps_its_values(tmp_path: Path):
    target, drafter = case("dspark")
    with torch.no_grad():
        drafter.confidence_head.proj.weight[:, drafter.config.hidden_size :] = 0
    save_speculators(drafter, tmp_path)
    changed(tmp_path, confidence_head_with_markov=False)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "confidence_head.proj.weight"
    tensors[name] = tensors[name][:, : drafter.config.hidden_size].contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    loaded = load_speculators(tmp_path, target)
    assert torch.equal(drafted(loaded).confidence, drafted(drafter).confidence)


def test_tensors_of_the_target_and_several_files_are_no_obstacle(tmp_path: Path):
    target, drafter = case("dspark")
    save_speculators(drafter, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    save_file({n: tensors[n] for n in names[:5]}, tmp_path / "model-00001-of-00002.safetensors")
    rest = {n: tensors[n] for n in names[5:]} | {"lm_head.weight": torch.zeros(20, 16)}
    save_file(rest, tmp_path / "model-00002-of-00002.safetensors")
    loaded = load_speculators(tmp_path, target)
    assert torch.equal(drafted(loaded).logits, drafted(drafter).logits)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"speculators_model_type": "eagle3"}, "must be dspark or dflash.*'eagle3'"),
        ({"draft_vocab_size": 10}, "draft_vocab_size must be 20.*has 10"),
        ({"mask_token_id": None}, "mask_token_id must both be in config.json"),
        ({"aux_hidden_state_layer_ids": None}, "must both be in config.json; got None"),
        ({"markov_head_type": "rnn", "sample_from_anchor": False}, "recurrent head over the anch"),
        ({"transformer_layer_config": {"attention_bias": True}}, "attention_bias must be False"),
        (
            {"transformer_layer_config": {"layer_types": ["full_attention", "sliding_attention"]}},
            "must attend alike",
        ),
    ],
)
def test_what_our_drafter_cannot_be_is_refused(changes: dict, told: str, tmp_path: Path):
    target, drafter = case("dspark")
    save_speculators(drafter, tmp_path)
    if "transformer_layer_config" in changes:
        stored = json.loads((tmp_path / "config.json").read_text())["transformer_layer_config"]
        changes = {"transformer_layer_config": stored | changes["transformer_layer_config"]}
    changed(tmp_path, **changes)
    with pytest.raises(ValueError, match=told):
        load_speculators(tmp_path, target)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"causal_block": True}, "only with a sliding window"),
        ({"markov_head_type": "rnn", "sample_from_anchor": False}, "recurrent head"),
    ],
)
def test_what_speculators_cannot_express_is_refused(changes: dict, told: str, tmp_path: Path):
    target = case("dspark")[0]
    with pytest.raises(ValueError, match=told):
        save_speculators(drafter_for(target, **changes), tmp_path)


def test_missing_left_over_and_misshapen_tensors_are_named(tmp_path: Path):
    target, drafter = case("dspark")
    save_drafter(drafter, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    weight = tensors.pop("fc.weight")
    save_file(tensors | {"gc.weight": weight}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="missing: fc.weight; left over: gc.weight"):
        load_drafter(tmp_path, target)
    save_file(tensors | {"fc.weight": weight[:, :3].clone()}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"fc.weight in .* must have shape \(16, 32\)"):
        load_drafter(tmp_path, target)


def test_damaged_and_foreign_folders_are_told_apart(tmp_path: Path):
    target, drafter = case("dspark")
    with pytest.raises(ValueError, match="must hold config.json"):
        load_drafter(tmp_path, target)
    save_speculators(drafter, tmp_path)
    with pytest.raises(ValueError, match="read by load_speculators"):
        load_drafter(tmp_path, target)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged or cut short"):
        load_speculators(tmp_path, target)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="must be JSON"):
        load_speculators(tmp_path, target)


def test_a_target_of_another_shape_is_refused_with_both_numbers(tmp_path: Path):
    _, drafter = case("dspark")
    save_drafter(drafter, tmp_path)
    other = Target(family("llama"), (0, 1))
    with pytest.raises(ValueError, match="vocabulary; the drafter's config says 20"):
        load_drafter(tmp_path, other)


def test_a_drafter_of_our_own_model_travels_too(tmp_path: Path):
    target = Target(family("memory"), (0, 1))
    drafter = drafter_for(target, sliding_window=5)
    save_speculators(drafter, tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["speculators_config"]["verifier"]["architectures"] == ["EngramLM"]
    assert load_speculators(tmp_path, target).config == drafter.config
