"""Late losses: means over windows at the end of a history, and the figure that pairs arms."""

from dataclasses import replace

import pandas as pd
import pytest

from engram_lab.figures.training_noise import training_noise
from engram_lab.model.presets import tiny
from engram_lab.probes.training_noise import late_losses
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.fit import TrainedRun, fit
from tests.figures.frames import footer, traces

DATA = DataConfig(corpus="d8", train_tokens=2_000, eval_tokens=600)
TRAIN = TrainConfig(batch_size=4, seq_len=32, steps=1, device="cpu")


@pytest.fixture(scope="module")
def trained() -> TrainedRun:
    run = fit(RunConfig(model=tiny(vocab_size(DATA)), data=DATA, train=TRAIN), progress=False)
    steps = pd.Series(range(1, 101))
    history = pd.DataFrame({"step": steps, "tokens": 128 * steps, "loss_nats": 10.0 - 0.1 * steps})
    return replace(run, history=history)


def test_windows_are_equal_parts_of_the_end(trained):
    frame = late_losses(trained, share=0.2, windows=4)
    assert list(frame["updates"]) == [5] * 4
    assert list(frame["tokens"]) == [128 * step for step in (85, 90, 95, 100)]
    assert list(frame["loss_nats"]) == pytest.approx([1.7, 1.2, 0.7, 0.2])
    assert set(frame["train_tokens"]) == {12_800}


def test_there_are_no_more_windows_than_updates(trained):
    assert list(late_losses(trained, share=0.03)["updates"]) == [1] * 3


def test_what_has_no_last_part_is_refused(trained):
    with pytest.raises(ValueError, match="share must lie in .* got 0.0 and 10"):
        late_losses(trained, share=0.0)
    with pytest.raises(ValueError, match="its history is empty. Train it"):
        late_losses(replace(trained, history=trained.history.head(0)))


def late_rows() -> pd.DataFrame:
    rows = [
        {
            "arm": arm,
            "seed": seed,
            "window": window,
            "tokens": 80 + 10 * window,
            "loss_nats": 2.0 + seed - 0.1 * window - gain,
            "train_tokens": 100,
        }
        for arm, gain in (("experts", 0.0), ("engram", 0.3))
        for seed in (0, 1)
        for window in range(3)
    ]
    return pd.DataFrame(rows)


def test_arms_are_drawn_beside_each_other_and_minus_the_reference():
    figure = training_noise(late_rows())
    whole, paired = (t for t in traces(figure, "hybrid") if t.mode == "lines+markers")
    assert list(whole.x) == pytest.approx([0.8, 0.9, 1.0])
    assert list(whole.y) == pytest.approx([2.2, 2.1, 2.0])
    assert list(paired.y) == pytest.approx([-0.3] * 3)
    assert not [t for t in traces(figure, "experts only") if t.xaxis == "x2"]
    assert "2 seeds" in footer(figure)
