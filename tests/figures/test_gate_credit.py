"""Credit by fifth of the gate, the ROC curve from bins, and losses by route over training."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.figures.gate_credit import by_fifth, credit_by_gate, roc_points, route_curves
from engram_lab.published import load_published
from tests.figures.frames import footer, traces

ROUTES = ("hot", "cold")


def credit_rows(seeds=(0, 1)) -> pd.DataFrame:
    """Loss 1 + gate; memory helps in 3 of 4 tokens above one half and in 1 of 4 below."""
    rows = []
    for seed in seeds:
        for gate_bin in range(0, 20, 2):
            for route in ROUTES:
                for helped in (0, 1):
                    mostly = helped == (gate_bin >= 10)
                    rows.append(
                        {"model": "engram", "train_tokens": 700_000, "seed": seed, "layer": 1}
                        | {"gate_bin": gate_bin, "route": route, "helped": helped}
                        | {"tokens": 30 if mostly else 10, "gate": gate_bin / 20}
                        | {"loss_nats": 1 + gate_bin / 20, "utility_nats": 0.5 * (2 * helped - 1)}
                        | {"auc": 0.74 + 0.02 * seed, "auc_low": 0.7, "auc_high": 0.8}
                    )
    bare = {"model": "experts", "train_tokens": 700_000, "layer": -1, "gate_bin": -1, "helped": -1}
    rows += [
        bare | {"seed": seed, "route": route, "tokens": 400, "loss_nats": 2.0}
        for seed in seeds
        for route in ROUTES
    ]
    return pd.DataFrame(rows)


def test_fifths_are_token_weighted_means():
    fifths = by_fifth(credit_rows().query("layer == 1"))
    one = fifths[fifths["seed"] == 0]
    assert one["fifth"].tolist() == [0, 1, 2, 3, 4] and one["share"].sum() == pytest.approx(1)
    assert one["hot"].tolist() == [0.5] * 5
    assert one["loss_nats"].tolist() == pytest.approx([1.05, 1.25, 1.45, 1.65, 1.85])
    assert one["utility_nats"].tolist() == pytest.approx([-0.25, -0.25, 0, 0.25, 0.25])


def test_roc_curve_runs_from_none_to_all_and_its_area_is_that_of_the_bins():
    points = roc_points(credit_rows(seeds=(0,)).query("layer == 1"))
    assert points.iloc[0].tolist() == [0, 0] and points.iloc[-1].tolist() == [1, 1]
    assert (points.diff().dropna() >= 0).all(axis=None)
    area = np.trapezoid(points["helped"], points["harmed"])
    assert area == pytest.approx(0.75)


def test_the_figure_draws_means_seeds_and_a_curve_for_each():
    figure = credit_by_gate(credit_rows(), published=load_published("nine_table6_alpha_buckets"))
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [list(bar.x) for bar in bars] == [pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])] * 2
    assert bars[0].text[0] == "20%<br>50% hot" and bars[1].text is None
    assert len(traces(figure, "block 1, seed 0")) == len(traces(figure, "block 1, seed 1")) == 1
    assert any("area 0.75" in (note.text or "") for note in figure.layout.annotations)
    grey = traces(figure, "published, moved")[0]
    assert grey.y[1] - grey.y[0] == pytest.approx(5.28 - 3.90)
    assert np.mean(grey.y) == pytest.approx((1.25 + 1.85) / 2)
    assert grey.marker.symbol[0] == "diamond-open", "a secondary source is drawn hollow"
    assert "800 tokens" in footer(figure)


def test_routes_are_three_panels_with_a_line_for_each_model():
    gaps = pd.DataFrame(
        [
            {"model": model, "train_tokens": tokens, "seed": seed}
            | {"hot_nats": 1.0, "cold_nats": 3.0 - gain, "gap_nats": 2.0 - gain}
            for model, gain in (("engram", 0.5), ("experts", 0.0))
            for tokens in (100_000, 200_000)
            for seed in (0, 1)
        ]
    )
    figure = route_curves(gaps)
    assert [list(trace.y) for trace in traces(figure, "hybrid")] == [
        [1.0] * 2,
        [2.5] * 2,
        [1.5] * 2,
    ]
    assert [trace.showlegend for trace in traces(figure, "experts only")] == [True, False, False]
    with pytest.raises(ValueError, match="missing: gap_nats"):
        route_curves(gaps.drop(columns="gap_nats"))


def test_rows_without_a_memory_are_refused():
    with pytest.raises(ValueError, match="rows of the model 'engram' with a memory"):
        credit_by_gate(credit_rows().query("layer == -1"))
