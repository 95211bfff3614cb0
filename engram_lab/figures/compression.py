"""What the token map merges: share of the ids by tokenizer and by kind, and the largest groups."""

import html

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import legend_above, panel_title
from engram_lab.figures.style import COLOURS, INK, MONO, RULE, Room, require, symbol, titled

KINDS = {
    "form": ("compatibility form", "#117733"),
    "accent": ("accent", "#CC79A7"),
    "case": ("case", "#E69F00"),
    "space": ("white space", "#56B4E9"),
}
"""Steps of the normaliser: their names and colours."""
NAMES = {
    "bpe4k": "bpe4k (shipped)",
    "bpe16k": "bpe16k (shipped)",
    "deepseek_v4": "DeepSeek V4",
    "deepseek_v3": "DeepSeek V3",
    "qwen3": "Qwen3",
    "gpt2": "GPT-2",
    "o200k": "GPT-4o (o200k)",
}
PUBLISHED_FOR = ("deepseek_v4", "deepseek_v3")
"""Tokenizers that the published numbers are of: the 128k one, whichever release."""


def compression_bars(frame: pd.DataFrame, *, published: pd.DataFrame | None = None) -> go.Figure:
    """Share of the ids that the map removes, by tokenizer, and which step does it.

    Args:
        frame: rows of `probes.compression.kind_frame` of one or more tokenizers.
        published: the table `engram_table6_tokenizer_compression`; its share stands beside that of
            the tokenizer it is of.

    Raises:
        ValueError: if columns are missing.
    """
    made_by = "probes.compression.kind_frame"
    require(frame, "tokenizer", "kind", "ids", "alone_share", "needed_share", made_by=made_by)
    whole = frame[frame["kind"] == "all"].iloc[::-1]
    labels = [
        f"{NAMES.get(row.tokenizer, row.tokenizer)}<br>{row.ids:,} ids"
        for row in whole.itertuples()
    ]
    figure = make_subplots(
        rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04, column_widths=[0.42, 0.58]
    )
    figure.add_trace(_removed(whole, labels), row=1, col=1)
    for kind in KINDS:
        _kind(figure, frame[frame["kind"] == kind].iloc[::-1], labels, kind)
    if published is not None:
        figure.add_trace(_published_share(whole, labels, published), row=1, col=1)
    panel_title(figure, "ids removed", row=1, col=1)
    panel_title(figure, "by step of the normaliser", row=1, col=2)
    most = frame["alone_share"][frame["kind"] != "all"].max()
    figure.update_xaxes(tickformat=".0%", showgrid=True, gridcolor=RULE)
    figure.update_xaxes(title_text="share of the tokenizer's ids")
    figure.update_xaxes(range=[-0.02 * most, 1.06 * most], row=1, col=2)
    figure.update_yaxes(showgrid=False, ticks="", showline=False)
    font = {"font": {"size": 12}}
    figure.update_layout(
        legend=legend_above(figure, row=1, col=1) | font,
        legend2=legend_above(figure, row=1, col=2) | font,
    )
    return titled(
        figure,
        title="What the token map merges",
        note=(
            "Right: filled, ids that a step removes by itself; hollow, ids that the others miss "
            "without it. Steps work together, so neither adds up to the whole. Cross: published "
            "for the 128k tokenizer (arXiv:2601.07372, table 6)."
        ),
        room=Room(height=40 + 44 * len(whole), left=170, head=50),
    )


def largest_groups(
    frame: pd.DataFrame, *, tokenizer: str, published: pd.DataFrame | None = None
) -> go.Figure:
    """Sizes of a tokenizer's largest groups, with some of their members.

    Args:
        frame: rows of `probes.compression.group_frame`.
        tokenizer: the one to draw.
        published: the table `engram_table6_tokenizer_compression`; its sizes stand beside by rank.

    Raises:
        ValueError: if columns are missing, or the tokenizer is not in the frame.
    """
    made_by = "probes.compression.group_frame"
    require(frame, "tokenizer", "rank", "size", "canonical", "members", made_by=made_by)
    rows = of_tokenizer(frame, tokenizer).sort_values("rank")
    figure = go.Figure(_sizes(rows))
    if published is not None:
        figure.add_traces(_published_sizes(published[published["rank"] <= rows["rank"].max()]))
    ticks = [html.escape(text, quote=False) for text in rows["canonical"]]
    figure.update_yaxes(
        tickvals=rows["rank"],
        ticktext=ticks,
        tickfont={"family": MONO, "size": 12},
        autorange="reversed",
        showgrid=False,
        ticks="",
    )
    figure.update_xaxes(title_text="token ids in the group", range=[0, 1.9 * rows["size"].max()])
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    return titled(
        figure,
        title=f"The largest groups of {NAMES.get(tokenizer, tokenizer)}",
        note=(
            "One canonical id a line: the text its members share after normalisation, their number "
            "and the first of them (␣ space, ⏎ line end, ⇥ tab)."
        ),
        room=Room(height=30 + 22 * len(rows), left=90, head=30),
    )


