"""A model that was looked at is in the modes it was in."""

import pytest
import torch
from torch import nn

from engram_lab.model.undisturbed import undisturbed


def mixed() -> nn.Sequential:
    """A model in training mode, one part of it not."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train()
    model[1].eval()
    return model


def modes(model: nn.Module) -> list[bool]:
    """Mode of every module."""
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("start", [mixed, lambda: mixed().eval(), lambda: mixed().train()])
@pytest.mark.parametrize("fails", [False, True])
def test_every_module_is_back_in_its_mode_whatever_happens_inside(start, fails: bool):
    model = start()
    before = modes(model)
    try:
        with undisturbed(model):
            assert not any(modes(model))
            assert not torch.is_grad_enabled()
            model[1].train()
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert modes(model) == before
    assert torch.is_grad_enabled()


def test_a_model_in_evaluation_mode_is_not_set_to_it_again(monkeypatch: pytest.MonkeyPatch):
    model = mixed().eval()
    monkeypatch.setattr(model, "eval", None)
    with undisturbed(model):
        assert not any(modes(model))
