"""Rows that drafting reads: bytes for a token gained, and those that a threshold saves."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.draft_memory import CELL, MADE_BY, SERIES, TARGETS, drawn_at
from engram_lab.figures.drafters import legend_room
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, Room, require, titled, translucent

READERS = {
    ("memory", False): ("target reads", COLOURS["engram"], "circle"),
    ("memory", True): ("target and drafter read", COLOURS["static"], "square"),
    ("plain", True): ("drafter alone reads", COLOURS["wide_ffn"], "diamond"),
}
"""Who reads rows, by target and rows of the drafter."""
MEASURES = {
    "wasted_reads_per_token": "rows in vain, a token",
    "row_reads_per_token": "rows read, a token",
    "accepted_length": "tokens a round",
}
"""What is drawn against the threshold, a row of panels each."""


def bytes_by_cell(frame: pd.DataFrame, *, temperature: float = 1.0) -> go.Figure:
    """Bytes of rows read for a token gained, those read in vain told apart.

    Args:
        frame: rows of `experiments.catalog.DSPARK_MEMORY`; cells that read nothing are left out.
        temperature: at which it was drawn.

    Raises:
        ValueError: if columns are missing, nothing was drawn at this temperature, or nobody reads.
    """
    reads = ("row_reads_per_token", "bytes_per_token", "wasted_reads_per_token")
    require(frame, *CELL, "seed", "domain", "temperature", "emitted", *reads, made_by=MADE_BY)
    part = drawn_at(frame, temperature)
    part = part[part["bytes_per_token"] > 0]
    if part.empty:
        raise ValueError("bytes_by_cell needs a target or a drafter that reads rows; none does")
    means = _bytes(part)
    domains = list(part["domain"].unique())
    shared = {"shared_yaxes": True, "shared_xaxes": "all"}
    figure = make_subplots(rows=1, cols=len(domains), horizontal_spacing=0.03, **shared)
    for col, domain in enumerate(domains, start=1):
        _bars(figure, means[means["domain"] == domain], col)
        panel_title(figure, domain, row=1, col=col, above=6)
    figure.update_layout(barmode="stack", bargap=0.3)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(title_text="bytes a token gained", rangemode="tozero", showgrid=True)
    room = legend_room(figure, 40 + 44 * means["label"].nunique())
    return titled(
        figure,
        title="Rows read for a token gained",
        note="Whole blocks verified. Solid: positions that stay in the text; pale: read in vain. "
        "Points: seeds. A drafter that reads asks for rows that the target needs a moment later, "
        "so beside a memory it adds nothing.\n" + provenance(frame),
        room=Room(height=room.height, head=room.head, left=250),
    )


def waste_by_threshold(frame: pd.DataFrame, *, temperature: float = 1.0) -> go.Figure:
    """Reads in vain and tokens gained against a threshold on the confidence.

    Args:
        frame: rows of `experiments.catalog.DSPARK_MEMORY_READS`; cells that read nothing are left
            out.
        temperature: at which it was drawn.

    Raises:
        ValueError: if columns are missing, nothing was drawn at this temperature, or nobody reads.
    """
    columns = ("target", "rows", "seed", "domain", "temperature", "threshold", *MEASURES)
    require(frame, *columns, made_by="experiments.catalog.dspark_memory.reads_by_threshold")
    part = drawn_at(frame, temperature)
    part = part[part["row_reads_per_token"] > 0]
    if part.empty:
        raise ValueError("waste_by_threshold needs a cell in which rows are read; none is")
    domains = list(part["domain"].unique())
    figure = make_subplots(
        rows=len(MEASURES),
        cols=len(domains),
        shared_yaxes=True,
        shared_xaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=0.05,
    )
    for col, domain in enumerate(domains, start=1):
        own = part[part["domain"] == domain]
        for row, measure in enumerate(MEASURES, start=1):
            for key in READERS:
                chosen = own[(own["target"] == key[0]) & (own["rows"] == key[1])]
                _curve(figure, chosen, measure, key, row=row, col=col)
        panel_title(figure, domain, row=1, col=col, above=6)
    for row, words in enumerate(MEASURES.values(), start=1):
        figure.update_yaxes(title_text=words, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title_text="threshold", row=len(MEASURES))
    return titled(
        figure,
        title="What a threshold on the confidence saves of the reads",
        note="A round is verified up to the first draft whose confidence is below the threshold; "
        "0 verifies the whole block. Rounds are those of whole blocks. Points: seeds; line: their "
        "mean.\n" + provenance(frame),
        room=legend_room(figure, 540),
    )


def _bytes(part: pd.DataFrame) -> pd.DataFrame:
    """Bytes a token by seed, weighted by the tokens of each prompt, kept and in vain."""
    share = part["wasted_reads_per_token"] / part["row_reads_per_token"]
    read = part["bytes_per_token"] * part["emitted"]
    sums = part.assign(wasted=share * read, kept=(1 - share) * read)
    keys = [*CELL, "seed", "domain"]
    sums = sums.groupby(keys, as_index=False, sort=False)[["kept", "wasted", "emitted"]].sum()
    for name in ("kept", "wasted"):
        sums[name] /= sums["emitted"]
    labels = [
        f"{SERIES[drafter, rows][0]}, <br>target {TARGETS[target]} "
        for target, drafter, rows in sums[CELL].itertuples(index=False)
    ]
    return sums.assign(label=labels)


def _bars(figure: go.Figure, rows: pd.DataFrame, col: int) -> None:
    """Bars of the means, kept below and wasted on top, with a point for every seed."""
    means = rows.groupby("label", sort=False)[["kept", "wasted"]].mean()
    parts = (("kept", "stay in the text", 0.75), ("wasted", "read in vain", 0.25))
    for name, words, opacity in parts:
        figure.add_bar(
            x=means[name],
            y=means.index,
            orientation="h",
            marker={"color": translucent(COLOURS["engram"], opacity)},
            hovertemplate=f"%{{x:,.0f}} bytes {words}<extra></extra>",
            name=words,
            legendgroup=name,
            showlegend=col == 1,
            row=1,
            col=col,
        )
    figure.add_scatter(
        x=rows["kept"] + rows["wasted"],
        y=rows["label"],
        customdata=rows["seed"],
        mode="markers",
        marker={"color": COLOURS["engram"], "size": 6, "line": {"color": "white", "width": 1}},
        hovertemplate="seed %{customdata}: %{x:,.0f} bytes<extra></extra>",
        name="seeds",
        showlegend=False,
        row=1,
        col=col,
    )


def _curve(
    figure: go.Figure,
    rows: pd.DataFrame,
    measure: str,
    key: tuple[str, bool],
    *,
    row: int,
    col: int,
) -> None:
    """One cell in one panel: seeds as points, their mean as a line."""
    if rows.empty:
        return
    name, shade, mark = READERS[key]
    means = rows.groupby("threshold")[measure].mean()
    shared = {"legendgroup": name, "row": row, "col": col}
    figure.add_scatter(
        x=rows["threshold"],
        y=rows[measure],
        customdata=rows["seed"],
        mode="markers",
        marker={"color": translucent(shade, 0.45), "size": 4, "symbol": mark},
        hovertemplate="seed %{customdata}: %{y:.3f}<extra></extra>",
        name=f"{name}, seeds",
        showlegend=False,
        **shared,
    )
    figure.add_scatter(
        x=means.index,
        y=means,
        mode="lines+markers",
        line={"color": shade, "width": 2},
        marker={"size": 6, "symbol": mark},
        hovertemplate="threshold %{x:.1f}: %{y:.3f}<extra>" + name + "</extra>",
        name=name,
        showlegend=row == col == 1,
        **shared,
    )
