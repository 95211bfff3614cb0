"""One point of the allocation grid: its ring, its curve, its class losses, and what is missing."""

import pandas as pd
import pytest

from engram_lab.figures.allocation_point import NOT_STORED, allocation_point
from tests.figures.frames import SHAPES, allocation_frame, footer, traces

WEAK = {
    name: {ratio: 0.5 * delta for ratio, delta in curve.items() if ratio != 0.75}
    for name, curve in SHAPES.items()
}


@pytest.fixture
def two_shares() -> pd.DataFrame:
    parts = [allocation_frame(static_share=0.5), allocation_frame(static_share=0.2, shapes=WEAK)]
    return pd.concat(parts, ignore_index=True)


def ring(figure):
    return traces(figure, "this split")[0]


def bars(figure) -> dict[str, float]:
    trace = traces(figure, "mean of seeds")[0]
    return dict(zip(trace.x, trace.y, strict=True))


def test_the_ring_lies_on_the_curve_at_the_realised_ratio():
    figure = allocation_point(allocation_frame(), 0.75)
    assert ring(figure).x == (0.7334,)
    assert ring(figure).y == pytest.approx((-0.04,))
    measured = traces(figure, "measured")[0]
    assert ring(figure).x[0] in measured.x


def test_every_class_has_its_difference_as_a_bar_and_its_loss_beside():
    figure = allocation_point(allocation_frame(seeds=(0,)), 0.5)
    assert bars(figure) == pytest.approx({"all": -0.06, "static": -0.20, "computed": 0.10})
    assert traces(figure, "mean of seeds")[0].text == ("3.04 nats", "2.9 nats", "3.2 nats")


def test_another_share_has_another_curve_with_the_first_in_grey_behind(two_shares):
    weak = allocation_point(two_shares, 0.5, static_share=0.2)
    assert ring(weak).y == pytest.approx((-0.03,))
    assert min(traces(weak, "50% phrases")[0].y) == pytest.approx(-0.06)
    assert not traces(weak, "20% phrases")
    assert "20% fixed phrases" in weak.layout.annotations[0].text


def test_axes_stay_where_they_are_from_point_to_point(two_shares):
    one = allocation_point(two_shares, 0.5, static_share=0.2)
    other = allocation_point(two_shares, 1.0, static_share=0.5)
    assert one.layout.yaxis.range == other.layout.yaxis.range
    assert one.layout.yaxis2.range == other.layout.yaxis2.range


def test_a_point_that_is_not_stored_is_said_to_be_missing(two_shares):
    figure = allocation_point(two_shares, 0.75, static_share=0.2)
    assert not traces(figure, "this split")
    assert bars(figure) == {}
    assert NOT_STORED in [note.text for note in figure.layout.annotations]
    assert len(traces(figure, "measured")[0].x) == 3


def test_the_footer_speaks_of_the_runs_of_this_share(two_shares):
    assert "2 seeds" in footer(allocation_point(two_shares, 0.5, static_share=0.2))


def test_a_frame_without_classes_draws_all_tokens_alone():
    frame = allocation_frame().query("token_class == 'all'").drop(columns="token_class")
    assert list(bars(allocation_point(frame, 0.5))) == ["all"]


@pytest.mark.parametrize(
    ("share", "message"),
    [(None, "static_share must be one of the frame's: 0.2, 0.5; got None"), (0.3, "got 0.3")],
)
def test_a_share_must_be_chosen_from_those_there(two_shares, share, message):
    with pytest.raises(ValueError, match=message):
        allocation_point(two_shares, 0.5, static_share=share)


def test_a_share_without_its_point_of_pure_experts_cannot_be_compared(two_shares):
    at_one = (two_shares["static_share"] == 0.2) & (two_shares["allocation_ratio"] == 1)
    with pytest.raises(ValueError, match="no run at ratio 1 with static share 0.2"):
        allocation_point(two_shares[~at_one], 0.5, static_share=0.2)


def test_corpora_are_not_mixed():
    frame = pd.concat([allocation_frame(corpus="d8"), allocation_frame(corpus="text")])
    with pytest.raises(ValueError, match="draws one corpus; the frame has d8, text"):
        allocation_point(frame, 0.5)
