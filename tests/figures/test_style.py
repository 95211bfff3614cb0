"""The look: colours that stay, errors that help, files that are the same for the same figure."""

import json
import warnings

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
import pytest

from engram_lab.figures import style
from engram_lab.figures.gates import gate_heatmap
from engram_lab.figures.style import Room, colour, plain, require, save, symbol, titled
from tests.figures.frames import footer, gate_rows


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_LAB_HOME", str(tmp_path))
    return tmp_path


def small_figure() -> go.Figure:
    figure = go.Figure(go.Scatter(x=np.array([0.1, 1 / 3]), y=pd.Series([1, np.nan]), uid="random"))
    return titled(figure, title="Small", note="a footer")


def test_save_writes_the_same_bytes_for_the_same_figure(home):
    first = save(small_figure(), "small", png=False).read_bytes()
    assert save(small_figure(), "small", png=False).read_bytes() == first
    assert first.endswith(b"}\n")
    assert [path.name for path in (home / "figures").iterdir()] == ["small.json"]


def test_saved_figures_hold_plain_rounded_lists_and_no_random_names(home):
    content = json.loads(save(small_figure(), "small", png=False).read_text())
    trace = content["data"][0]
    assert trace["x"] == [0.1, 0.333333]
    assert trace["y"] == [1.0, None]
    assert "uid" not in trace


def test_a_saved_figure_can_be_read_and_drawn_again(home):
    figure = pio.from_json(save(small_figure(), "small", png=False).read_text())
    assert figure.layout.title.text == "<b>Small</b>"
    assert list(figure.data[0].x) == [0.1, 0.333333]


@pytest.mark.parametrize("name", ["Small", "a/b", "../x", ""])
def test_a_name_that_is_no_file_stem_is_refused(name):
    with pytest.raises(ValueError, match="lower-case letters, digits and underscores"):
        save(small_figure(), name, png=False)


def test_no_browser_means_no_png_and_one_line_that_says_why(home, monkeypatch):
    def no_browser(*arguments, **options):
        raise RuntimeError("no browser was found\nsecond line")

    monkeypatch.setattr(go.Figure, "write_image", no_browser)
    with pytest.warns(UserWarning, match="no PNG beside small.json: no browser was found$"):
        path = save(small_figure(), "small")
    assert path.exists()
    assert not path.with_suffix(".png").exists()


@pytest.mark.slow  # starts a browser
@pytest.mark.browser
def test_a_png_lies_beside_the_json_where_there_is_a_browser(home):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = save(small_figure(), "small")
    reasons = [str(warning.message) for warning in caught if "no PNG" in str(warning.message)]
    if reasons:
        pytest.skip(reasons[0])
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_column_is_named_with_the_probe_that_makes_it():
    message = (
        r"gate_heatmap needs columns layer, .*; missing: gate. probes.gates.gate_frame\(\) makes"
    )
    with pytest.raises(ValueError, match=message):
        gate_heatmap(gate_rows().drop(columns="gate"))


def test_an_empty_frame_is_refused():
    with pytest.raises(ValueError, match="at least one row; the frame is empty"):
        require(pd.DataFrame(columns=["a"]), "a", made_by="probes.x")


def test_a_model_has_one_colour_and_unknown_ones_keep_theirs():
    assert colour("engram") == style.COLOURS["engram"]
    assert colour("something new") == colour("something new")
    assert colour("something new") not in style.COLOURS.values()


def test_colours_differ_in_lightness_too():
    def lightness(shade: str) -> float:
        red, green, blue = (int(shade[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for group in (("static", "computed", "filler"), ("engram", "neighbour", "wide_ffn")):
        values = sorted(lightness(style.COLOURS[name]) for name in group)
        assert min(np.diff(values)) > 10


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("exact", "square"),
        ("digitised", "square"),
        ("approx", "square-open"),
        ("secondary", "square-open"),
    ],
)
def test_published_values_of_lower_grade_are_hollow(kind, expected):
    assert symbol(kind, "square") == expected


def test_long_notes_are_wrapped_and_given_room():
    short, long = (titled(go.Figure(), title="t", note="word " * n) for n in (5, 200))
    assert long.layout.height > short.layout.height
    assert long.layout.margin.b > short.layout.margin.b
    assert footer(long).count("word") == 200
    lines = next(note.text for note in long.layout.annotations).split("<br>")
    assert max(map(len, lines)) < Room().width / 5


def test_plain_turns_every_number_into_json():
    assert plain({"a": np.float32(0.5), "b": (np.int64(2), float("inf")), "c": True}) == {
        "a": 0.5,
        "b": [2, None],
        "c": True,
    }
