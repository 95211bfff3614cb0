"""The allocation probe: held-out losses beside the budget of the model that made them."""

from dataclasses import replace

import pytest

from engram_lab.model.budget import budget
from engram_lab.model.presets import tiny
from engram_lab.probes.allocation import final_loss, significant
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.evaluate import document_losses
from engram_lab.training.fit import TrainedRun, fit

DATA = DataConfig(corpus="d8", train_tokens=2_000, eval_tokens=600)
TRAIN = TrainConfig(batch_size=4, seq_len=32, steps=3, device="cpu")


@pytest.fixture(scope="module")
def trained() -> TrainedRun:
    model = tiny(vocab_size(DATA))
    return fit(RunConfig(model=model, data=DATA, train=TRAIN), progress=False)


def test_rows_are_documents_and_token_classes(trained):
    frame = final_loss(trained)
    assert {"all", "static", "computed", "filler"} == set(frame["token_class"])
    assert frame["document"].nunique() == len(trained.validation)
    assert not frame.duplicated(["document", "token_class"]).any()
    whole = frame[frame["token_class"] == "all"]
    parts = frame[frame["token_class"] != "all"]
    assert whole["eval_tokens"].sum() == parts["eval_tokens"].sum()


def test_losses_are_those_of_the_evaluation_to_six_digits(trained):
    frame = final_loss(trained)
    exact = document_losses(trained.model, trained.validation, seq_len=32, batch_size=4)
    assert frame["loss_nats"].to_numpy() == pytest.approx(exact["loss_nats"].to_numpy(), rel=5e-6)
    assert all(len(f"{loss:.10g}".replace(".", "").lstrip("0")) <= 6 for loss in frame["loss_nats"])


def test_the_budget_is_that_of_the_model(trained):
    row = final_loss(trained).iloc[0]
    counts = budget(trained.config.model)
    assert (row["params"], row["active_params"]) == (counts.total, counts.active)
    assert row["sparse_params"] == counts.sparse
    assert row["realised_ratio"] == pytest.approx(counts.allocation_ratio, rel=1e-5)
    assert row["train_tokens"] == 3 * 4 * 32
    per_token = counts.flops_per_token(trained.config.model, 32)
    assert row["flops"] == pytest.approx(3 * per_token * row["train_tokens"], rel=1e-5)


def test_a_model_without_sparse_parameters_has_no_ratio(trained):
    dense = tiny(vocab_size(DATA)).replace(engram=None, moe=None)
    run = fit(RunConfig(model=dense, data=DATA, train=replace(TRAIN, steps=1)), progress=False)
    assert final_loss(run)["realised_ratio"].isna().all()


@pytest.mark.parametrize(
    ("value", "rounded"), [(1.23456789, 1.23457), (0.000123456789, 0.000123457)]
)
def test_significant_digits(value, rounded):
    assert significant(value) == rounded
