"""Ways in which training fails without an error: forgotten tables, NaN, models never freed."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from engram_lab.hooks import edit
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression
from engram_lab.training import device as devices
from engram_lab.training import fit as fit_module
from engram_lab.training.checkpoint import checkpoint_paths, load_newest
from engram_lab.training.data import load_data
from engram_lab.training.device import accelerator_for
from engram_lab.training.evaluate import document_losses
from engram_lab.training.fit import fit
from engram_lab.training.loop import NonFiniteLoss
from engram_lab.training.objective import NextToken
from engram_lab.training.optimizers import Optimizers
from tests.training.runs import DATA, small_run

TABLE = "blocks.1.engram.table.weight"


def model_of(run) -> EngramLM:
    """The model of a run as it is before the first update."""
    torch.manual_seed(run.seed)
    return EngramLM(run.model, VocabCompression.identity(run.model.vocab_size)).train()


def first_gradients(run) -> dict[str, torch.Tensor]:
    """Gradients of the first update, by hand, dense."""
    model = model_of(run)
    batch = NextToken(load_data(run).train, run.train, run.seed).share(0).parts[0]
    ids, documents = batch.input_ids, batch.document_ids
    model(ids, labels=ids, document_ids=documents).loss.backward()
    named = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: g.to_dense() if g.is_sparse else g for name, g in named.items()}


# tables take part in norm and clipping


def test_the_logged_norm_counts_the_table():
    run = small_run(steps=1, engram={"init_std": 1.0})
    run = replace(run, model=run.model.replace(initializer_range=0.5))
    gradients = first_gradients(run)
    whole = torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt()
    logged = fit(run, progress=False).history["grad_norm"].item()
    assert logged == pytest.approx(whole.item(), rel=1e-4)
    rest = (whole.square() - gradients[TABLE].square().sum()).sqrt()
    assert rest < 0.9995 * whole  # a norm without the table would be another number


@pytest.mark.parametrize("sparse_grad", [True, False])
def test_clipping_shortens_the_table_by_the_factor_of_all_others(monkeypatch, sparse_grad):
    run = small_run(steps=1, clip_norm=1e-3, engram={"sparse_grad": sparse_grad})
    clipped = {}

    def look(self):
        for _, named in self.parts.values():
            clipped.update({name: parameter.grad.clone() for name, parameter in named.items()})

    monkeypatch.setattr(Optimizers, "step", look)
    history = fit(run, progress=False).history
    factor = 1e-3 / history["grad_norm"].item()
    for name, expected in first_gradients(run).items():
        found = clipped[name].to_dense() if clipped[name].is_sparse else clipped[name]
        torch.testing.assert_close(found, expected * factor, rtol=1e-3, atol=1e-9, msg=name)


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_what_is_differentiated_is_cross_entropy_plus_the_balance_loss_of_the_batch(micro_batches):
    run = small_run(moe={"sequence_loss": 0.5}, micro_batches=micro_batches)
    model, documents = model_of(run), load_data(run).train
    share = NextToken(documents, run.train, run.seed).share(0)
    losses = [NextToken.loss(None, model, part, share) for part in share.parts]
    extra = sum(loss - plain for loss, plain in losses)
    (whole,) = NextToken(documents, small_run().train, run.seed).share(0).parts
    expected = model(whole.input_ids, document_ids=whole.document_ids).balance_loss
    torch.testing.assert_close(extra, expected, rtol=1e-4, atol=1e-6)
    assert expected > 0.5  # two blocks, each at least about its coefficient


# NaN


def test_one_poisoned_token_stops_the_run_before_a_checkpoint_holds_it(tmp_path):
    run = small_run(steps=12, checkpoint_every=2, log_every=5)
    documents = load_data(run).train
    order = NextToken(documents, run.train, run.seed)
    batches = [set(order.share(step).parts[0].input_ids.flatten().tolist()) for step in range(12)]
    late = next(  # a token that is read for the first time in the fourth update or later
        (token, step)
        for step in range(3, 12)
        for token in sorted(batches[step])
        if not any(token in earlier for earlier in batches[:step])
    )
    model = model_of(run)
    with torch.no_grad():
        model.embed_tokens.weight[late[0]] = float("nan")
    with pytest.raises(NonFiniteLoss, match=f"at step {late[1] + 1} ") as caught:
        fit(run, progress=False, checkpoint_dir=tmp_path, model=model)
    losses = [row["loss_nats"] for row in caught.value.history]
    assert np.isfinite(losses[: late[1]]).all() and not np.isfinite(losses[late[1]])
    kept = load_newest(tmp_path)
    assert kept.step == late[1] - late[1] % 2 == int(checkpoint_paths(tmp_path)[-1].name[5:])
    assert kept.model[TABLE].isfinite().all()


def test_a_document_with_a_poisoned_state_does_not_spoil_its_neighbours():
    run = small_run(data=replace(DATA, document_length=32))
    model, documents = model_of(run), load_data(run).validation.select(range(4))
    clean = document_losses(model, documents, seq_len=32, batch_size=4)

    def poison(hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden.clone()
        hidden[2] = float("nan")
        return hidden

    with edit(model, {"hook_embed": poison}):
        found = document_losses(model, documents, seq_len=32, batch_size=4)
    others = found["document"] != 2
    assert np.isfinite(found.loc[others, "loss_nats"]).all()
    assert found.loc[~others, "loss_nats"].isna().all()  # told, not skipped
    np.testing.assert_allclose(
        found.loc[others, "loss_nats"], clean.loc[others, "loss_nats"], rtol=1e-5
    )


# the next run finds room


@pytest.mark.parametrize("ending", [None, KeyboardInterrupt, ValueError])
def test_a_cell_run_three_times_keeps_one_model_however_it_ended(monkeypatch, ending):
    models = weakref.WeakSet()

    class Watched(EngramLM):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            models.add(self)

    update = fit_module.Loop._update

    def stops(self):
        if ending is not None and self.step == 2:
            raise ending("stop")
        return update(self)

    monkeypatch.setattr(fit_module, "EngramLM", Watched)
    monkeypatch.setattr(fit_module.Loop, "_update", stops)
    alive, run, last_value = [], None, None
    for _ in range(3):
        try:
            run = fit(small_run(steps=4), progress=False)
        except ValueError as error:
            last_value = error  # a notebook keeps it, and with it the frames of its traceback
        gc.collect()
        alive.append(len(models))
    assert alive == [1, 1, 1]
    assert all(p.grad is None for model in models for p in model.parameters())
    assert not any(m._forward_hooks for model in models for m in model.modules())
    assert (run is None) == (last_value is not None) == (ending is ValueError)


# devices


@pytest.fixture
def asked(monkeypatch) -> list[tuple[bool, str]]:
    """What accelerators were asked for (CPU alone, precision), on a machine that has MPS."""
    found = []

    class Asked(Accelerator):
        def __init__(self, *, cpu, mixed_precision, kwargs_handlers):
            found.append((cpu, mixed_precision))

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(devices, "_forget_other_settings", lambda device, precision: None)
    monkeypatch.setattr(devices, "Accelerator", Asked)
    return found


@pytest.mark.parametrize("cuda", [True, False])
def test_auto_never_takes_mps_even_where_it_is_there(monkeypatch, asked, cuda):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    accelerator_for("auto")
    assert asked == [(False, "bf16") if cuda else (True, "no")]


def test_mps_is_taken_on_request_alone_and_with_a_caution(asked):
    with pytest.warns(UserWarning, match="MPS may give other numbers"):
        accelerator_for("mps")
    assert asked == [(False, "no")]


def test_mps_where_it_is_not_is_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="'mps' is not available here"):
        accelerator_for("mps")


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_optimiser_state_holds_no_float64(monkeypatch, optimizer):
    kept = []
    zero_grad = Optimizers.zero_grad

    def look(self):
        zero_grad(self)
        kept[:] = [self.state_tensors()]

    monkeypatch.setattr(Optimizers, "zero_grad", look)
    fit(small_run(steps=1, optimizer=optimizer), progress=False)
    assert kept[0]
    assert not [name for name, value in kept[0].items() if value.dtype == torch.float64]
