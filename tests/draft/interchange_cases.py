"""Drafters of every shape that a `speculators` checkpoint can hold, with weights from no generator.

The golden values of `tests/peers/make_speculators_golden.py` belong to these.
"""

import dataclasses

import torch
from torch import nn

from engram_lab.draft.drafter import Drafter
from engram_lab.draft.target import Target
from tests.draft.tiny import golden_pair

CASES = {
    "dspark": {},
    "gated": {"markov_head_type": "gated", "sample_from_anchor": False, "block_size": 3},
    "rnn": {
        "markov_head_type": "rnn",
        "confidence": False,
        "sliding_window": 3,
        "causal_block": True,
    },
    "dflash": {
        "markov_rank": 0,
        "confidence": False,
        "sample_from_anchor": False,
        "sliding_window": 4,
        "num_hidden_layers": 1,
        "rope_theta": 500.0,
    },
    "confident": {"markov_rank": 0, "target_layer_ids": (-1, 1), "confidence_detach": True},
}
"""By name, the fields in which each differs from the golden pair's drafter."""
TEXT = (5, 1, 7, 7, 12, 3, 0, 15, 2, 18, 9, 4, 4, 11, 6, 13, 8)
MASKED_IN = (2, 3, 4, 6, 9, 10)
"""Positions whose loss mask is set; all of them are far enough from the end to be anchors."""


def case(name: str) -> tuple[Target, Drafter]:
    """Target and drafter of a case; "dspark" has the golden pair's weights."""
    target, golden, _ = golden_pair()
    if name == "dspark":
        return target, golden
    config = dataclasses.replace(golden.config, **CASES[name])
    target = Target(target.model, config.target_layer_ids)
    return target, waved(Drafter(config, target)).eval()


def waved(module: nn.Module) -> nn.Module:
    """The module with weights along sine waves, the same on every machine."""
    with torch.no_grad():
        for index, (name, parameter) in enumerate(sorted(module.named_parameters())):
            wave = torch.sin(torch.arange(parameter.numel()) * 0.7 + index).view_as(parameter)
            parameter.copy_(wave * 0.3 + (1 if name.endswith("norm.weight") else 0))
    return module
