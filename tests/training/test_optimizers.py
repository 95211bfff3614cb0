"""Parameter groups, rates and state of a run's optimisers."""

import pytest
import torch

from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression
from engram_lab.training.config import TrainConfig
from engram_lab.training.fit import fit
from engram_lab.training.optimizers import build_optimizers, parameter_groups
from tests.training.runs import small_run

TABLE = "blocks.1.engram.table.weight"


def small_model() -> EngramLM:
    config = small_run().model
    return EngramLM(config, VocabCompression.identity(config.vocab_size))


def settings(optimizers, name: str) -> tuple[str, float, float]:
    """Part, rate and decay with which one parameter is updated."""
    found = [
        (part, group["lr"], group.get("weight_decay", 0.0))
        for part, (optimizer, named) in optimizers.parts.items()
        for group in optimizer.param_groups
        if name in named and any(p is named[name] for p in group["params"])
    ]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_every_parameter_is_updated_by_exactly_one_group(optimizer):
    model = small_model()
    optimizers = build_optimizers(model, TrainConfig(optimizer=optimizer))
    for name, _ in model.named_parameters():
        settings(optimizers, name)
    grouped = [n for group in parameter_groups(model).values() for n in group]
    assert sorted(grouped) == sorted(name for name, _ in model.named_parameters())


def test_tables_learn_five_times_faster_without_decay():
    optimizers = build_optimizers(small_model(), TrainConfig(lr=1e-3, weight_decay=0.1))
    assert settings(optimizers, TABLE) == ("table", 5e-3, 0.0)
    assert settings(optimizers, "blocks.0.moe.experts.down") == ("adamw", 1e-3, 0.1)
    assert settings(optimizers, "blocks.0.attn_norm.weight") == ("adamw", 1e-3, 0.0)


def test_gains_and_norms_of_any_shape_have_no_decay():
    model = small_model()
    optimizers = build_optimizers(model, TrainConfig())
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("gain") or parameter.ndim < 2:
            assert settings(optimizers, name)[2] == 0.0, name
    gains = [name for name, _ in model.named_parameters() if name.endswith("_gain")]
    assert gains
    muon = build_optimizers(model, TrainConfig(optimizer="muon")).parts["muon"][1]
    assert not set(gains) & set(muon)


def test_muon_takes_matrices_between_embedding_and_head():
    optimizers = build_optimizers(small_model(), TrainConfig(optimizer="muon"))
    taken = set(optimizers.parts["muon"][1])
    assert {"blocks.0.attn.out.weight", "blocks.1.moe.experts.gate_up"} <= taken
    assert (
        not {"embed_tokens.weight", "lm_head.weight", "blocks.0.moe.router.weight", TABLE} & taken
    )


def test_frozen_parameters_are_left_out():
    model = small_model()
    model.embed_tokens.weight.requires_grad_(False)
    optimizers = build_optimizers(model, TrainConfig())
    assert not any("embed_tokens.weight" in named for _, named in optimizers.parts.values())


@pytest.mark.parametrize("sparse_grad", [True, False])
def test_rows_never_addressed_keep_every_bit_in_training(sparse_grad):
    run = small_run(
        engram={"engram_vocab_size": (5_003, 5_003), "sparse_grad": sparse_grad}, steps=10
    )
    torch.manual_seed(run.seed)
    start = EngramLM(run.model, VocabCompression.identity(run.model.vocab_size))
    before, after = (
        dict(m.named_parameters())[TABLE] for m in (start, fit(run, progress=False).model)
    )
    changed = (before != after).any(dim=1)
    assert 0 < changed.sum() < len(changed) / 2
    assert torch.equal(before[~changed], after[~changed])


def test_the_layout_of_table_gradients_does_not_change_the_run():
    runs = [fit(small_run(engram={"sparse_grad": s}), progress=False) for s in (True, False)]
    losses = [torch.tensor(run.history["loss_nats"].to_numpy()) for run in runs]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)  # sums in another order


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_state_goes_to_another_set_of_optimisers_and_back(optimizer):
    config = TrainConfig(optimizer=optimizer)
    model = small_model()
    one, other = build_optimizers(model, config), build_optimizers(model, config)
    model(torch.arange(8).view(1, 8) + 4, labels=torch.arange(8).view(1, 8) + 4).loss.backward()
    one.step()
    other.load_state_tensors(one.state_tensors())
    saved, loaded = one.state_tensors(), other.state_tensors()
    assert saved.keys() == loaded.keys()
    assert all(torch.equal(saved[key], loaded[key]) for key in saved)


def test_state_of_a_strange_parameter_is_refused():
    optimizers = build_optimizers(small_model(), TrainConfig())
    with pytest.raises(ValueError, match="blocks.9.weight"):
        optimizers.load_state_tensors({"blocks.9.weight/step": torch.zeros(())})
