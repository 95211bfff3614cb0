"""What the figures of confidence share: one drafter, a panel a domain, how much was measured."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.footer import short_number


def of_one_drafter(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column domain, empty where it has none.

    Args:
        frame: rows of a probe of confidence.

    Raises:
        ValueError: if there are several drafters.
    """
    if "drafter" in frame and frame["drafter"].nunique() > 1:
        names = ", ".join(map(str, frame["drafter"].unique()))
        raise ValueError(f"figures of confidence show one drafter; got {names}. Choose its rows")
    return frame if "domain" in frame else frame.assign(domain="")


def grid(*, rows: int, cols: int) -> go.Figure:
    """Empty panels.

    Args:
        rows: of panels.
        cols: of panels; the panels of a row share their y axis.
    """
    return make_subplots(
        rows=rows,
        cols=cols,
        shared_yaxes=True,
        horizontal_spacing=0.14 / cols,
        vertical_spacing=0.4 / (rows + 1),
    )


def within(domain: object, text: str) -> str:
    """Title of a panel that shows a domain."""
    return f"{domain}: {text}" if domain else text


def rounds_told(rows: pd.DataFrame) -> str:
    """How many rounds and seeds stand behind the rows of a frame, in words."""
    if "rounds" in rows:
        key = "threshold" if "threshold" in rows else "position"
        one = rows[(rows[key] == rows[key].min())]
        one = one[one["method"] == one["method"].iloc[0]] if "method" in one else one
        count = one["rounds"].sum()
    else:
        count = rows.loc[rows["position"] == rows["position"].min(), "count"].sum()
    text = f"{short_number(float(count))} rounds measured"
    seeds = rows["seed"].nunique() if "seed" in rows else 1
    return text + (f", {seeds} seeds" if seeds > 1 else "")


def legend_over(*, height: int, lines: int = 1) -> dict[str, object]:
    """Layout of a horizontal legend above the titles of the panels.

    Args:
        height: of all panels, in pixels.
        lines: that the legend takes.
    """
    above = (28 + 4 * lines) / height
    return {"orientation": "h", "x": 0, "y": 1 + above, "yanchor": "bottom"}
