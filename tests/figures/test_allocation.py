"""The allocation curve: differences from pure experts, seeds shown, published shapes behind."""

from types import SimpleNamespace

import pandas as pd
import pytest

from engram_lab.figures.allocation import allocation_curve
from engram_lab.published import load_published
from tests.figures.frames import SHAPES, allocation_frame, footer, traces

ENGRAM, QWEN = load_published("engram_allocation"), load_published("qwen38_fixed_budget")


def test_losses_are_drawn_minus_those_of_pure_experts_at_realised_ratios():
    mean = traces(allocation_curve(allocation_frame()), "measured")[0]
    assert list(mean.x) == [0, 0.5, 0.7334, 1]
    assert list(mean.y) == pytest.approx(list(SHAPES["all"].values()))


def test_every_seed_is_a_point():
    seeds = traces(allocation_curve(allocation_frame(seeds=(0, 1, 2))), "measured, seeds")[0]
    assert sorted(set(seeds.customdata)) == [0, 1, 2]
    assert len(seeds.x) == 12


def test_documents_are_weighted_by_their_tokens():
    frame = allocation_frame(seeds=(0,), shapes={"all": SHAPES["all"]})
    heavy = (frame["document"] == 1) & (frame["allocation_ratio"] == 0)
    frame.loc[heavy, "loss_nats"] += 1.0
    frame.loc[frame["document"] == 1, "eval_tokens"] = 300
    mean = traces(allocation_curve(frame), "measured")[0]
    assert mean.y[0] == pytest.approx(0.10 + 0.75)


def test_token_classes_stand_in_a_panel_of_their_own():
    figure = allocation_curve(allocation_frame())
    static, computed = traces(figure, "static")[0], traces(figure, "computed")[0]
    assert list(static.y) == pytest.approx(list(SHAPES["static"].values()))
    assert static.xaxis == computed.xaxis != traces(figure, "measured")[0].xaxis
    assert static.line.color != computed.line.color
    assert static.marker.symbol != computed.marker.symbol


def test_axes_say_what_they_show():
    layout = allocation_curve(allocation_frame()).layout
    assert layout.yaxis.title.text == "loss minus loss at ρ = 1 (nats per token)"
    assert layout.xaxis.title.text.startswith("allocation ratio ρ")


def test_the_legend_names_what_is_drawn():
    figure = allocation_curve(allocation_frame(), published=[ENGRAM, QWEN])
    shown = {trace.name for trace in figure.data if trace.showlegend is not False}
    assert shown == {"measured", "static", "computed", "Engram 9.9B", "Qwen 3.8"}


def test_published_curves_are_shapes_on_an_axis_of_their_own_behind_the_measured_one():
    figure = allocation_curve(allocation_frame(), published=[ENGRAM, QWEN])
    engram, measured = traces(figure, "Engram 9.9B")[0], traces(figure, "measured")[0]
    assert list(engram.x) == [0.4, 0.8, 1.0]
    assert list(engram.y) == pytest.approx([0, -1, 0])
    assert engram.yaxis == "y2" and measured.yaxis == "y"
    assert figure.layout.yaxis.overlaying == "y2" and figure.layout.yaxis2.overlaying is None
    low, high = figure.layout.yaxis.range
    assert figure.layout.yaxis2.range == pytest.approx((low / 0.06, high / 0.06))
    qwen = traces(figure, "Qwen 3.8")[0]
    assert list(qwen.y) == pytest.approx([-0.2, -1, -0.4, 0])


def test_values_that_are_not_printed_are_hollow():
    figure = allocation_curve(allocation_frame(), published=ENGRAM)
    symbols = list(traces(figure, "Engram 9.9B")[0].marker.symbol)
    assert symbols == ["square-open", "square", "square"]
    secondary = ENGRAM.assign(kind="secondary")
    figure = allocation_curve(allocation_frame(), published=secondary)
    assert set(traces(figure, "Engram 9.9B")[0].marker.symbol) == {"square-open"}


