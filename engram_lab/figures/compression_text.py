"""What merging does to running text: keys saved, knowledge lost, rows less crowded."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.compression import NAMES
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, DASHES, RULE, SPARE, Room, require, titled

SHADES = (*(COLOURS[name] for name in ("engram", "static", "wide_ffn", "neighbour")), *SPARE)


def text_effects(frame: pd.DataFrame) -> go.Figure:
    """What merging does to running text: keys saved, and knowledge of the next token lost.

    Args:
        frame: rows of `probes.compression_text.text_frame`.

    Raises:
        ValueError: if columns are missing.
    """
    measured = ("key_reduction", "lost_nats", "lost_by_chance_nats")
    made_by = "probes.compression_text.text_frame"
    require(frame, "tokenizer", "order", "tokens", *measured, made_by=made_by)
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.1)
    lost = frame.assign(excess=frame["lost_nats"] - frame["lost_by_chance_nats"])
    for number, (name, rows) in enumerate(_by_tokenizer(lost)):
        look = {"color": SHADES[number % len(SHADES)], "dash": DASHES[number % 2], "width": 2}
        figure.add_trace(_line(rows, "key_reduction", name, look), row=1, col=1)
        figure.add_trace(_line(rows, "excess", name, look), row=1, col=2)
    figure.update_traces(showlegend=False, col=2)
    panel_title(figure, "distinct n-grams saved", row=1, col=1, above=4)
    panel_title(figure, "knowledge of the next token lost", row=1, col=2, above=4)
    orders = sorted(frame["order"].unique())
    figure.update_xaxes(tickvals=orders, title_text="tokens in the n-gram")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(tickformat=".0%", title_text="share of the n-grams", row=1, col=1)
    figure.update_yaxes(title_text="nats per token, beyond chance", row=1, col=2)
    figure.update_layout(legend={"x": 1.01, "y": 1, "yanchor": "top"})
    return titled(
        figure,
        title="What merging does to running text",
        note=(
            f"{frame['tokens'].max():,} tokens of the bundle a tokenizer. Right: entropy of the "
            "next token given the merged n-gram, less that given the n-gram as it is spelled; the "
            "same with spellings dealt out at random is taken off, since few occurrences make any "
            "split look informative."
        ),
        room=Room(height=330, right=170, head=24),
    )


def predicted_loads_figure(frame: pd.DataFrame) -> go.Figure:
    """Keys per row with and without the map, and the share of keys expected to share a row.

    Args:
        frame: rows of `probes.compression_text.predicted_loads`, of one number of rows.

    Raises:
        ValueError: if columns are missing, or the numbers of rows differ.
    """
    measured = ("raw_load", "canonical_load", "raw_share", "canonical_share")
    made_by = "probes.compression_text.predicted_loads"
    require(frame, "tokenizer", "order", "rows", *measured, made_by=made_by)
    sizes = frame["rows"].unique()
    if len(sizes) > 1:
        raise ValueError(
            f"predicted_loads_figure draws tables of one size; got {sizes.tolist()}. Keep one: "
            "frame[frame['rows'] == ...]"
        )
    orders = sorted(frame["order"].unique())
    figure = make_subplots(rows=1, cols=len(orders), shared_yaxes=True, horizontal_spacing=0.04)
    for col, order in enumerate(orders, start=1):
        rows = frame[frame["order"] == order].iloc[::-1]
        for trace in _dumbbells(rows):
            figure.add_trace(trace.update(showlegend=col == 1 and bool(trace.name)), row=1, col=col)
        panel_title(figure, f"{order}-grams", row=1, col=col)
        reach = 1.3 * rows["raw_load"].max()
        figure.update_xaxes(range=[0, reach], title_text="keys per row", row=1, col=col)
    figure.update_xaxes(showgrid=True, gridcolor=RULE)
    figure.update_yaxes(showgrid=False, ticks="", showline=False)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"})
    return titled(
        figure,
        title=f"Keys in a table of {sizes[0]:,} rows",
        note=(
            "Distinct n-grams of the text over rows. Numbers: share of the keys that an even hash "
            "lets share their row with another key, without and with the map."
        ),
        room=Room(height=40 + 44 * len(_by_tokenizer(frame)), left=130, head=50),
    )


def _by_tokenizer(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    parts = frame.sort_values("order").groupby("tokenizer", sort=False)
    order = list(dict.fromkeys(frame["tokenizer"]))
    return [(NAMES.get(name, name), parts.get_group(name)) for name in order]


def _line(rows: pd.DataFrame, measure: str, name: str, look: dict[str, str | int]) -> go.Scatter:
    return go.Scatter(
        x=rows["order"],
        y=rows[measure],
        mode="lines+markers",
        line=look,
        hovertemplate="%{y:.4f}<extra>" + f"{name}</extra>",
        name=name,
        legendgroup=name,
    )


def _dumbbells(rows: pd.DataFrame) -> list[go.Scatter]:
    """For every tokenizer a line from the raw to the canonical load, and its two ends."""
    labels = [NAMES.get(name, name) for name in rows["tokenizer"]]
    ends, places = [], []
    for raw, canonical, label in zip(rows["raw_load"], rows["canonical_load"], labels, strict=True):
        ends += [raw, canonical, None]
        places += [label, label, None]
    shares = zip(rows["raw_share"], rows["canonical_share"], strict=True)
    shade = COLOURS["engram"]
    bar = go.Scatter(x=ends, y=places, mode="lines", line={"color": shade, "width": 2})
    return [
        bar.update(hoverinfo="skip", name=""),
        go.Scatter(
            x=rows["raw_load"],
            y=labels,
            mode="markers+text",
            marker={"symbol": "circle-open", "size": 11, "color": shade, "line": {"width": 2}},
            text=[f"  {raw:.1%} → {canonical:.1%}" for raw, canonical in shares],
            textposition="middle right",
            textfont={"size": 11},
            cliponaxis=False,
            hovertemplate="%{x:.3f} keys per row<extra>raw ids</extra>",
            name="raw ids",
        ),
        go.Scatter(
            x=rows["canonical_load"],
            y=labels,
            mode="markers",
            marker={"size": 11, "color": shade},
            hovertemplate="%{x:.3f} keys per row<extra>canonical ids</extra>",
            name="canonical ids",
        ),
    ]
