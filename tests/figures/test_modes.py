"""The figure of modes: a bar a drafter and token, marks at what is known."""

import pandas as pd
import pytest

from engram_lab.figures.modes import WORDS, mode_bars


def frame() -> pd.DataFrame:
    rows = [
        {
            "drafter": drafter,
            "modes": modes,
            "seed": seed,
            "kind": kind,
            "position": position,
            "acceptance": 0.9 - 0.01 * seed,
            "ideal": 1.0,
            "blocks": 10,
        }
        for drafter in ("dspark", "parallel_same")
        for modes in (2, 4)
        for seed in (0, 1)
        for kind, position in WORDS
    ]
    return pd.DataFrame(rows)


def test_every_token_has_a_bar_a_mark_and_its_seeds() -> None:
    figure = mode_bars(frame(), verdict="said")
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert len(bars) == 4 and all(len(bar.x) == len(WORDS) for bar in bars)
    assert bars[0].y[0] == pytest.approx(0.895)
    known = [trace for trace in figure.data if trace.name.endswith("known")]
    assert all(set(trace.y) == {1.0} for trace in known)
    assert [trace.name for trace in figure.data if trace.showlegend] == [
        "DFlash, DSpark's loss",
        "DSpark, Markov",
    ]
    assert "said" in figure.layout.title.text


def test_bars_of_one_place_stand_side_by_side() -> None:
    figure = mode_bars(frame())
    first = sorted(float(trace.x[0]) for trace in figure.data[:6] if trace.type == "bar")
    assert first[0] < 0 < first[1]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match="ideal"):
        mode_bars(frame().drop(columns="ideal"))
