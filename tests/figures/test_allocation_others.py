"""The sisters of the allocation curve: static shares, controls, verdicts side by side."""

import pandas as pd
import pytest

from engram_lab.figures.allocation_controls import controls_figure
from engram_lab.figures.allocation_shares import allocation_by_share
from engram_lab.figures.verdicts import verdict_forest
from tests.figures.frames import SHAPES, allocation_frame, footer, traces


def shares() -> pd.DataFrame:
    low = {"all": {0.0: 0.2, 0.5: 0.1, 0.75: -0.02, 1.0: 0.0}}
    return pd.concat(
        [allocation_frame(static_share=0.5), allocation_frame(static_share=0.2, shapes=low)]
    )


def test_each_share_has_a_curve_and_a_best_ratio():
    figure = allocation_by_share(shares())
    assert list(traces(figure, "20% phrases")[0].y) == pytest.approx([0.2, 0.1, -0.02, 0])
    assert list(traces(figure, "50% phrases")[0].y) == pytest.approx(list(SHAPES["all"].values()))
    best = traces(figure, "lowest measured (seeds)")[0]
    assert list(best.x) == [0.2, 0.5]
    assert list(best.y) == [0.7334, 0.5]
    assert list(best.text) == ["2", "2"]


def test_fitted_minima_have_intervals():
    optima = pd.DataFrame({"static_share": [0.2, 0.5], "ratio": 0.6, "low": 0.5, "high": 0.65})
    fit = traces(allocation_by_share(shares(), optima=optima), "fit, 95% interval")[0]
    assert list(fit.y) == [0.6, 0.6]
    assert list(fit.error_y.array) == pytest.approx([0.05, 0.05])


def test_optima_without_interval_are_refused():
    with pytest.raises(ValueError, match="missing: low, high. experiments.optimum"):
        allocation_by_share(shares(), optima=pd.DataFrame({"static_share": [0.2], "ratio": [0.6]}))


def arms() -> pd.DataFrame:
    losses = {"experts": 0.0, "engram": -0.06, "neighbour": 0.02, "wide_ffn": -0.03, "other": 0.5}
    frames = []
    for arm, loss in losses.items():
        shape = {name: {0.5: loss} for name in ("all", "static")}
        frame = allocation_frame(arm=arm, shapes=shape)
        frames.append(frame.assign(active_params=673_000 * (3 if arm == "wide_ffn" else 1)))
    return pd.concat(frames, ignore_index=True)


def test_controls_are_drawn_minus_the_reference_in_the_known_order():
    figure = controls_figure(arms())
    bars = [trace for trace in figure.data if trace.type == "bar" and trace.xaxis == "x"]
    assert [bar.name for bar in bars] == ["engram", "neighbour", "wide_ffn", "other"]
    assert [bar.x[0] for bar in bars] == pytest.approx([-0.06, 0.02, -0.03, 0.5])
    assert "hybrid" in bars[0].y


def test_controls_show_every_seed_and_class():
    figure = controls_figure(arms())
    assert len(traces(figure, "engram, seeds")) == 2
    assert len(traces(figure, "engram, seeds")[0].x) == 2
    assert {"<b>all tokens</b>", "<b>static</b>"} <= {n.text for n in figure.layout.annotations}


def test_what_is_not_held_equal_is_said():
    text = footer(controls_figure(arms()))
    assert "Held equal: total parameters, training tokens" in text
    assert "Not held equal: active parameters (up to 3.00 times)" in text


def test_a_missing_reference_arm_is_named():
    with pytest.raises(ValueError, match="arm = dense, which no row has; the frame has engram"):
        controls_figure(arms(), reference="dense")


def test_verdicts_stand_in_rows_coloured_by_outcome():
    frame = pd.DataFrame(
        {
            "claim": ["memory helps", "size helps"],
            "difference": [-0.02, 0.01],
            "low": [-0.03, -0.01],
            "high": [-0.01, 0.02],
            "outcome": ["supported", "undecided"],
            "n_seeds": 3,
            "n_documents": 150,
        }
    )
    figure = verdict_forest(frame)
    assert {trace.name for trace in figure.data} == {"supported", "undecided"}
    assert list(figure.layout.yaxis.ticktext) == ["memory helps", "size helps"]
    assert list(traces(figure, "supported")[0].y) == [0]
    assert list(traces(figure, "undecided")[0].error_x.array) == pytest.approx([0.01])
    assert "3 seeds, 150 items" in footer(figure)


def test_claims_of_another_unit_have_an_axis_of_their_own():
    frame = pd.DataFrame({"claim": ["a", "b", "c"], "unit": ["layers", "of gate", "layers"]})
    frame = frame.assign(difference=[-1.0, 0.1, 2.0], low=-2.0, high=3.0, outcome="undecided")
    figure = verdict_forest(frame.assign(n_seeds=3, n_documents=10))
    assert list(figure.layout.yaxis.ticktext) == ["a", "c"]
    assert list(figure.layout.yaxis2.ticktext) == ["b"]
    assert figure.layout.xaxis2.title.text == "difference (of gate; left favours the claim)"
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == ["undecided"]
