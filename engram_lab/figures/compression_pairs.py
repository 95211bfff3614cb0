"""Pairs that the token map merges: those that running text keeps apart, and those of a list."""

import html

import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.compression import KINDS, NAMES, of_tokenizer
from engram_lab.figures.style import INK, MONO, RULE, SOFT_INK, Room, require, titled

SEVERAL = {"several": ("several steps", INK)}


def pairs_figure(frame: pd.DataFrame, *, tokenizer: str, shown: int = 20) -> go.Figure:
    """Merged spellings that running text keeps apart most: divergence of what follows them.

    Args:
        frame: rows of `probes.compression_pairs.pair_frame`.
        tokenizer: the one to draw.
        shown: pairs, those with the largest excess over chance.

    Raises:
        ValueError: if columns are missing, or the tokenizer is not in the frame.
    """
    columns = ("tokenizer", "kind", "first", "second", "first_count", "second_count")
    measured = ("divergence_nats", "by_chance_nats", "excess_nats")
    require(frame, *columns, *measured, made_by="probes.compression_pairs.pair_frame")
    rows = of_tokenizer(frame, tokenizer)
    rows = rows.nlargest(shown, "excess_nats").reset_index(drop=True)
    figure = go.Figure()
    for kind, (name, shade) in (KINDS | SEVERAL).items():
        if (part := rows[rows["kind"] == kind]).size:
            figure.add_trace(_divergences(part, "divergence_nats", name, "circle", shade))
    chance = "two random halves of the same sizes"
    figure.add_trace(_divergences(rows, "by_chance_nats", chance, "circle-open", SOFT_INK))
    figure.update_yaxes(
        tickvals=rows.index,
        ticktext=_labels(rows),
        tickfont={"family": MONO, "size": 12},
        range=[len(rows) - 0.4, -0.6],
        ticks="",
    )
    figure.update_xaxes(
        title_text="divergence of the next tokens (nats; 0.693 is nothing in common)",
        range=[0, 0.72],
    )
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    return titled(
        figure,
        title=f"Merged spellings that text keeps apart, {NAMES.get(tokenizer, tokenizer)}",
        note=(
            "The two commonest spellings of a canonical id, the commoner first, coloured by the "
            "step that merges them. Both must occur often; the pairs with the largest excess over "
            "chance are shown."
        ),
        room=Room(height=30 + 22 * len(rows), left=200, head=30),
    )


def minimal_pairs(frame: pd.DataFrame) -> go.Figure:
    """Pairs of a list, by tokenizer: filled where the map makes them one.

    Args:
        frame: rows of `probes.compression_pairs.minimal_pair_frame` of one or more tokenizers.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("tokenizer", "kind", "first", "second", "merged")
    require(frame, *columns, made_by="probes.compression_pairs.minimal_pair_frame")
    pairs = frame[["kind", "first", "second"]].drop_duplicates(ignore_index=True)
    rows = frame.merge(pairs.reset_index(), on=["kind", "first", "second"])
    tokenizers = list(dict.fromkeys(frame["tokenizer"]))
    figure = go.Figure()
    for kind, (name, shade) in KINDS.items():
        own = rows[rows["kind"] == kind]
        figure.add_trace(_grid(own[own["merged"]], name, {"symbol": "circle", "color": shade}))
        apart = {"symbol": "circle-open", "color": shade}
        figure.add_trace(_grid(own[~own["merged"]], name, apart).update(showlegend=False))
    figure.update_xaxes(
        tickvals=tokenizers,
        ticktext=[NAMES.get(name, name).replace(" (", "<br>(") for name in tokenizers],
        categoryorder="array",
        categoryarray=tokenizers,
        side="top",
        range=[-0.5, len(tokenizers) - 0.5],
        ticks="",
        showline=False,
    )
    figure.update_yaxes(
        tickvals=pairs.index,
        ticktext=_labels(pairs),
        tickfont={"family": MONO, "size": 12},
        range=[len(pairs) - 0.4, -0.6],
        gridcolor=RULE,
        ticks="",
        showline=False,
    )
    figure.update_layout(legend={"x": 1.01, "y": 1, "yanchor": "top"})
    return titled(
        figure,
        title="Which pairs become one",
        note=(
            "Filled: both become the same canonical ids, so a memory cannot tell them apart. "
            "Hollow: kept apart, mostly because the two are cut into different tokens. Coloured by "
            "the step that would merge them (␣ space, ⏎ line end)."
        ),
        room=Room(height=30 + 22 * len(pairs), left=200, right=160, head=40, axis=10),
    )


def _divergences(rows: pd.DataFrame, measure: str, name: str, mark: str, shade: str) -> go.Scatter:
    return go.Scatter(
        x=rows[measure],
        y=rows.index,
        customdata=rows[["first_count", "second_count"]],
        mode="markers",
        marker={"symbol": mark, "size": 9, "color": shade},
        hovertemplate=(
            "%{x:.3f} nats; %{customdata[0]:,} and %{customdata[1]:,} occurrences"
            f"<extra>{name}</extra>"
        ),
        name=name,
    )


def _grid(rows: pd.DataFrame, name: str, look: dict[str, str]) -> go.Scatter:
    return go.Scatter(
        x=rows["tokenizer"],
        y=rows["index"],
        customdata=rows[["first", "second"]].map(lambda text: html.escape(text, quote=False)),
        mode="markers",
        marker=look | {"size": 12},
        hovertemplate="%{customdata[0]} / %{customdata[1]}, %{x}<extra></extra>",
        name=name,
        legendgroup=name,
    )


def _labels(pairs: pd.DataFrame) -> list[str]:
    spellings = zip(pairs["first"], pairs["second"], strict=True)
    return [html.escape(f"{first}  /  {second}", quote=False) for first, second in spellings]
