"""Small drafters in production form, for the targets of `tiny`."""

import torch
from torch import nn

from engram_lab.draft.released import ReleasedDrafter
from engram_lab.draft.released_config import ReleasedConfig, quick
from engram_lab.draft.target import Target
from tests.draft.tiny import family, ruffled


def shape(model: nn.Module, **changes: object) -> ReleasedConfig:
    target = Target(model)
    sizes = {
        "vocab_size": target.vocab_size,
        "hidden_size": target.hidden_size,
        "target_depth": target.depth,
        "mask_token_id": 3,
    }
    return quick(**sizes | changes)


def drafter_of(name: str = "memory", **changes: object) -> ReleasedDrafter:
    """A random drafter of a target of `tiny.family`."""
    model = family(name, context=256)
    config = shape(model, **changes)
    torch.manual_seed(2)
    drafter = ReleasedDrafter(config, Target(model, config.target_layer_ids, tap=config.tap))
    return ruffled(drafter, spread=0.05).eval()
