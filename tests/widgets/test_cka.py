"""The CKA explorer: filters and estimator change the map in place; the models run once."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.cka import cka_frame
from engram_lab.widgets.cka import cka_explorer


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(0)
    plain = EngramLM(tiny().replace(engram=None))
    return plain, EngramLM(tiny().replace(engram=replace(tiny().engram, compress=False)))


@pytest.fixture(scope="module")
def ids():
    return torch.randint(4, 260, (4, 10), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def classes(ids):
    return (torch.arange(ids.numel()) % 4 > 0).long().view_as(ids)


def controls(box):
    menus, message, picture = box.children
    return *menus.children, message, picture


def cells(picture) -> np.ndarray:
    return np.array(picture.data[0].z)


def expected(models, ids, **arguments) -> np.ndarray:
    return cka_frame(*models, ids, **arguments)["cka"].to_numpy().reshape(3, 3)


def test_it_shows_what_the_plain_call_shows(models, ids):
    *_, picture = controls(cka_explorer(*models, ids))
    assert cells(picture) == pytest.approx(expected(models, ids), abs=1e-6)


def test_controls_redraw_in_place_and_the_models_run_once(models, ids, classes):
    box = cka_explorer(*models, ids, classes=classes, class_names=("static", "computed"))
    passes = []
    handle = models[0].register_forward_hook(lambda *call: passes.append(1))
    kind, estimator, span, _, picture = controls(box)
    kind.value = 1
    estimator.value = "biased"
    assert controls(box)[-1] is picture and kind.options[2] == ("computed", 1)
    found = cells(picture)
    span.value = (3, 8)
    narrow = cells(picture)
    handle.remove()
    assert not passes
    keep = classes == 1
    assert found == pytest.approx(expected(models, ids, keep=keep, estimator="biased"), abs=1e-6)
    keep[:, :3], keep[:, 9:] = False, False
    assert narrow == pytest.approx(expected(models, ids, keep=keep, estimator="biased"), abs=1e-6)


def test_a_filter_that_leaves_too_little_says_why_and_keeps_the_picture(models, ids, classes):
    box = cka_explorer(*models, ids[:1], classes=classes[:1], class_names=("static", "computed"))
    kind, _, _, message, picture = controls(box)
    before = cells(picture)
    kind.value = 0
    assert "at least 4 samples" in message.value
    assert (cells(picture) == before).all()
    kind.value = 1
    assert message.value == "" and (cells(picture) != before).any()


def test_running_the_cell_again_doubles_no_callback(models, ids):
    first = controls(cka_explorer(*models, ids))
    second = controls(cka_explorer(*models, ids))
    before = cells(first[-1])
    second[1].value = "minibatch"
    assert (cells(first[-1]) == before).all()
    assert len(second[-1].data) == len(first[-1].data)


def test_classes_must_fit_the_ids(models, ids):
    with pytest.raises(ValueError, match=r"shape of the ids, \(4, 10\); got \(4, 9\)"):
        cka_explorer(*models, ids, classes=torch.zeros(4, 9))
