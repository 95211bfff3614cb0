"""Depth gains by comparison, seed by seed, beside the published layer."""

import pandas as pd
import pytest

from engram_lab.figures.depth_gain import depth_gain
from engram_lab.published import load_published
from tests.figures.frames import footer, traces


def rows() -> pd.DataFrame:
    gains = {"engram": 0.9, "seed": 0.3, "neighbour": 0.3, "deeper": 0.6}
    return pd.DataFrame(
        [
            {"comparison": name, "seed": seed, "estimator": "debiased", "removed": removed}
            | {"gain": gain + 0.1 * seed, "low": gain - 0.1, "high": gain + 0.4}
            | {"layers": 5 if name == "deeper" else 4, "samples": 2_000}
            for removed in (0, 2)
            for name, gain in gains.items()
            for seed in (0, 1, 2)
        ]
    )


def test_a_row_per_comparison_and_a_panel_with_and_without_directions():
    figure = depth_gain(rows())
    assert list(figure.layout.yaxis.ticktext)[:2] == ["hybrid", "experts of another seed (null)"]
    assert len(traces(figure, "hybrid")) == 2
    titles = [note.text for note in figure.layout.annotations]
    assert titles[:2] == ["<b>all directions</b>", "<b>first 2 directions removed</b>"]


def test_every_seed_has_its_interval_and_the_bar_is_their_mean():
    figure = depth_gain(rows())
    seeds, mean = traces(figure, "hybrid")[0], traces(figure, "hybrid, mean")[0]
    assert list(seeds.x) == pytest.approx([0.9, 1.0, 1.1])
    assert list(seeds.error_x.arrayminus) == pytest.approx([0.1, 0.2, 0.3])
    assert list(mean.x) == pytest.approx([1.0, 1.0])


def test_the_published_layer_is_hollow_and_scaled():
    figure = depth_gain(rows(), published=load_published("engram_fig4_alignment"))
    (point,) = traces(figure, "published")
    assert point.x[0] == pytest.approx(7 * 8 / 30)
    assert point.marker.symbol == ("diamond-open",)
    assert "approx" in footer(figure)


def test_several_estimators_and_missing_columns_are_refused():
    mixed = pd.concat([rows(), rows().assign(estimator="biased")])
    with pytest.raises(ValueError, match="one estimator"):
        depth_gain(mixed)
    with pytest.raises(ValueError, match="gain"):
        depth_gain(rows().drop(columns="gain"))
