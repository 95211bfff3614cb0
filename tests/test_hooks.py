"""Hooks: watching and changing activations leaves nothing behind."""

import pytest
import torch
from torch import nn

from engram_lab.hooks import HookPoint, edit, record


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.hook_mid, self.second = nn.Linear(3, 3), HookPoint(), nn.Linear(3, 3)

    def forward(self, x):
        return self.second(self.hook_mid(self.first(x)))


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) for m in model.modules())


def test_record_fills_a_detached_copy():
    model = Toy()
    with record(model, ["hook_*"]) as seen:
        model(torch.ones(2, 4, 3))
    assert seen["hook_mid"].shape == (2, 4, 3) and seen["hook_mid"].grad_fn is None
    torch.testing.assert_close(seen["hook_mid"], model.first(torch.ones(2, 4, 3)))


def test_positions_and_dtype_bound_what_is_kept():
    with record(model := Toy(), ["hook_mid"], positions=[0, -1], dtype=torch.bfloat16) as seen:
        model(torch.ones(2, 4, 3))
    assert seen["hook_mid"].shape == (2, 2, 3) and seen["hook_mid"].dtype == torch.bfloat16


def test_reading_before_a_forward_pass_is_an_error():
    with record(Toy(), ["hook_mid"]) as seen, pytest.raises(KeyError, match="run the model"):
        seen["hook_mid"]


def test_a_pattern_that_fits_nothing_lists_near_matches():
    with pytest.raises(KeyError, match="hook_mid"), record(Toy(), ["hook_mit"]):
        pass


def test_hooks_go_away_after_nesting_and_exceptions():
    model = Toy()
    with record(model, ["*"]), record(model, ["hook_mid"]):
        assert hooks_of(model) > 0
    with pytest.raises(RuntimeError), edit(model, {"first": lambda v: v}):
        raise RuntimeError
    assert hooks_of(model) == 0


def test_edit_changes_the_value_on_its_way():
    model, x = Toy(), torch.ones(1, 3)
    with edit(model, {"hook_mid": torch.zeros_like}):
        edited = model(x)
    torch.testing.assert_close(edited, model.second(torch.zeros(1, 3)))


@pytest.mark.parametrize(
    ("change", "error"), [(lambda v: None, TypeError), (lambda v: v[..., :1], ValueError)]
)
def test_an_edit_that_returns_nonsense_is_refused(change, error):
    model = Toy()
    with pytest.raises(error, match="hook_mid"), edit(model, {"hook_mid": change}):
        model(torch.ones(1, 3))
    assert hooks_of(model) == 0


def test_edits_of_one_point_apply_in_order():
    model, x = Toy(), torch.ones(1, 3)
    with edit(model, {"hook_mid": torch.zeros_like, "*_mid": lambda v: v + 1}):
        torch.testing.assert_close(model(x), model.second(torch.ones(1, 3)))


def test_an_edit_of_a_module_that_never_runs_is_an_error():
    model = Toy()
    model.unused = nn.Linear(3, 3)
    with pytest.raises(RuntimeError, match="without calling unused"):  # noqa: SIM117
        with edit(model, {"unused": torch.zeros_like}):
            model(torch.ones(1, 3))
    assert hooks_of(model) == 0
