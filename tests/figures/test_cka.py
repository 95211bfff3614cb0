"""CKA figures: every pair in its cell, the ridge on it, nothing hidden and nothing unexplained."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.figures.cka import cka_heatmap
from engram_lab.figures.cka_alignment import alignment_curve
from engram_lab.published import load_published
from tests.figures.frames import footer, traces

LAYERS = 5


def cka_rows(**columns) -> pd.DataFrame:
    rows = [
        {
            "layer_a": i,
            "layer_b": j,
            "estimator": "debiased",
            "cka": 1 - 0.2 * abs(i - j),
            "low": 0.9 - 0.2 * abs(i - j),
            "high": 1.0,
            "reason": "",
            "samples": 2000,
        }
        for i in range(LAYERS)
        for j in range(LAYERS)
    ]
    return pd.DataFrame(rows).assign(**columns)


def aligned_rows(gain: float = 1.0, **columns) -> pd.DataFrame:
    layers = np.arange(LAYERS)
    frame = pd.DataFrame({"layer_b": layers, "estimator": "debiased", "alignment": layers + gain})
    frame = frame.assign(low=layers + gain - 0.2, high=layers + gain + 0.2, reason="", topk=3)
    return frame.assign(samples=2000, **columns)


def two(make) -> pd.DataFrame:
    return pd.concat([make(comparison="with memory"), make(comparison="another seed")])


def heats(figure) -> list:
    return [trace for trace in figure.data if trace.type == "heatmap"]


def test_the_plain_model_is_down_and_the_other_across():
    frame = cka_rows()
    frame.loc[(frame["layer_a"] == 1) & (frame["layer_b"] == 3), "cka"] = 0.123
    heat = heats(cka_heatmap(frame.sample(frac=1, random_state=0)))[0]
    assert heat.z[1][3] == pytest.approx(0.123)
    assert list(heat.x) == list(heat.y) == list(range(LAYERS))
    assert heat.text[1][3] == "CKA 0.123 (0.500 to 1.000)"


def test_each_comparison_has_a_panel_with_its_title_in_order_of_appearance():
    figure = cka_heatmap(two(cka_rows), alignment=two(aligned_rows))
    assert len(heats(figure)) == 2
    titles = [note.text for note in figure.layout.annotations if note.name != "footer"]
    assert titles == ["<b>with memory</b>", "<b>another seed</b>"]
    assert figure.layout.yaxis.title.text == "layer of the plain model"
    assert figure.layout.xaxis2.title.text == "layer of the other model"


def test_the_ridge_is_drawn_where_the_alignment_is():
    figure = cka_heatmap(cka_rows(), alignment=aligned_rows(0.5))
    (ridge,) = traces(figure, "soft alignment")
    assert list(ridge.y) == pytest.approx([0.5, 1.5, 2.5, 3.5, 4.5])
    assert "centre of the 3 most similar plain layers" in footer(figure)
    names = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert names == ["CKA", "equal depth", "soft alignment"]


def test_published_alignment_is_hollow_and_scaled_to_the_depth():
    published = load_published("engram_fig4_alignment")
    figure = cka_heatmap(two(cka_rows), published=published)
    (point,) = traces(figure, "published, by share of depth")
    assert point.x[0] == pytest.approx(5 / 30 * 4) and point.y[0] == pytest.approx(12 / 30 * 4)
    assert list(point.marker.symbol) == ["diamond-open"]
    assert "approx, scaled to this depth" in footer(figure)


def test_negative_estimates_are_shown_below_a_white_zero():
    frame = cka_rows()
    frame.loc[0, "cka"] = -0.25
    axis = cka_heatmap(frame).layout.coloraxis
    assert (axis.cmin, axis.cmax) == (-0.25, 1)
    white = [place for place, shade in axis.colorscale if shade == "#FFFFFF"]
    assert white == pytest.approx([0.2])
    assert cka_heatmap(cka_rows().assign(cka=0.5)).layout.coloraxis.cmin == 0


def test_the_footer_explains_the_estimator_and_says_n():
    text = footer(cka_heatmap(cka_rows()))
    assert "half of those are negative; nothing is clipped" in text
    assert "2,000 positions compared" in text
    assert "above 0 even for" in footer(cka_heatmap(cka_rows(estimator="biased")))


def test_missing_values_are_named_in_cell_and_footer():
    frame = cka_rows()
    gone = frame["layer_b"] == 2
    frame.loc[gone, ["cka", "low", "high"]] = np.nan
    frame.loc[gone, "reason"] = "layer 2 of b is the same at every sample"
    figure = cka_heatmap(frame)
    assert heats(figure)[0].text[0][2] == "layer 2 of b is the same at every sample"
    assert "Without a value (5): layer 2 of b is the same" in footer(figure)


def test_a_map_without_intervals_is_drawn():
    frame = cka_rows(low=np.nan, high=np.nan, reason="no interval: 2 groups")
    assert heats(cka_heatmap(frame))[0].text[0][0] == "CKA 1.000"


def test_several_estimators_are_refused():
    frame = pd.concat([cka_rows(), cka_rows(estimator="biased")])
    with pytest.raises(ValueError, match="shows one estimator; the frame has debiased, biased"):
        cka_heatmap(frame)


def test_a_frame_of_something_else_is_refused():
    with pytest.raises(ValueError, match="missing: reason. probes.cka.cka_frame"):
        cka_heatmap(cka_rows().drop(columns="reason"))


def test_the_curve_is_alignment_minus_depth_with_bands():
    frame = pd.concat(
        [aligned_rows(1.0, comparison="with memory"), aligned_rows(0.1, comparison="seeds")]
    )
    figure = alignment_curve(frame, published=load_published("engram_fig4_alignment"))
    (memory,) = traces(figure, "with memory")
    assert list(memory.y) == pytest.approx([1.0] * LAYERS)
    (band,) = traces(figure, "with memory, 95 %")
    assert max(band.y) == pytest.approx(1.2) and min(band.y) == pytest.approx(0.8)
    (point,) = traces(figure, "published, by share of depth")
    assert point.y[0] == pytest.approx(7 / 30 * 4)
    shown = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert shown == ["with memory", "seeds", "published, by share of depth"]
    assert "first half" in footer(figure)
