"""The stage and the strip: every token in its place, rejects struck out, phases in order."""

import pandas as pd
import pytest

from engram_lab.figures.theatre import PHASES, round_stage
from engram_lab.figures.theatre_boxes import token_boxes
from engram_lab.figures.theatre_strip import round_strip
from tests.figures.frames import footer
from tests.figures.theatre_rows import drafted_rounds


def boxes(figure, name: str) -> dict[float, str]:
    """Tokens by place of the traces of a name, of the first drafter that has any."""
    for trace in figure.data:
        if trace.name == name and trace.x[0] is not None:
            return dict(zip(trace.x, trace.customdata, strict=True))
    return {}


def marks(figure, name: str) -> list:
    return [x for trace in figure.data if trace.name == name for x in trace.x if x is not None]


def texts(figure) -> str:
    return "\n".join(note.text for note in figure.layout.annotations)


def test_a_verified_round_shows_what_became_of_every_slot():
    figure = round_stage(drafted_rounds(), round=0)
    assert boxes(figure, "rejected") == {2: "\u00a0of"}
    assert boxes(figure, "discarded") == {3: "\u00a0a"}
    assert boxes(figure, "correction") == {2: "\u00a0&lt;b&gt;"}
    assert boxes(figure, "anchor") == {0: "\u00a0The"}
    assert marks(figure, "struck out") == [2 - 0.42, 2 + 0.42]
    assert marks(figure, "changed by the head") == [1]
    assert "1 of 3 kept" in texts(figure)


def test_phases_show_ever_more_of_a_round():
    stages = {phase: round_stage(drafted_rounds(), round=0, phase=phase) for phase in PHASES}
    assert boxes(stages["proposed"], "base logits alone") == {
        1: "The",
        2: "\u00a0of",
        3: "\u00a0a",
    }
    assert not boxes(stages["proposed"], "drafted")
    assert len(boxes(stages["corrected"], "drafted")) == 3
    assert not marks(stages["corrected"], "confidence")
    assert marks(stages["confidence"], "confidence") == [1, 2, 3]
    assert not boxes(stages["confidence"], "accepted")
    assert not marks(stages["confidence"], "chance of being kept")
    assert marks(stages["verified"], "chance of being kept") == [1, 2, 3, 1, 2, 3]
    for phase, figure in stages.items():
        assert PHASES[phase] in figure.layout.title.text


def test_a_drafter_that_is_done_leaves_its_stage_empty():
    figure = round_stage(drafted_rounds(), round=1)
    assert "<b>DFlash</b>: done after 1 rounds" in texts(figure)
    assert boxes(figure, "not verified") == {3: "\u00a0a"}


def test_the_headline_tells_the_text_before_the_round():
    figure = round_stage(drafted_rounds(), round=1)
    assert "Economy⏎\u00a0The\u00a0capital\u00a0&lt;b&gt;" in texts(figure)


def test_a_drafter_without_a_confidence_has_no_bars():
    assert not marks(round_stage(drafted_rounds(heads=False)), "confidence")


def test_a_drafter_without_base_logits_shows_its_drafts_at_once():
    frame = drafted_rounds().assign(base_text=None, corrected=False)
    figure = round_stage(frame, phase="proposed")
    assert not boxes(figure, "base logits alone")
    assert len(boxes(figure, "drafted")) == 3


def test_rounds_and_phases_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"rounds 0\.\.1 .* got round 2"):
        round_stage(drafted_rounds(), round=2)
    with pytest.raises(ValueError, match="got round 0 and phase 'applause'"):
        round_stage(drafted_rounds(), phase="applause")
    with pytest.raises(ValueError, match="round_strip.* missing: outcome"):
        round_strip(drafted_rounds().drop(columns="outcome"))


def test_the_strip_has_a_row_a_round_and_a_panel_a_drafter():
    figure = round_strip(drafted_rounds())
    (first, second) = [trace for trace in figure.data if trace.name == "anchor"]
    assert [base + 0.42 for base in first.base] == [0, 1] and len(second.base) == 1
    (strikes, none) = [trace for trace in figure.data if trace.name == "struck out"]
    assert strikes.y[0] == strikes.y[1] == -0.22 and none.x == (None,)
    assert "<b>DSpark</b>: 5 tokens in 2 rounds, 2.50 a round" in texts(figure)
    assert "temperature 0" in footer(figure)


def test_one_legend_names_everything_once():
    for figure in (round_stage(drafted_rounds()), round_strip(drafted_rounds())):
        named = [trace.name for trace in figure.data if trace.showlegend]
        assert len(named) == len(set(named))
        assert {"accepted", "rejected", "correction", "bonus"} <= set(named)


def test_a_token_of_spaces_alone_is_seen():
    rows = pd.DataFrame({"position": [1, 2], "token_text": ["  ", " a"]})
    found = token_boxes(rows, "accepted", "#112233", 0.0, legend=True)
    assert list(found.text) == ["␣␣", "\u00a0a"]
