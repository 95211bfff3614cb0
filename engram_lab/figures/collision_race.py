"""The race of prediction and count: company in all of the first heads, and how rows fill."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import panel_title
from engram_lab.figures.row_loads import LENGTHS, MULTIPLIERS, SOUND
from engram_lab.figures.style import COLOURS, INK, SOFT_INK, Room, require, titled

MADE_BY = "probes.collision_race.race_frame"


def collision_race(frame: pd.DataFrame, loads: pd.DataFrame) -> go.Figure:
    """Counted company as bars, predicted as lines; beside it the keys per row of the first head.

    Args:
        frame: rows of `probes.collision_race.race_frame`.
        loads: rows of `probes.collision_race.race_loads` for the same hash.

    Raises:
        ValueError: if columns are missing.
    """
    shares = ("predicted_share", "collided_share", "predicted_twins", "twin_share")
    require(frame, "heads", "keys", "rows", *shares, "cleanest_interference", made_by=MADE_BY)
    made_by = "probes.collision_race.race_loads"
    require(loads, "head", "held", "row_share", "predicted_share", "deviation", made_by=made_by)
    figure = make_subplots(rows=1, cols=2, column_widths=[0.62, 0.38], horizontal_spacing=0.1)
    _company(figure, frame)
    first = loads[loads["head"] == 0].sort_values("held")
    _loads(figure, first)
    panel_title(figure, "n-grams with company in each of the first heads", row=1, col=1)
    panel_title(figure, "n-grams per row, first head", row=1, col=2)
    figure.update_xaxes(title_text="heads", dtick=1, row=1, col=1)
    figure.update_xaxes(title_text="n-grams in a row", dtick=1, row=1, col=2)
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    figure.update_yaxes(title_text="share of n-grams", row=1, col=1)
    figure.update_yaxes(title_text="share of rows", row=1, col=2)
    figure.update_layout(
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}, bargap=0.25
    )
    return titled(
        figure,
        title="Prediction races count",
        subtitle=_sentence(frame, first),
        note=_note(first),
        room=Room(height=320, head=50),
    )


def _company(figure: go.Figure, frame: pd.DataFrame) -> None:
    figure.add_bar(
        x=frame["heads"],
        y=frame["collided_share"],
        marker={"color": COLOURS["engram"], "opacity": 0.75},
        hovertemplate="%{x} heads: %{y:.3%}<extra>counted</extra>",
        name="counted",
        row=1,
        col=1,
    )
    lines = (
        ("predicted_share", "predicted", INK, "solid", "circle"),
        ("twin_share", "no head tells from one other", COLOURS["static"], "solid", "x"),
        ("cleanest_interference", "foreign in the cleanest row", SOFT_INK, "dash", "diamond"),
    )
    for measure, name, shade, dash, mark in lines:
        figure.add_scatter(
            x=frame["heads"],
            y=frame[measure],
            mode="lines+markers",
            line={"color": shade, "dash": dash, "width": 1.6},
            marker={"symbol": mark, "size": 7},
            hovertemplate="%{x} heads: %{y:.3%}<extra>" + f"{name}</extra>",
            name=name,
            row=1,
            col=1,
        )


def _loads(figure: go.Figure, first: pd.DataFrame) -> None:
    bad = abs(first["deviation"].iloc[0]) > SOUND
    figure.add_bar(
        x=first["held"],
        y=first["row_share"],
        marker={"color": COLOURS["static" if bad else "engram"], "opacity": 0.75},
        hovertemplate="%{x} n-grams: %{y:.2%} of the rows<extra>counted</extra>",
        name="rows, counted",
        showlegend=False,
        row=1,
        col=2,
    )
    figure.add_scatter(
        x=first["held"],
        y=first["predicted_share"],
        mode="lines+markers",
        line={"color": INK, "width": 1.6},
        marker={"size": 5},
        hovertemplate="%{x} n-grams: %{y:.2%} of the rows<extra>predicted</extra>",
        name="rows, predicted",
        showlegend=False,
        row=1,
        col=2,
    )


def _sentence(frame: pd.DataFrame, first: pd.DataFrame) -> str:
    one, last = frame.iloc[0], frame.iloc[-1]
    return (
        f"{int(one['keys']):,} n-grams in {int(one['rows']):,} rows: {one['predicted_share']:.1%} "
        f"predicted to have company, {one['collided_share']:.1%} counted; in all of "
        f"{int(last['heads'])} heads "
        f"{last['predicted_share']:.2%} and {last['collided_share']:.2%}. The rows of the first "
        f"head are {first['deviation'].iloc[0]:+,.1f} standard deviations from even."
    )


def _note(first: pd.DataFrame) -> str:
    choice = first.iloc[0]
    factors = MULTIPLIERS.get(choice.get("multipliers"), "")
    lengths = LENGTHS.get(choice.get("lengths"), "")
    text = "Made-up pairs of ids with Zipf frequencies. "
    if factors and lengths:
        text += f"Multipliers: {factors}; table lengths: {lengths}. "
    return text + (
        "Red bars: further from even than chance brings. Foreign: share of the traffic in a "
        "look-up's cleanest row that belongs to other n-grams."
    )
