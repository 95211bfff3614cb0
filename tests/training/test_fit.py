"""fit: repeatable, resumable, stoppable; and load_or_fit, which trains each config once."""

import gc
import json
import shutil
import weakref
from dataclasses import replace

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from engram_lab import paths
from engram_lab.configs import fingerprint
from engram_lab.training import fit as fit_module
from engram_lab.training import loop
from engram_lab.training.checkpoint import checkpoint_paths
from engram_lab.training.data import load_data
from engram_lab.training.fit import HISTORY, fit, load_or_fit
from engram_lab.training.loop import NonFiniteLoss
from engram_lab.training.objective import NextToken
from tests.training.runs import assert_equal_weights, small_run, with_train

MEASURED = ["step", "tokens", "loss_nats", "lr", "grad_norm"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))


def stop_at(
    monkeypatch, step: int, error: BaseException | None = None, factor: float = 1.0
) -> None:
    """Raise `error` in update `step` (from 0), or multiply its loss by `factor`."""
    loss = NextToken.loss

    def changed(self, model, part, share):
        if share.step_for_test == step:
            if error is not None:
                raise error
            return tuple(value * factor for value in loss(self, model, part, share))
        return loss(self, model, part, share)

    share = NextToken.share

    def numbered(self, step, *args):
        found = share(self, step, *args)
        object.__setattr__(found, "step_for_test", step)
        return found

    monkeypatch.setattr(NextToken, "share", numbered)
    monkeypatch.setattr(NextToken, "loss", changed)


def quiet(run, **options):
    return fit(run, progress=False, **options)


def test_history_has_one_row_per_update():
    run = quiet(small_run())
    assert tuple(run.history.columns) == HISTORY
    assert run.history["step"].tolist() == list(range(1, 9))
    assert run.history["tokens"].tolist() == [128 * step for step in range(1, 9)]
    assert run.history["seconds"].is_monotonic_increasing
    assert run.history["seconds"].iloc[-1] == pytest.approx(run.seconds)
    assert (run.history["tokens_per_s"] > 0).all()
    assert run.train_tokens == 8 * 128
    assert not run.interrupted


def test_training_lowers_the_loss():
    history = quiet(small_run(steps=40, lr=1e-2)).history
    assert history["loss_nats"].tail(5).mean() < history["loss_nats"].head(5).mean() - 0.1


def test_equal_configs_give_equal_numbers_whatever_happened_before():
    one = quiet(small_run())
    torch.rand(100)
    other = quiet(small_run())
    assert_equal_weights(one.model, other.model)
    pd.testing.assert_frame_equal(one.history[MEASURED], other.history[MEASURED])


def test_the_seed_decides_weights_and_order():
    assert (
        quiet(small_run()).history["loss_nats"][0]
        != quiet(small_run(seed=1)).history["loss_nats"][0]
    )


def test_arms_of_one_seed_see_the_same_batches():
    arms = [small_run(), small_run(moe={"n_routed_experts": 8}, lr=0.1)]
    orders = [NextToken(load_data(arm).train, arm.train, arm.seed) for arm in arms]
    for step in (0, 5, 90):
        first, second = (order.share(step).parts[0].input_ids for order in orders)
        assert torch.equal(first, second)


def test_global_randomness_is_left_as_found():
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    quiet(small_run())
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_micro_batches_give_the_update_of_the_whole_batch(micro_batches):
    # rows of 48 of documents of 128: parts predict different numbers of tokens; every expert sees
    # every token, since a choice between near-equal scores turns a rounding error into a jump, and
    # few steps are taken, since Adam blows up the rounding of gradients near 0
    run = {"seq_len": 48, "steps": 4, "moe": {"n_routed_experts": 2}}
    whole = quiet(small_run(**run))
    parts = quiet(small_run(**run, micro_batches=micro_batches))
    # sums in another order
    for column in ("loss_nats", "grad_norm"):
        expected = torch.tensor(whole.history[column].to_numpy())
        torch.testing.assert_close(
            torch.tensor(parts.history[column].to_numpy()), expected, rtol=1e-4, atol=1e-5
        )


