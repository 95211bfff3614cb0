"""Needles in a long context: every model where it belongs, published ones below."""

import itertools

import pandas as pd
import pytest

from engram_lab.figures.long_context import PUBLISHED, length_curves, needle_bars
from engram_lab.published import load_published
from tests.figures.frames import footer, traces

MODELS = {
    ("experts", 1.0): 0.4,
    ("neighbour", 1.0): 0.3,
    ("engram", 1.0): 0.7,
    ("engram", 0.3): 0.2,
}


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "arm": arm,
            "share": share,
            "seed": seed,
            "context": context,
            "task": task,
            "score": score + 0.1 * seed - context / 1_280,
            "stderr": 0.02,
            "chance": 0.25,
            "items": 500,
            "params": 1_000_000,
        }
        for ((arm, share), score), seed, context, task in itertools.product(
            MODELS.items(), (0, 1), (64, 128), PUBLISHED
        )
    )


def test_bars_are_means_over_seeds_at_the_longest_context():
    figure = needle_bars(frame(), equal_share=0.3)
    (bar,) = traces(figure, "experts only")
    assert list(bar.x) == list(PUBLISHED) and list(bar.y) == pytest.approx([0.35] * 5)
    assert list(bar.error_y.array) == pytest.approx([0.05] * 5)
    names = [trace.name for trace in figure.data if trace.type == "bar"]
    assert names == [
        "experts only", "hybrid, neighbour's addresses", "hybrid, 30% of the tokens: equal loss",
        "hybrid",
    ]  # fmt: skip
    assert list(traces(figure, "chance")[0].y) == [0.25] * 5
    assert "500 items a task" in footer(figure) and "0.020" in footer(figure)


def test_published_scores_stand_in_a_panel_of_their_own():
    published = load_published("engram_table2_long_context")
    figure = needle_bars(frame(), published=published)
    (bar,) = traces(figure, "MoE, 50k steps")
    assert list(bar.y) == pytest.approx([1.0, 0.88, 0.927, 0.842, 0.77])
    assert bar.yaxis == "y2" and "table 2" in footer(figure)
    grey = published.assign(kind="secondary")
    (hollow,) = traces(needle_bars(frame(), published=grey), "MoE, 50k steps")
    assert all(shade.endswith(",0.0)") for shade in hollow.marker.color)


def test_curves_go_from_short_to_long_documents():
    figure = length_curves(frame(), equal_share=0.3)
    lines = [t for t in traces(figure, "hybrid") if t.mode == "lines"]
    assert len(lines) == len(PUBLISHED)
    assert list(lines[0].x) == [64, 128] and list(lines[0].y) == pytest.approx([0.7, 0.65])
    assert traces(figure, "hybrid, 30% of the tokens: equal loss")
    assert not any("30%" in (t.name or "") for t in length_curves(frame()).data)


def test_a_frame_without_scores_is_refused():
    for draw in (needle_bars, length_curves):
        with pytest.raises(ValueError, match=f"{draw.__name__} needs columns .* missing: score"):
            draw(frame().drop(columns="score"))
