"""The hot tier: loss and speed of its arms, and how many look-ups hot keys answer."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.collisions import ORDER_COLOURS, ORDER_SYMBOLS
from engram_lab.figures.footer import held_equal, provenance, short_number
from engram_lab.figures.losses import losses_by_seed, minus_reference
from engram_lab.figures.panels import Line, bar_and_seeds, panel_title
from engram_lab.figures.style import (
    COLOURS,
    DASHES,
    RULE,
    SOFT_INK,
    Room,
    require,
    symbol,
    titled,
)

MADE_BY = "probes.hot_tier.hot_tier_loss"
ARMS = {
    "smaller": ("fewer hashed rows", "#9CC9E3"),
    "hash": ("hashed rows", COLOURS["engram"]),
    "larger": ("more hashed rows", "#08306B"),
    "hot_cold": ("a quarter for<br>frequent n-grams", COLOURS["static"]),
    "random_keys": ("a quarter for<br>random n-grams", COLOURS["neighbour"]),
}
PUBLISHED_ARMS = {
    "Hash-500K": "hash",
    "Nine-100/400K": "hot_cold",
    "Hash-300K": "smaller",
    "Hash-800K": "larger",
}


def hot_tier_arms(
    frame: pd.DataFrame, *, published: pd.DataFrame | None = None, verdict: Any = None
) -> go.Figure:
    """Loss of every arm minus that of the hashed rows, a panel a table size.

    Args:
        frame: rows of `probes.hot_tier.hot_tier_loss` with columns rows, arm and seed.
        published: the table `nine_table3_iso_param`; its differences stand beside the size that has
            most arms.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns or the arm "hash" are missing.
    """
    require(frame, "rows", "arm", "seed", "loss_nats", made_by=MADE_BY)
    sizes = sorted(map(int, frame["rows"].unique()))
    arms = [arm for arm in ARMS if arm in set(frame["arm"])]
    labels = [ARMS[arm][0] for arm in arms]
    figure = make_subplots(rows=1, cols=len(sizes), shared_yaxes=True, horizontal_spacing=0.04)
    losses = losses_by_seed(frame, ["rows", "arm"])
    deltas = minus_reference(losses, "arm", "hash", within=["rows"])
    deltas = deltas[deltas["token_class"] == "all"]
    for col, size in enumerate(sizes, 1):
        for arm in arms:
            _bar(figure, deltas[(deltas["rows"] == size) & (deltas["arm"] == arm)], arm, col=col)
        panel_title(figure, _size_title(frame, size), row=1, col=col, above=4)
        figure.layout.annotations[-1].update(align="left")
    if published is not None:
        fullest = frame.groupby("rows")["arm"].nunique().idxmax()
        _published(figure, published, arms, col=1 + sizes.index(fullest))
    line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
    for col in range(1, len(sizes) + 1):
        figure.add_vline(x=0, line=line, layer="below", row=1, col=col)
    figure.update_xaxes(title_text="loss minus hashed rows (nats per token)")
    figure.update_xaxes(showgrid=True, gridcolor=RULE, nticks=5)
    figure.update_yaxes(
        categoryarray=labels, categoryorder="array", autorange="reversed", showgrid=False, ticks=""
    )
    return titled(
        figure,
        title="Rows of their own for frequent n-grams",
        subtitle=sentences(verdict),
        note=_arms_note(frame, published is not None),
        room=Room(height=40 + 62 * len(arms), left=140, head=44),
    )


def coverage_curve(
    frame: pd.DataFrame, *, published: pd.DataFrame | None = None, marked: Sequence[int] = ()
) -> go.Figure:
    """Share of look-ups that the most frequent n-grams answer, against their number.

    Args:
        frame: rows of `probes.hot_tier.coverage_frame`; with a column tokenizer a dash for each.
        published: the table `nine_coverage`.
        marked: numbers of hot keys to mark with a line.

    Raises:
        ValueError: if columns are missing.
    """
    made_by = "probes.hot_tier.coverage_frame"
    require(frame, "order", "hot_keys", "keys", "coverage", made_by=made_by)
    figure = go.Figure()
    heard = "heard_coverage" if "heard_coverage" in frame else "coverage"
    several = frame if "tokenizer" in frame else frame.assign(tokenizer="")
    for dash, (name, rows) in zip(DASHES, several.groupby("tokenizer", sort=False), strict=False):
        for order, part in rows.groupby("order"):
            part = part[part["hot_keys"] <= part["keys"]].sort_values("hot_keys")
            figure.add_scatter(
                x=part["hot_keys"],
                y=part[heard],
                customdata=part["coverage"],
                mode="lines+markers",
                line={"color": ORDER_COLOURS[order], "dash": dash, "width": 2},
                marker={"symbol": ORDER_SYMBOLS[order], "size": 7},
                hovertemplate=(
                    "%{x:,} n-grams: %{y:.1%} of the look-ups of new text, %{customdata:.1%} of "
                    f"the text that chose them<extra>{order}-grams {name}</extra>"
                ),
                name=f"{order}-grams{', ' if name else ''}{name}",
            )
    if published is not None:
        _published_coverage(figure, published)
    for number in marked:
        figure.add_vline(x=number, line={"color": SOFT_INK, "width": 1, "dash": "dot"})
    figure.update_xaxes(type="log", dtick=1, title_text="hot n-grams of the order")
    figure.update_yaxes(
        range=[0, 1], tickformat=".0%", title_text="share of the look-ups of new text"
    )
    figure.update_layout(legend={"x": 0.01, "y": 0.99, "yanchor": "top"})
    return titled(
        figure,
        title="How many look-ups hot n-grams answer",
        note=_coverage_note(several, marked),
        room=Room(height=380),
    )


def _bar(figure: go.Figure, deltas: pd.DataFrame, arm: str, *, col: int) -> None:
    if deltas.empty:
        return
    label, shade = ARMS[arm]
    line = Line(name=arm, colour=shade)
    bar_and_seeds(figure, deltas, line, label=label, width=0.4, col=col)


def _published(figure: go.Figure, published: pd.DataFrame, arms: list[str], *, col: int) -> None:
    losses = published.set_index("config")["val_loss"]
    drawn = [(name, arm) for name, arm in PUBLISHED_ARMS.items() if arm in arms and arm != "hash"]
    kind = published["kind"].iloc[0]
    figure.add_scatter(
        x=[losses[name] - losses["Hash-500K"] for name, _ in drawn],
        y=[ARMS[arm][0] for _, arm in drawn],
        mode="markers",
        marker={"symbol": symbol(kind, "diamond"), "size": 11, "color": COLOURS["published"]}
        | {"line": {"width": 2, "color": COLOURS["published"]}},
        hovertemplate="published: %{x:+.4f} nats<extra></extra>",
        name=f"published ({kind})",
        showlegend=False,
        row=1,
        col=col,
    )


def _size_title(frame: pd.DataFrame, size: int) -> str:
    """Rows of a head, and how many that is for every distinct n-gram of the training text."""
    title = f"{size:,} rows a head"
    orders = [int(name[5:]) for name in frame if name.startswith("keys_")]
    if orders:
        keys = frame[frame["rows"] == size].iloc[0]
        shares = (f"{size / keys[f'keys_{order}']:.2g}" for order in orders)
        title += f"<br>{' and '.join(shares)} per distinct {'-, '.join(map(str, orders))}-gram"
    return title


def _arms_note(frame: pd.DataFrame, published: bool) -> str:
    equal = frame[frame["arm"].isin(("hash", "hot_cold", "random_keys"))]
    text = f"{provenance(frame)}. "
    text += " ".join(
        f"At {size:,} rows: {held_equal(part)}" for size, part in equal.groupby("rows")
    )
    text += "\nBars: mean over seeds; points: seeds."
    if published:
        text += " Diamonds: published differences (arXiv:2601.16531, secondary)."
    return text


def _published_coverage(figure: go.Figure, published: pd.DataFrame) -> None:
    for order, part in published.groupby("order"):
        kind = part["kind"].iloc[0]
        shade = ORDER_COLOURS[order]
        figure.add_scatter(
            x=part["hot_keys"],
            y=part["query_coverage_pct"] / 100,
            mode="markers",
            marker={"symbol": symbol(kind, ORDER_SYMBOLS[order]), "size": 13, "color": shade}
            | {"line": {"width": 2, "color": shade}},
            hovertemplate="published: %{y:.0%}<extra></extra>",
            name=f"{order}-grams, published ({kind})",
        )


def _coverage_note(frame: pd.DataFrame, marked: Sequence[int]) -> str:
    text = (
        "Hot n-grams are the most frequent ones of one half of the text; the other half is heard."
    )
    if "tokens" in frame:
        sizes = frame.drop_duplicates("tokenizer")
        named = [
            f"{short_number(float(row.tokens))} tokens in {row.tokenizer or 'its ids'}"
            for row in sizes.itertuples()
        ]
        text += f" Halves: {', '.join(named)}."
    if len(marked):
        text += " Dotted: hot n-grams of the trained arms."
    return text + " Published: hollow where the value is second-hand (other text)."