def of_tokenizer(frame: pd.DataFrame, tokenizer: str) -> pd.DataFrame:
    """The rows of one tokenizer.

    Raises:
        ValueError: if there are none, naming those that the frame has.
    """
    rows = frame[frame["tokenizer"] == tokenizer]
    if rows.empty:
        known = ", ".join(frame["tokenizer"].unique())
        raise ValueError(f"no rows of tokenizer {tokenizer!r}; the frame has {known}")
    return rows


def _removed(whole: pd.DataFrame, labels: list[str]) -> go.Bar:
    return go.Bar(
        x=whole["alone_share"],
        y=labels,
        orientation="h",
        marker={"color": COLOURS["engram"], "opacity": 0.8},
        text=[f"{share:.2%}" for share in whole["alone_share"]],
        textposition="inside",
        insidetextanchor="start",
        hovertemplate="%{y}: %{x:.2%} of the ids removed<extra></extra>",
        name="removed by the map",
        width=0.62,
    )


def _kind(figure: go.Figure, rows: pd.DataFrame, labels: list[str], kind: str) -> None:
    name, shade = KINDS[kind]
    for measure, mark in (("alone_share", "circle"), ("needed_share", "circle-open")):
        figure.add_scatter(
            x=rows[measure],
            y=labels,
            mode="markers",
            marker={"symbol": mark, "size": 11, "color": shade}
            | {"line": {"width": 2, "color": shade}},
            hovertemplate="%{y}: %{x:.2%}<extra>" + f"{name}, {measure.split('_')[0]}</extra>",
            name=name,
            legend="legend2",
            legendgroup=name,
            showlegend=measure == "alone_share",
            row=1,
            col=2,
        )


def _published_share(whole: pd.DataFrame, labels: list[str], published: pd.DataFrame) -> go.Scatter:
    labelled = zip(labels, whole["tokenizer"], strict=True)
    places = [label for label, name in labelled if name in PUBLISHED_FOR]
    first = published.iloc[0]
    share = first["overall_reduction_pct"] / 100
    cross = _cross(first["kind"], "%{x:.2%} of the ids")
    return cross.update(x=[share] * len(places), y=places)


def _sizes(rows: pd.DataFrame) -> go.Bar:
    members = (text if len(text) < 60 else text[:58] + "…" for text in rows["members"])
    texts = [f"  {size}   {text}" for size, text in zip(rows["size"], members, strict=True)]
    return go.Bar(
        x=rows["size"],
        y=rows["rank"],
        orientation="h",
        marker={"color": COLOURS["engram"], "opacity": 0.8},
        text=[html.escape(text, quote=False) for text in texts],
        textposition="outside",
        cliponaxis=False,
        textfont={"family": MONO, "size": 11},
        hovertemplate="%{x} ids: %{text}<extra></extra>",
        name="ids in the group",
    )


def _published_sizes(published: pd.DataFrame) -> list[go.Scatter]:
    return [
        _cross(kind, "%{x} ids").update(x=part["merge_count"], y=part["rank"])
        for kind, part in published.groupby("kind")
    ]


def _cross(kind: str, value: str) -> go.Scatter:
    """How published values are drawn; exact ones as a cross."""
    return go.Scatter(
        mode="markers",
        marker={"symbol": symbol(kind, "x-thin"), "size": 11, "line": {"width": 2.5, "color": INK}},
        hovertemplate=f"published: {value}<extra></extra>",
        name=f"published ({kind})",
    )