def test_the_reported_loss_is_plain_cross_entropy_with_balance_loss_on():
    run = small_run(moe={"sequence_loss": 0.5})
    trained = quiet(with_train(run, steps=1))
    batch = NextToken(load_data(run).train, run.train, run.seed).share(0).parts[0]
    torch.manual_seed(run.seed)
    model = fit_module.EngramLM(run.model, trained.compression)
    logits = model(batch.input_ids, document_ids=batch.document_ids).logits
    same = batch.document_ids[:, 1:] == batch.document_ids[:, :-1]
    losses = F.cross_entropy(logits[:, :-1][same], batch.input_ids[:, 1:][same], reduction="none")
    assert trained.history["loss_nats"][0] == pytest.approx(losses.mean().item(), rel=1e-5)


def test_balance_loss_changes_the_gradient_but_not_the_first_loss():
    off, on = (quiet(small_run(moe={"sequence_loss": s}, steps=2)).history for s in (0.0, 0.5))
    assert off["loss_nats"][0] == on["loss_nats"][0]
    assert off["grad_norm"][0] != on["grad_norm"][0]


def test_an_interrupt_returns_what_there_is(monkeypatch):
    stop_at(monkeypatch, 5, KeyboardInterrupt())
    run = quiet(small_run())
    assert run.interrupted
    assert run.history["step"].tolist() == [1, 2, 3, 4, 5]
    assert all(p.grad is None for p in run.model.parameters())
    assert not run.model.training


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch, optimizer):
    config = small_run(optimizer=optimizer, checkpoint_every=2)
    whole = quiet(config)
    with monkeypatch.context() as patch:
        stop_at(patch, 5, KeyboardInterrupt())
        quiet(config, checkpoint_dir=tmp_path / "steps")
    assert [p.name for p in checkpoint_paths(tmp_path / "steps")] == [
        "step_00000002",
        "step_00000004",
    ]
    resumed = quiet(config, checkpoint_dir=tmp_path / "steps")
    assert_equal_weights(resumed.model, whole.model)
    pd.testing.assert_frame_equal(resumed.history[MEASURED], whole.history[MEASURED])


def test_a_damaged_newest_checkpoint_costs_only_its_own_steps(tmp_path):
    config = small_run(checkpoint_every=2)
    whole = quiet(config, checkpoint_dir=tmp_path)
    (checkpoint_paths(tmp_path)[-1] / "model.safetensors").write_bytes(b"half")
    with pytest.warns(UserWarning, match="damaged"):
        resumed = quiet(config, checkpoint_dir=tmp_path)
    assert_equal_weights(resumed.model, whole.model)


def test_a_checkpoint_from_before_a_field_existed_is_gone_on_from(tmp_path, monkeypatch):
    config = small_run(checkpoint_every=2)
    whole = quiet(config, checkpoint_dir=tmp_path)
    load = loop.checkpoints.load_newest

    def older(folder):
        found = load(folder)
        stored = json.loads(found.state["config"])
        del stored["data"]["topic_zipf"]
        found.state["config"] = json.dumps(stored)
        return found

    monkeypatch.setattr(loop.checkpoints, "load_newest", older)
    assert_equal_weights(quiet(config, checkpoint_dir=tmp_path).model, whole.model)
    changed = replace(config, data=replace(config.data, topic_zipf=0.5))
    with pytest.raises(ValueError, match="another config"):
        quiet(changed, checkpoint_dir=tmp_path)


