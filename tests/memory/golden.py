"""Readers of the golden files the memory tests share."""

import json
from pathlib import Path

import torch

from engram_lab.memory.config import EngramConfig

FOLDER = Path(__file__).resolve().parents[1] / "golden"


def load(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def config(case: dict, **changes) -> EngramConfig:
    """Config of a hashing case of the January demo: nothing is masked or reset."""
    heads, width = case["n_heads"], case.get("head_dim", 2)
    base = {
        "layer_ids": tuple(case["layer_ids"]),
        "max_ngram_size": case["max_ngram_size"],
        "engram_vocab_size": tuple(case["vocab_size_per_order"]),
        "n_head_per_ngram": heads,
        "n_embed_per_ngram": heads * width,
        "seed": case.get("seed", 0),
        "reset": "none",
        "padding": "hashed",
        "conv_reset": False,
    }
    return EngramConfig(**{**base, **changes})
