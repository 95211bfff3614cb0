"""The lens explorer: controls change the figure in place, and the model runs when it has to."""

import pytest

from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.probes.tuned_lens import TunedLens
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.tokenizer import load_tokenizer
from engram_lab.widgets.lens import lens_explorer


@pytest.fixture(scope="module")
def parts():
    tokenizer = load_tokenizer("byte")
    compression = VocabCompression.from_tokenizer(tokenizer)
    return EngramLM(tiny(tokenizer.vocab_size), compression=compression).eval(), tokenizer


@pytest.fixture
def passes(parts):
    """Counts how often the model runs."""
    count = []
    handle = parts[0].register_forward_hook(lambda *call: count.append(1))
    yield count
    handle.remove()


def controls(box):
    field, menus, message, picture = box.children
    lens, measure, layer = menus.children
    return field, lens, measure, layer, message, picture


def test_a_new_text_redraws_the_map_in_place(parts):
    box = lens_explorer(*parts, text="one")
    field, *_, picture = controls(box)
    field.value = "one and two"
    assert controls(box)[-1] is picture
    assert len(picture.data[0].x) == len("one and two")


def test_layer_and_measure_redraw_without_running_the_model(parts, passes):
    field, _, measure, layer, _, picture = controls(lens_explorer(*parts, text="one"))
    assert len(passes) == 1 and (layer.min, layer.max) == (0, 2)
    layer.value = 0
    measure.value = "entropy_nats"
    assert len(passes) == 1
    assert list(picture.data[1].y) == list(picture.data[0].z[0])
    assert picture.data[0].name == "entropy_nats"
    field.value = "two"
    assert len(passes) == 2


def test_lenses_are_offered_where_there_is_something_to_see(parts):
    plain = lens_explorer(*parts, text="one")
    _, lens, *_, picture = controls(plain)
    assert lens.options == ("logit lens", "without memory")
    before = picture.data[0].z.copy()
    lens.value = "without memory"
    assert (picture.data[0].z[2] != before[2]).all()
    tuned = controls(lens_explorer(*parts, text="one", tuned=TunedLens(2, 32)))
    assert "tuned lens" in tuned[1].options
    tuned[1].value = "tuned lens"
    assert tuned[-1].data[0].z == pytest.approx(before, abs=1e-5)


def test_a_text_that_cannot_be_read_says_why_and_keeps_the_picture(parts):
    field, *_, message, picture = controls(lens_explorer(*parts, text="one"))
    field.value = ""
    assert "at least one token" in message.value
    assert len(picture.data[0].x) == 3
    field.value = "four"
    assert message.value == "" and len(picture.data[0].x) == 4


def test_running_the_cell_again_doubles_no_callback(parts, passes):
    first = controls(lens_explorer(*parts, text="one"))
    second = controls(lens_explorer(*parts, text="one"))
    passes.clear()
    second[0].value = "other"
    assert len(passes) == 1
    assert len(first[-1].data[0].x) == 3 and len(second[-1].data[0].x) == 5
