"""Keys per row as bars, beside what even spreading predicts, for a sound hash and spoilt ones."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, INK, Room, require, titled

MADE_BY = "probes.row_loads.load_frame"
LENGTHS = {
    "primes": "distinct primes",
    "equal": "one prime",
    "power_of_two": "power of two",
}
"""In words; "one prime" serves all heads of an order."""
MULTIPLIERS = {
    "odd": "large, odd",
    "even": "large, even",
    "equal": "all equal",
    "small": "small, odd",
}
SOUND = 4  # standard deviations of the chi-square that chance may bring


def load_histogram(frame: pd.DataFrame, *, order: int = 2, head: int = 0) -> go.Figure:
    """Rows by the number of n-grams they hold; a panel for every choice of hash there is.

    Args:
        frame: rows of `probes.row_loads.load_frame`; with columns lengths and multipliers a grid of
            panels, with a column deviation (of `evenness_frame`) it is written above them.
        order: length of the n-grams drawn.
        head: hash head drawn.

    Raises:
        ValueError: if columns are missing, or there is no such table.
    """
    require(frame, "order", "head", "held", "row_share", "predicted_share", made_by=MADE_BY)
    part = frame[(frame["order"] == order) & (frame["head"] == head)]
    if part.empty:
        raise ValueError(f"load_histogram found no row of order {order} and head {head}")
    lengths = [name for name in LENGTHS if name in set(part.get("lengths", ()))] or [""]
    factors = [name for name in MULTIPLIERS if name in set(part.get("multipliers", ()))] or [""]
    figure = make_subplots(
        rows=len(lengths),
        cols=len(factors),
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=0.3 / len(lengths),
    )
    for row, length in enumerate(lengths, 1):
        for col, factor in enumerate(factors, 1):
            chosen = _chosen(part, length, factor)
            _panel(figure, chosen.sort_values("held"), row=row, col=col)
            panel_title(figure, _title(chosen, length, factor), row=row, col=col, above=3)
            figure.layout.annotations[-1].update(align="left")
    most = int(part["held"].max())
    ticks = [*map(str, range(most)), f"{most}+"]
    figure.update_xaxes(tickvals=list(range(most + 1)), ticktext=ticks)
    figure.update_xaxes(title_text="n-grams in a row", row=len(lengths))
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    figure.update_yaxes(title_text="share of rows", col=1)
    figure.update_layout(bargap=0.15, showlegend=False)
    return titled(
        figure,
        title="How evenly rows fill",
        note=(
            f"Bars: counted, {order}-grams, head {head}; line: even spreading. Red where the "
            f"chi-square of all rows lies more than {SOUND} standard deviations (σ) from that of "
            "chance."
        ),
        room=Room(height=60 + 150 * len(lengths), head=46),
    )


def _chosen(part: pd.DataFrame, length: str, factor: str) -> pd.DataFrame:
    """Rows of one choice of hash; an empty name takes all."""
    if length:
        part = part[part["lengths"] == length]
    return part[part["multipliers"] == factor] if factor else part


def _panel(figure: go.Figure, part: pd.DataFrame, *, row: int, col: int) -> None:
    bad = "deviation" in part and abs(part["deviation"].iloc[0]) > SOUND
    figure.add_bar(
        x=part["held"],
        y=part["row_share"],
        marker={"color": COLOURS["static" if bad else "engram"], "opacity": 0.75},
        hovertemplate="%{x} n-grams: %{y:.2%} of the rows<extra>counted</extra>",
        name="counted",
        row=row,
        col=col,
    )
    figure.add_scatter(
        x=part["held"],
        y=part["predicted_share"],
        mode="lines+markers",
        line={"color": INK, "width": 1.2},
        marker={"size": 4},
        hovertemplate="%{x} n-grams: %{y:.2%} of the rows<extra>predicted</extra>",
        name="predicted",
        row=row,
        col=col,
    )


def _title(part: pd.DataFrame, length: str, factor: str) -> str:
    title = ""
    if length and factor:
        title = f"{MULTIPLIERS[factor]} × {LENGTHS[length]}"
    if "deviation" in part:
        away = part["deviation"].iloc[0]
        text = f"{away:+,.0f} σ" if abs(away) > 100 else f"{away:+.1f} σ"
        title += ("<br>" if title else "") + text.replace("-", "−")
    return title or "n-grams per row"
