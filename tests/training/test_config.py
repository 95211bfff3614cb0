"""RunConfig and its parts: rules, JSON, the learning rate as a function of the step."""

import dataclasses

import pytest

from engram_lab.configs import fingerprint, from_json, to_json
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig, rate_factor
from tests.training.runs import small_run, with_train


def test_a_run_config_survives_json():
    run = small_run(clip_norm=None, betas=(0.8, 0.9))
    assert from_json(RunConfig, to_json(run)) == run
    assert fingerprint(from_json(RunConfig, to_json(run))) == fingerprint(run)


def test_every_change_gives_another_fingerprint():
    run = small_run()
    others = [
        small_run(seed=1),
        with_train(run, lr=1e-3),
        dataclasses.replace(run, data=DataConfig()),
    ]
    assert len({fingerprint(config) for config in [run, *others]}) == 4


@pytest.mark.parametrize(
    ("cls", "field", "value"),
    [
        (DataConfig, "corpus", "d99"),
        (DataConfig, "static_share", 1.5),
        (DataConfig, "train_tokens", 0),
        (DataConfig, "seed", -1),
        (TrainConfig, "optimizer", "sgd"),
        (TrainConfig, "schedule", "linear"),
        (TrainConfig, "device", "tpu"),
        (TrainConfig, "seq_len", 1),
        (TrainConfig, "lr", float("nan")),
        (TrainConfig, "clip_norm", 0.0),
        (TrainConfig, "warmup_share", 2.0),
        (TrainConfig, "betas", (0.9, 1.0)),
        (TrainConfig, "steps", 0),
    ],
)
def test_a_broken_rule_names_field_and_value(cls, field, value):
    config = cls()
    # set behind the back of the run-time type checks, which only tests have
    object.__setattr__(config, field, value)
    with pytest.raises(ValueError, match=field) as caught:
        config.__post_init__()
    assert str(value).split(",")[0].strip("(") in str(caught.value)


def test_micro_batches_must_divide_the_batch():
    with pytest.raises(ValueError, match=r"divide batch_size \(16\); got 3"):
        TrainConfig(micro_batches=3)


def test_rows_longer_than_the_model_allows_are_refused():
    with pytest.raises(ValueError, match=r"max_position_embeddings \(64\); got 65"):
        small_run(seq_len=65)


def test_the_neighbour_control_needs_two_rows_in_a_micro_batch():
    with pytest.raises(ValueError, match="at least 2; got 1"):
        small_run(engram={"addresses": "neighbour"}, micro_batches=4)


def test_steps_default_to_one_pass_over_the_tokens():
    assert small_run(steps=None).steps == 8_000 // (4 * 32)


def test_the_rate_rises_then_falls_to_a_tenth():
    train = TrainConfig(warmup_share=0.1)
    factors = [rate_factor(train, step, 100) for step in range(101)]
    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == factors[10] == 1.0
    assert factors[100] == pytest.approx(0.1)
    assert sorted(factors[10:], reverse=True) == factors[10:]


def test_the_step_schedule_falls_at_80_and_90_percent():
    train = TrainConfig(schedule="step", warmup_share=0.0)
    assert [rate_factor(train, step, 100) for step in (79, 80, 89, 90)] == [1.0, 0.316, 0.316, 0.1]
