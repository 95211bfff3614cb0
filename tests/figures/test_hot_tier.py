"""Hot-tier figures: differences from hashing by size, published values in their place, speeds."""

import pandas as pd
import pytest

from engram_lab.figures.hot_tier import coverage_curve, hot_tier_arms
from engram_lab.figures.hot_tier_speed import speed_bars
from engram_lab.published import load_published
from tests.figures.collision_frames import arm_rows, coverage_rows, speed_rows
from tests.figures.frames import footer, traces


def test_bars_are_differences_from_hashing_and_every_seed_is_a_point():
    figure = hot_tier_arms(arm_rows())
    bars, points = traces(figure, "hot_cold"), traces(figure, "hot_cold, seeds")
    assert [bar.x[0] for bar in bars] == pytest.approx([-0.02, -0.02])
    assert [len(seeds.x) for seeds in points] == [3, 3]
    assert len(traces(figure, "smaller")) == 1  # only one size has it


def test_panels_say_how_many_rows_there_are_for_an_n_gram():
    titles = " ".join(note.text for note in hot_tier_arms(arm_rows()).layout.annotations)
    assert "100 rows a head<br>0.1 and 0.025 per distinct 2-, 3-gram" in titles


def test_published_differences_stand_where_all_arms_are_and_are_hollow():
    figure = hot_tier_arms(arm_rows(), published=load_published("nine_table3_iso_param"))
    (published,) = traces(figure, "published (secondary)")
    assert published.marker.symbol == "diamond-open" and published.xaxis == "x"
    assert sorted(published.x) == pytest.approx([-0.001, 0.0016, 0.0152], abs=1e-6)


def test_the_footer_says_what_is_held_equal():
    assert "At 400 rows: Held equal: total parameters" in footer(hot_tier_arms(arm_rows()))


def test_arms_without_hashing_are_refused():
    frame = arm_rows()
    with pytest.raises(ValueError, match="arm = hash"):
        hot_tier_arms(frame[frame["arm"] != "hash"])


def test_coverage_is_drawn_as_far_as_there_are_keys():
    figure = coverage_curve(
        coverage_rows(), published=load_published("nine_coverage"), marked=(50,)
    )
    assert list(traces(figure, "2-grams")[0].x) == [10, 100]
    assert list(traces(figure, "2-grams, published (secondary)")[0].y) == [0.55]
    assert len(figure.layout.shapes) == 1 and "trained arms" in footer(figure)


def test_each_tokenizer_has_its_dash():
    two = pd.concat([coverage_rows(tokenizer="bpe4k"), coverage_rows(tokenizer="deepseek_v3")])
    figure = coverage_curve(two.assign(tokens=500))
    assert {line.line.dash for line in figure.data} == {"solid", "dash"}
    assert "500 tokens in deepseek_v3" in footer(figure)


def test_speeds_are_ratios_within_a_round():
    figure = speed_bars(speed_rows(), published=load_published("nine_table3_iso_param"))
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert len(bars) == 12
    assert [bar.x[0] for bar in bars[:6]] == pytest.approx([1, 1, 0.9, 0.9, 0.6, 0.6])
    (published,) = traces(figure, "published (secondary)")
    assert list(published.x) == pytest.approx([1, 1693 / 1910])


def test_speeds_without_hashing_are_refused():
    frame = speed_rows()
    with pytest.raises(ValueError, match="divides by the arm 'hash'"):
        speed_bars(frame[frame["arm"] != "hash"])
