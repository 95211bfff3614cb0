"""Figures of confidence: bins, errors and thresholds as given, published values behind."""

import numpy as np
import pandas as pd
import pytest

from engram_lab.figures.confidence import calibration_by_position, reliability_diagram
from engram_lab.figures.confidence_threshold import threshold_sweep
from engram_lab.published import load_published
from tests.figures.confidence_frames import bin_rows, summary_rows, threshold_rows
from tests.figures.frames import footer, traces

BEFORE, AFTER = "as the head says", "sequential temperatures"


def titles(figure) -> list[str]:
    texts = [note.text for note in figure.layout.annotations if note.name != "footer"]
    return [text.removeprefix("<b>").removesuffix("</b>") for text in texts]


def test_every_position_has_its_bins_before_and_after():
    figure = reliability_diagram(bin_rows(positions=(1, 2, 3)))
    before, after = traces(figure, BEFORE), traces(figure, AFTER)
    assert len(before) == len(after) == 3
    assert np.allclose(before[0].x, [0.4, 0.8]) and np.allclose(before[0].y, [0.2, 0.6])
    assert np.allclose(after[2].x, after[2].y)
    assert titles(figure)[0] == "first draft accepted"
    assert "first 3 accepted" in titles(figure)
    assert [trace.showlegend for trace in before] == [True, False, False]


def test_long_blocks_show_four_positions_from_first_to_last():
    figure = reliability_diagram(bin_rows(positions=range(1, 8)))
    assert titles(figure) == [
        "first draft accepted",
        "first 3 accepted",
        "first 5 accepted",
        "first 7 accepted",
    ]


def test_seeds_are_pooled_by_their_rounds_and_domains_have_a_row_each():
    frame = pd.concat(
        [
            bin_rows(domain="chat", seed=0, positions=(1,)),
            bin_rows(domain="chat", seed=1, positions=(1,), count=40).assign(observed=1.0),
            bin_rows(domain="code", seed=0, positions=(1,)),
        ]
    )
    figure = reliability_diagram(frame, methods=("raw",))
    chat, code = traces(figure, BEFORE)
    assert chat.y[0] == pytest.approx((24 * 0.2 + 44) / 68) and code.y[0] == pytest.approx(0.2)
    assert titles(figure) == ["chat: first draft accepted", "code: first draft accepted"]
    assert "208 rounds measured, 2 seeds" in footer(figure)


def test_rare_bins_are_pale_and_off_the_line():
    frame = bin_rows(positions=(1,), methods=("raw",))
    frame.loc[1, "count"] = 3
    figure = reliability_diagram(frame, methods=("raw",))
    assert len(traces(figure, BEFORE)[0].x) == 1
    rare = traces(figure, f"{BEFORE}, rare")[0]
    assert rare.mode == "markers" and rare.y[0] == 0.6


def test_errors_and_ranking_stand_above_each_other_with_the_published_behind():
    published = load_published("dspark_fig6_calibration")
    figure = calibration_by_position(summary_rows(), published=published)
    error, ranking = traces(figure, BEFORE)
    assert list(error.y) == [0.1] * 3 and np.allclose(ranking.y, [0.75, 0.8, 0.85])
    assert np.allclose(
        traces(figure, "published, as the head says")[0].y, [0.057, 0.082, 0.058, 0.033]
    )
    assert np.allclose(traces(figure, "published, sequential")[0].y, [0.02, 0.017, 0.008, 0.004])
    assert traces(figure, "published")[0].y[0] == 0.818
    assert "Alpaca" in footer(figure) and "40 rounds measured" in footer(figure)
    assert "published" not in footer(calibration_by_position(summary_rows()))


def test_seeds_are_points_around_their_mean():
    frame = pd.concat([summary_rows(seed=0), summary_rows(seed=1).assign(ece=0.3)])
    figure = calibration_by_position(frame)
    assert traces(figure, BEFORE)[0].y[0] == pytest.approx(0.2)
    assert len(traces(figure, f"{BEFORE}, seeds")[0].x) == 6


def test_bars_add_up_to_what_was_verified_and_the_line_is_their_ratio():
    figure = threshold_sweep(threshold_rows(domain="math"))
    kept, vain = traces(figure, "accepted")[0], traces(figure, "verified in vain")[0]
    assert figure.layout.barmode == "stack"
    assert np.allclose(np.add(kept.y, vain.y), [8, 5, 2.6])
    rate = traces(figure, "accepted of verified (right axis)")[0]
    assert rate.yaxis == "y2" and rate.y[0] == 0.5


def test_published_sweeps_stand_behind_the_domain_they_are_paired_with():
    published = load_published("dspark_fig5_threshold")
    frame = pd.concat([threshold_rows(domain="math"), threshold_rows(domain="poems")])
    figure = threshold_sweep(frame, published=published)
    assert len(traces(figure, "published verified")) == 1
    assert traces(figure, "published verified")[0].y[0] == 7.949
    paired = threshold_sweep(frame, published=published, pairs={"poems": "chat"})
    assert [trace.y[0] for trace in traces(paired, "published accepted")] == [6.113, 3.64]
    assert titles(paired) == ["math (grey: math)", "poems (grey: chat)"]
    assert "digitised" in footer(figure)


def test_frames_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="reliability_diagram needs columns .*missing: count"):
        reliability_diagram(bin_rows().drop(columns="count"))
    with pytest.raises(ValueError, match="no row has method online; got raw, sequential"):
        reliability_diagram(bin_rows(), methods=("online",))
    with pytest.raises(ValueError, match="no row has position 9"):
        reliability_diagram(bin_rows(), positions=(9,))
    two = pd.concat([summary_rows(drafter="dspark"), summary_rows(drafter="dflash")])
    with pytest.raises(ValueError, match="one drafter; got dspark, dflash"):
        calibration_by_position(two)
    with pytest.raises(ValueError, match="threshold_sweep needs .*missing: verify_rate"):
        threshold_sweep(threshold_rows().drop(columns="verify_rate"))
