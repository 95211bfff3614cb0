"""Row figures: every token, part and prompt of the frame is there, under its own name."""

import pandas as pd
import pytest

from engram_lab.figures.rows import LEAST_KL, collateral_figure, next_token_bars, part_bars
from tests.figures.frames import footer, traces


def next_tokens(off="block 1, order 3, head 1, row 97") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "switched_off": off,
            "token_id": [7, 8, 9],
            "token": [" Wales", " England", " Wales"],
            "probability": [0.6, 0.2, 0.1],
            "probability_without": [0.1, 0.5, 0.1],
            "logit_change": [-2.0, 0.7, 0.0],
        }
    )


def parts() -> pd.DataFrame:
    numbers = [(1, None, None, None), (1, 2, None, None), (1, None, 0, None), (1, 2, 0, 33)]
    frame = pd.DataFrame(numbers, columns=["layer", "order", "head", "row"]).astype("Int64")
    frame.insert(0, "part", ["module", "order", "head", "row"])
    frame["token"] = " Wales"
    frame["logit_change"] = [-2.5, -1.0, 0.5, -0.25]
    frame["probability"] = 0.6
    frame["probability_without"] = [0.1, 0.3, 0.7, 0.5]
    frame["top_token_without"] = [" England", " Wales", " Wales", " Wales"]
    return frame


def collateral() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "group": ["edited prompt", "share a row", "share a row", "random"],
            "prompt": ["the Princess of", " of", "the Prince of", "in the beginning"],
            "shared_rows": [8, 1, 2, 1],
            "shared_last": [8, 1, 1, 0],
            "token": [" Wales", " the", " Wales", " of"],
            "before": [0.6, 0.5, 0.4, 0.3],
            "after": [0.1, 0.45, 0.1, 0.3],
            "target_before": [0.01, 0.0, 0.01, 0.0],
            "target_after": [0.9, 0.05, 0.4, 0.0],
            "kl_nats": [2.0, 0.05, 0.7, 0.0],
        }
    )


def test_every_token_has_a_bar_with_and_one_without():
    figure = next_token_bars(next_tokens())
    on, off = figure.data
    assert list(on.x) == [0.6, 0.2, 0.1] and list(off.x) == [0.1, 0.5, 0.1]
    assert off.name == "off: block 1, order 3, head 1, row 97"
    assert list(figure.layout.yaxis.ticktext) == [
        "“\u00a0Wales”",
        "“\u00a0England”",
        "“\u00a0Wales”",
    ]
    assert list(on.y) == list(figure.layout.yaxis.tickvals) == [0, 1, 2]  # twins stay apart
    assert figure.layout.xaxis.rangemode == "tozero"
    assert "order 3, head 1, row 97" in footer(figure)


def test_two_states_in_one_frame_are_refused():
    both = pd.concat([next_tokens(), next_tokens("nothing")])
    with pytest.raises(ValueError, match="next_token_bars shows one state; got 2"):
        next_token_bars(both)


def test_every_part_has_a_bar_in_the_colour_of_its_kind():
    figure = part_bars(parts())
    assert [trace.name for trace in figure.data] == ["module", "order", "head", "row"]
    assert [trace.x[0] for trace in figure.data] == [-2.5, -1.0, 0.5, -0.25]
    assert list(figure.layout.yaxis.ticktext) == [
        "block 1",
        "block 1, order 2",
        "block 1, head 0",
        "block 1, order 2, head 0, row 33",
    ]
    assert len({trace.marker.color for trace in figure.data}) == 4
    assert "Wales" in figure.layout.title.text and "is 0.600" in footer(figure)


def test_every_prompt_is_a_point_before_against_after_and_a_point_of_change():
    figure = collateral_figure(collateral())
    for group, rows in collateral().groupby("group"):
        plane, strip = traces(figure, group)
        assert list(plane.x) == rows["before"].tolist()
        assert list(plane.y) == rows["after"].tolist()
        assert list(strip.y) == [max(kl, LEAST_KL) for kl in rows["kl_nats"]]
        (median,) = traces(figure, f"{group}, median")
        assert median.y[0] == pytest.approx(max(rows["kl_nats"].median(), LEAST_KL))
    assert list(figure.layout.xaxis2.ticktext) == [
        "edited prompt<br>n = 1",
        "share a row<br>n = 2",
        "random<br>n = 1",
    ]
    assert "3 other prompts, 2 of which read an edited row" in footer(figure)


def test_groups_of_other_names_are_drawn_too():
    frame = collateral().replace({"group": {"random": "my own"}})
    assert len(traces(collateral_figure(frame), "my own")) == 2


@pytest.mark.parametrize(
    ("draw", "frame", "missing", "maker"),
    [
        (next_token_bars, next_tokens(), "probability", "next_token_frame"),
        (part_bars, parts(), "logit_change", "part_frame"),
        (collateral_figure, collateral(), "kl_nats", "collateral_frame"),
    ],
)
def test_a_missing_column_is_named_with_the_probe_that_makes_it(draw, frame, missing, maker):
    with pytest.raises(ValueError, match=rf"missing: {missing}\. probes\.\w+\.{maker}\(\)"):
        draw(frame.drop(columns=missing))