def test_checkpoints_of_another_config_are_refused(tmp_path):
    quiet(small_run(), checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="another config"):
        quiet(small_run(seed=1), checkpoint_dir=tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run_and_names_step_and_checkpoint(
    tmp_path, monkeypatch, value
):
    stop_at(monkeypatch, 4, factor=value)
    with pytest.raises(NonFiniteLoss, match=r"at step 5 .*step_00000004") as caught:
        quiet(small_run(checkpoint_every=2), checkpoint_dir=tmp_path)
    assert isinstance(caught.value, FloatingPointError)
    assert [row["step"] for row in caught.value.history][:5] == [1, 2, 3, 4, 5]
    assert checkpoint_paths(tmp_path)[-1].name == "step_00000004"


def test_a_full_disk_stops_the_run_and_keeps_the_checkpoints(tmp_path, monkeypatch):
    config = small_run(checkpoint_every=2)
    whole = quiet(config)
    save = fit_module.Loop._save

    def full_at_six(self, folder):
        if self.step == 6:
            raise OSError(28, "No space left on device")
        save(self, folder)

    with monkeypatch.context() as patch:
        patch.setattr(fit_module.Loop, "_save", full_at_six)
        with pytest.raises(OSError, match="No space"):
            quiet(config, checkpoint_dir=tmp_path)
    assert_equal_weights(quiet(config, checkpoint_dir=tmp_path).model, whole.model)


def test_the_bar_shows_loss_speed_and_time_left(capsys):
    fit(small_run())
    shown = capsys.readouterr().err
    assert "nats" in shown and "tokens/s" in shown and "8/8" in shown and "<" in shown


def test_without_progress_nothing_is_shown(capsys):
    quiet(small_run())
    assert capsys.readouterr().err == ""


def test_a_model_at_hand_is_trained_further():
    first = quiet(small_run())
    more = quiet(small_run(seed=1, lr=1e-4), model=first.model)
    assert more.model is first.model
    assert more.history["loss_nats"][0] < quiet(small_run(seed=1)).history["loss_nats"][0]


def test_the_second_request_loads_and_trains_nothing(monkeypatch):
    run = small_run()
    trained = load_or_fit(run, progress=False)
    monkeypatch.setattr(fit_module, "fit", None)
    loaded = load_or_fit(run, progress=False)
    assert_equal_weights(loaded.model, trained.model)
    pd.testing.assert_frame_equal(loaded.history, trained.history)
    assert loaded.config == run and loaded.seconds == trained.seconds
    assert not loaded.model.training
    folder = paths.checkpoints_dir() / fingerprint(run)
    assert sorted(p.name for p in paths.checkpoints_dir().iterdir() if p.is_dir()) == [folder.name]


def test_an_interrupted_run_is_not_kept_but_goes_on_next_time(monkeypatch):
    run = small_run(checkpoint_every=2)
    with monkeypatch.context() as patch:
        stop_at(patch, 5, KeyboardInterrupt())
        assert load_or_fit(run, progress=False).interrupted
    assert not (paths.checkpoints_dir() / fingerprint(run)).exists()
    resumed = load_or_fit(run, progress=False)
    assert not resumed.interrupted
    assert_equal_weights(resumed.model, quiet(run).model)


def test_a_kept_model_of_another_config_is_refused():
    run = small_run()
    load_or_fit(run, progress=False)
    record = paths.checkpoints_dir() / fingerprint(run) / "run.json"
    values = json.loads(record.read_text())
    values["config"]["seed"] = 9
    record.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="Delete the folder"):
        load_or_fit(run, progress=False)


@pytest.mark.parametrize("damage", ["weights", "record", "history"])
def test_a_damaged_kept_model_is_trained_again_with_a_warning(damage):
    run = small_run()
    trained = load_or_fit(run, progress=False)
    folder = paths.checkpoints_dir() / fingerprint(run)
    if damage == "weights":
        (folder / "model.safetensors").write_bytes(b"half")
    elif damage == "record":
        (folder / "run.json").write_text("{")
    else:
        (folder / "history.csv").unlink()
    with pytest.warns(UserWarning, match="damaged"):
        again = load_or_fit(run, progress=False)
    assert_equal_weights(again.model, trained.model)
    assert_equal_weights(load_or_fit(run, progress=False).model, trained.model)


def test_a_full_disk_while_keeping_the_model_loses_no_step(monkeypatch):
    run = small_run()
    whole = quiet(run)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fit_module.EngramLM, "save_pretrained", full)
        with pytest.raises(OSError, match="No space"):
            load_or_fit(run, progress=False)
    stop_at(monkeypatch, 0, AssertionError("a finished step was trained again"))
    assert_equal_weights(load_or_fit(run, progress=False).model, whole.model)


def test_a_deleted_folder_is_made_again(tmp_path):
    run = small_run()
    load_or_fit(run, progress=False)
    shutil.rmtree(paths.checkpoints_dir())
    load_or_fit(run, progress=False)
    assert (paths.checkpoints_dir() / fingerprint(run) / "run.json").is_file()


def test_a_run_that_is_let_go_leaves_no_model_behind(tmp_path):
    run = quiet(small_run(), checkpoint_dir=tmp_path)
    model = weakref.ref(run.model)
    del run
    gc.collect()
    assert model() is None


def test_a_failed_run_leaves_no_model_behind_once_its_error_is_gone(monkeypatch):
    stop_at(monkeypatch, 4, factor=float("nan"))
    model = fit_module.EngramLM(small_run().model, load_data(small_run()).compression)
    with pytest.raises(NonFiniteLoss) as caught:
        quiet(small_run(), model=model)
    model = weakref.ref(model)
    del caught
    gc.collect()
    assert model() is None
