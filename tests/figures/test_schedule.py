"""Figures of schedules: policies against the load, the stop on the walk, the bench."""

import pandas as pd
import pytest

from engram_lab.figures.schedule import admission_figure, lengths_against_load, regret_figure
from engram_lab.figures.schedule_bench import bench_figure
from engram_lab.published import load_published
from tests.figures.confidence_frames import SPEEDS, batch_rows, schedule_rows, walk_rows
from tests.figures.frames import footer, traces


def test_lengths_fall_and_every_policy_stands_on_the_frontier():
    figure = lengths_against_load(schedule_rows())
    lengths, frontier = traces(figure, "early stop")
    assert list(lengths.x) == [1, 8] and list(lengths.y) == [6, 0.75]
    assert list(frontier.x) == [200, 200] and list(frontier.y) == [200, 1600]
    assert len(traces(figure, "plain decoding")) == 1
    assert "32 steps a point" in footer(figure)


def test_a_rule_that_is_not_lossless_is_hollow_and_said_to_be():
    for figure in (lengths_against_load(schedule_rows()), regret_figure(schedule_rows())):
        assert traces(figure, "unrestricted")[0].marker.symbol.endswith("-open")
        assert not traces(figure, "early stop")[0].marker.symbol.endswith("-open")
        assert "Hollow (unrestricted): a bound, not lossless" in footer(figure)


def test_published_budgets_are_hollow_and_only_those_against_concurrency():
    published = load_published("dspark_fig8_budget")
    figure = lengths_against_load(schedule_rows(), published=published)
    flash = traces(figure, "published V4-Flash")[0]
    assert list(flash.x)[0] == 20 and list(flash.y)[0] == 4.95
    assert flash.marker.symbol == "circle-open"
    assert not traces(figure, "published MTP-1")


def test_the_walk_marks_the_stop_and_the_highest_point():
    figure = admission_figure(walk_rows())
    assert list(traces(figure, "admitted")[0].x) == [2, 3]
    assert list(traces(figure, "not admitted")[0].x) == [3, 4, 5]
    assert list(traces(figure, "early stop")[0].x) == [3]
    assert list(traces(figure, "highest")[0].y) == [160]
    assert "keeps 1 of 3" in footer(figure)
    assert f"costs {1 - 130 / 160:.1%} here" in footer(figure)


def test_regret_is_drawn_as_it_is():
    figure = regret_figure(schedule_rows())
    assert traces(figure, "early stop")[0].y[0] == pytest.approx(1 - 2 / 2.2)
    assert len(figure.data) == len(SPEEDS)


def test_the_bench_shows_lengths_walk_and_speed():
    figure = bench_figure(schedule_rows(concurrency=(8,)), batch_rows(), walk_rows())
    assert list(traces(figure, "verified and accepted")[0].y) == [2, 1, 0]
    assert list(traces(figure, "verified in vain")[0].y) == [1, 0, 0]
    assert list(traces(figure, "a whole block would keep")[0].y) == [2, 2, 2]
    bars = [trace for trace in figure.data if trace.orientation == "h"]
    assert [trace.y[0] for trace in bars] == list(SPEEDS)
    assert bars[2].x[0] == 1600
    assert "early stop, +100% over plain decoding" in figure.layout.title.text
    assert "8 requests together" in figure.layout.title.text


def test_policies_that_are_equally_fast_are_named_together():
    same = {"plain decoding": 1.0, "fixed 5": 2.0, "early stop": 2.0}
    frame = schedule_rows(concurrency=(1,), speeds=same)
    text = bench_figure(frame, batch_rows(), walk_rows()).layout.title.text
    assert "fixed 5, early stop, +100%" in text


def test_the_bench_says_when_nothing_pays():
    slow = {"plain decoding": 3.0, "early stop": 2.0, "unrestricted": 4.0}
    frame = schedule_rows(concurrency=(1,), speeds=slow)
    text = bench_figure(frame, batch_rows(), walk_rows()).layout.title.text
    assert "do not speculate" in text and "1 request together" in text


def test_frames_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="lengths_against_load needs .*missing: tokens_per_s"):
        lengths_against_load(schedule_rows().drop(columns="tokens_per_s"))
    with pytest.raises(ValueError, match="regret_figure needs .*missing: regret"):
        regret_figure(schedule_rows().drop(columns="regret"))
    with pytest.raises(ValueError, match="admission_figure needs .*missing: best"):
        admission_figure(walk_rows().drop(columns="best"))
    with pytest.raises(ValueError, match="one concurrency and the policy 'early stop'"):
        bench_figure(schedule_rows(), batch_rows(), walk_rows())
    other = pd.DataFrame(batch_rows().query("policy == 'fixed 5'"))
    with pytest.raises(ValueError, match="policies fixed 5"):
        bench_figure(schedule_rows(concurrency=(1,)), other, walk_rows())
