"""Small runs that the tests of this folder share."""

import dataclasses

import torch

from engram_lab.memory.config import EngramConfig
from engram_lab.model.config import EngramLMConfig, MoEConfig
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size

DATA = DataConfig(corpus="d8", train_tokens=8_000, eval_tokens=700)


def small_run(
    *, seed: int = 0, data: DataConfig = DATA, engram=None, moe=None, **train
) -> RunConfig:
    """A hybrid of 2 blocks, width 16, and 8 steps of 4 x 32 tokens."""
    memory = {"layer_ids": (1,), "engram_vocab_size": (97, 97), "n_head_per_ngram": 2}
    experts = {"n_routed_experts": 4, "topk": 2, "expert_width": 8, "shared_width": 16}
    model = EngramLMConfig(
        vocab_size=vocab_size(data),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        engram=EngramConfig(**memory | {"n_embed_per_ngram": 8} | (engram or {})),
        moe=MoEConfig(**experts | (moe or {})),
    )
    sizes = {"batch_size": 4, "seq_len": 32, "steps": 8, "log_every": 3, "device": "cpu"}
    return RunConfig(model=model, data=data, train=TrainConfig(**sizes | train), seed=seed)


def with_train(run: RunConfig, **changes) -> RunConfig:
    return dataclasses.replace(run, train=dataclasses.replace(run.train, **changes))


def assert_equal_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    """Bit for bit."""
    expected = other.state_dict()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