def test_the_published_optimum_is_a_band():
    figure = allocation_curve(allocation_frame(), published=ENGRAM)
    assert (0.75, 0.8) in {(shape.x0, shape.x1) for shape in figure.layout.shapes}
    assert not [s for s in allocation_curve(allocation_frame()).layout.shapes if s.x0 == 0.75]


def test_a_published_curve_stays_in_sight_when_nothing_is_gained():
    monotone = {"all": {0.0: 0.3, 0.5: 0.1, 1.0: 0.0}}
    layout = allocation_curve(allocation_frame(shapes=monotone), published=ENGRAM).layout
    assert layout.yaxis2.range[0] < -1
    assert layout.yaxis2.range[1] / layout.yaxis2.range[0] == pytest.approx(
        layout.yaxis.range[1] / layout.yaxis.range[0]
    )


def test_the_lowest_mean_is_marked():
    notes = [note.text for note in allocation_curve(allocation_frame()).layout.annotations]
    assert "lowest mean<br>ρ = 0.50" in notes


def test_the_verdict_is_shown():
    figure = allocation_curve(allocation_frame(), verdict=SimpleNamespace(sentence="It is so."))
    assert "It is so." in figure.layout.title.text
    figure = allocation_curve(allocation_frame(), verdict=["One.", "Two."])
    assert "One.<br>Two." in figure.layout.title.text


def test_a_fitted_minimum_is_drawn_with_its_interval():
    verdict = SimpleNamespace(sentence="So.", ratio=0.6, low=0.5, high=0.75, fit_is_inside=True)
    figure = allocation_curve(allocation_frame(), verdict=verdict)
    fit = traces(figure, "minimum of fit")[0]
    assert list(fit.x) == [0.6]
    assert list(fit.error_x.array) == pytest.approx([0.15])
    assert list(fit.error_x.arrayminus) == pytest.approx([0.1])
    assert "fitted parabola" in footer(figure)
    verdict.fit_is_inside = False
    assert not traces(allocation_curve(allocation_frame(), verdict=verdict), "minimum of fit")


def test_the_footer_tells_budget_tokens_seeds_and_what_is_equal():
    text = footer(allocation_curve(allocation_frame(), published=ENGRAM))
    for part in ("3.62 M parameters", "673 k active", "2 M training tokens", "2 seeds"):
        assert part in text
    assert "2 held-out documents" in text
    assert "Held equal: total parameters, active parameters, training tokens" in text
    assert "share of its own largest gain, 0.0139 nats (Engram 9.9B)" in text
    assert "arXiv:2601.07372" in text


def test_corpora_that_differ_get_a_row_of_panels_each():
    frames = [allocation_frame(static_share=share, corpus="d8") for share in (0.2, 0.8)]
    figure = allocation_curve(pd.concat(frames), published=ENGRAM)
    titles = [note.text for note in figure.layout.annotations]
    assert "<b>all tokens, static share 0.2</b>" in titles
    assert "<b>by token class, static share 0.8</b>" in titles
    assert len(traces(figure, "Engram 9.9B")) == 2
    assert len([t for t in figure.data if t.name == "static" and t.showlegend]) == 1
    assert figure.layout.yaxis2.domain != figure.layout.yaxis5.domain


def test_one_seed_has_no_band():
    figure = allocation_curve(allocation_frame(seeds=(0,)))
    assert not [trace for trace in figure.data if trace.fill == "toself"]


def test_a_frame_without_classes_has_one_panel():
    frame = allocation_frame()
    frame = frame[frame["token_class"] == "all"].drop(columns="token_class")
    figure = allocation_curve(frame)
    assert {trace.xaxis for trace in figure.data} == {"x"}


def test_a_frame_without_pure_experts_is_refused():
    frame = allocation_frame()
    with pytest.raises(ValueError, match=r"allocation_ratio = 1.0, which no row has; .* 0.0, 0.5"):
        allocation_curve(frame[frame["allocation_ratio"] < 1])


def test_a_foreign_published_table_is_refused():
    with pytest.raises(ValueError, match="takes the tables engram_allocation and qwen38"):
        allocation_curve(allocation_frame(), published=load_published("variants"))
