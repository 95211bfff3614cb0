"""Is the gate right: loss and utility by gate, the ROC curve, and frequent against rare n-grams."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.footer import provenance, short_number
from engram_lab.figures.panels import NAMES, Line, panel_title, seeds_and_mean
from engram_lab.figures.style import (
    COLOURS,
    SOFT_INK,
    Room,
    colour,
    require,
    symbol,
    titled,
    translucent,
)

MADE_BY = "probes.gate_scores.trained_credit"
KEYS = ["model", "train_tokens", "seed", "layer"]
FIFTHS = 5
MEANS = {"loss_nats": "loss (nats per token)", "utility_nats": "utility (nats per token)"}


def credit_by_gate(
    frame: pd.DataFrame, *, published: pd.DataFrame | None = None, verdict: Any = None
) -> go.Figure:
    """Loss and utility by fifth of the gate, and how far the gate tells help from harm.

    Utility is the loss with the gate shut minus the loss with the gate open, at the token alone.

    Args:
        frame: rows of `probes.gate_scores.trained_credit` with columns model, train_tokens and
            seed; the longest training of the model "engram" is drawn.
        published: the table `nine_table6_alpha_buckets`, whose losses are drawn in grey as
            differences from their mean.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing, or no row has a memory.
    """
    columns = (*KEYS, "gate_bin", "route", "helped", "tokens", *MEANS)
    require(frame, *columns, made_by=MADE_BY)
    final = frame[frame["train_tokens"] == frame["train_tokens"].max()]
    own = final[(final["layer"] >= 0) & (final["model"] == "engram")]
    if own.empty:
        raise ValueError("credit_by_gate needs rows of the model 'engram' with a memory; got none")
    fifths = by_fifth(own)
    figure = make_subplots(rows=1, cols=3, horizontal_spacing=0.09)
    for col, name in enumerate(MEANS, start=1):
        _bars(figure, fifths, name, col)
    if published is not None:
        _published(figure, fifths, published)
    _roc(figure, own)
    titles = ("loss behind the gate", "what opening is worth", "gate as a detector of help")
    for col, title in enumerate(titles, start=1):
        panel_title(figure, title, row=1, col=col, above=6)
    return titled(
        figure,
        title="Does the gate open where memory helps?",
        subtitle=sentences(verdict),
        note=_note(final, own, published),
        room=Room(height=330, head=30),
    )


def route_curves(frame: pd.DataFrame, *, verdict: Any = None) -> go.Figure:
    """Rare minus frequent n-grams over the length of training, with memory and without.

    Args:
        frame: columns model, train_tokens, seed, hot_nats, cold_nats and gap_nats, as
            `experiments.gate_claims.route_gaps` gives them.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("model", "train_tokens", "seed", "hot_nats", "cold_nats", "gap_nats")
    require(frame, *columns, made_by="experiments.gate_claims.route_gaps")
    figure = make_subplots(rows=1, cols=3, horizontal_spacing=0.09)
    panels = {"hot_nats": "behind frequent n-grams", "cold_nats": "behind rare n-grams"}
    panels["gap_nats"] = "rare minus frequent"
    for col, (column, title) in enumerate(panels.items(), start=1):
        for model, part in frame.groupby("model", sort=False):
            line = Line(
                name=NAMES.get(model, model),
                colour=colour(model),
                symbol="circle" if model == "engram" else "square",
                dash="solid" if model == "engram" else "dash",
                legend="legend" if col == 1 else "",
            )
            deltas = part.rename(columns={"train_tokens": "x", column: "delta_nats"})
            seeds_and_mean(figure, deltas, line, row=1, col=col)
        panel_title(figure, title, row=1, col=col)
        figure.update_xaxes(title_text="training tokens", type="log", row=1, col=col)
    budgets = sorted(frame["train_tokens"].unique())
    figure.update_xaxes(
        tickvals=budgets, ticktext=[short_number(float(tokens)) for tokens in budgets]
    )
    figure.update_yaxes(title_text="loss (nats per token)", row=1, col=1)
    figure.update_yaxes(title_text="difference (nats per token)", row=1, col=3)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    return titled(
        figure,
        title="Frequent and rare n-grams over training",
        subtitle=sentences(verdict),
        note=(
            f"{provenance(frame)}. Frequent: trigrams that make up half of all occurrences in the "
            "training text. Every point is a run of its own, trained to the end of its learning "
            "rate. Frequent and rare contexts differ in difficulty anyway: read the hybrid beside "
            "the model without memory."
        ),
        room=Room(height=330, head=46),
    )


def by_fifth(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of `credit_table` added up to fifths of the range of a gate.

    Returns:
        Columns seed, layer, fifth (0 to 4), tokens, share (of the tokens), hot (share of them
        behind frequent n-grams), loss_nats and utility_nats.
    """
    weighted = frame.assign(
        fifth=frame["gate_bin"] * FIFTHS // 20,
        hot=(frame["route"] == "hot") * frame["tokens"],
        **{name: frame[name] * frame["tokens"] for name in MEANS},
    )
    keys = ["seed", "layer", "fifth"]
    sums = weighted.groupby(keys, as_index=False)[["tokens", "hot", *MEANS]].sum()
    sums["share"] = sums["tokens"] / sums.groupby(["seed", "layer"])["tokens"].transform("sum")
    for name in ("hot", *MEANS):
        sums[name] = sums[name] / sums["tokens"]
    return sums[[*keys, "tokens", "share", "hot", *MEANS]]


def roc_points(frame: pd.DataFrame) -> pd.DataFrame:
    """ROC curve of the gate as a detector of tokens that memory helps, from its bins.

    Args:
        frame: rows of `credit_table` of one model and layer.

    Returns:
        Columns harmed (share of the tokens not helped above a bin's lower edge) and helped.
    """
    counts = frame.pivot_table(
        index="gate_bin", columns="helped", values="tokens", aggfunc="sum", fill_value=0
    )
    counts = counts.reindex(columns=[0, 1], fill_value=0).sort_index(ascending=False)
    shares = (counts.cumsum() / counts.sum().clip(lower=1)).to_numpy()
    return pd.DataFrame(np.vstack([[0.0, 0.0], shares]), columns=["harmed", "helped"])


def _note(final: pd.DataFrame, own: pd.DataFrame, published: pd.DataFrame | None) -> str:
    tokens = int(own.groupby(["seed", "layer"])["tokens"].sum().max())
    note = (
        f"{provenance(final[final['model'] == 'engram'])} · {tokens} tokens. Points: seeds; bars: "
        "their mean; percentages: share of tokens, and of them behind frequent n-grams. Utility: "
        "loss with the gate shut minus loss with it open, at one token with the others left alone. "
        "Loss that rises with the gate is no fault by itself: it may open where text is hard."
    )
    if published is None:
        return note
    return note + (
        "\nPublished losses (grey; hollow: quoted by a secondary source) are of another tokenizer "
        "and corpus and are moved to the measured mean: compare the slope. Sources: "
        f"{', '.join(sorted(set(published['source'])))}."
    )


def _bars(figure: go.Figure, fifths: pd.DataFrame, name: str, col: int) -> None:
    means = fifths.groupby("fifth").mean(numeric_only=True)
    shade = COLOURS["engram"]
    centres = (means.index + 0.5) / FIFTHS
    texts = [
        f"{share:.0%}<br>{hot:.0%} hot"
        for share, hot in zip(means["share"], means["hot"], strict=True)
    ]
    figure.add_bar(
        x=centres,
        y=means[name],
        width=0.17,
        text=texts if col == 1 else None,
        textposition="outside",
        textfont={"size": 11, "color": SOFT_INK},
        cliponaxis=False,
        marker={"color": translucent(shade, 0.3), "line": {"color": shade, "width": 1}},
        hovertemplate="%{y:.3f}<extra>mean of seeds</extra>",
        name=MEANS[name],
        showlegend=False,
        row=1,
        col=col,
    )
    figure.add_scatter(
        x=(fifths["fifth"] + 0.5) / FIFTHS,
        y=fifths[name],
        customdata=fifths["seed"],
        mode="markers",
        marker={"color": shade, "size": 6},
        hovertemplate="seed %{customdata}: %{y:.3f}<extra></extra>",
        name=f"{MEANS[name]}, seeds",
        showlegend=False,
        row=1,
        col=col,
    )
    figure.update_xaxes(title_text="gate", range=[0, 1], dtick=0.2, row=1, col=col)
    figure.update_yaxes(title_text=MEANS[name], row=1, col=col)
    if name == "loss_nats":
        top = max(fifths[name].max(), means[name].max())
        figure.update_yaxes(range=[0, 1.25 * top], row=1, col=col)
    else:
        line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
        figure.add_hline(y=0, line=line, layer="below", row=1, col=col)


def _published(figure: go.Figure, fifths: pd.DataFrame, published: pd.DataFrame) -> None:
    """Published losses by gate, moved so that their mean is the measured one of the same fifths."""
    rows = published[published["config"] == "Hash-500K"].dropna(subset=["mean_loss"])
    losses = pd.to_numeric(rows["mean_loss"], errors="coerce")
    centres = (rows["alpha_low"].astype(float) + rows["alpha_high"].astype(float)) / 2
    measured = fifths.groupby("fifth")["loss_nats"].mean()
    shared = measured.reindex((centres * FIFTHS).astype(int)).mean()
    shift = (shared if np.isfinite(shared) else measured.mean()) - losses.mean()
    low, high = figure.get_subplot(1, 1).yaxis.range
    low, high = min(low, 1.1 * (losses + shift).min()), max(high, 1.05 * (losses + shift).max())
    figure.update_yaxes(range=[low, high], row=1, col=1)
    figure.add_scatter(
        x=centres,
        y=losses + shift,
        customdata=losses,
        mode="markers",
        marker={
            "symbol": [symbol(kind, "diamond") for kind in rows["kind"]],
            "size": 10,
            "color": COLOURS["published"],
        },
        hovertemplate="published %{customdata:.2f} nats, moved to the measured mean<extra></extra>",
        name="published, moved",
        showlegend=False,
        row=1,
        col=1,
    )


def _roc(figure: go.Figure, own: pd.DataFrame) -> None:
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"color": SOFT_INK, "width": 1, "dash": "dot"},
        hoverinfo="skip",
        name="says nothing",
        showlegend=False,
        row=1,
        col=3,
    )
    for (layer, seed), part in own.groupby(["layer", "seed"]):
        points = roc_points(part)
        figure.add_scatter(
            x=points["harmed"],
            y=points["helped"],
            mode="lines",
            line={"color": translucent(COLOURS["engram"], 0.6), "width": 1.5},
            hovertemplate=f"block {layer}, seed {seed}<extra></extra>",
            name=f"block {layer}, seed {seed}",
            showlegend=False,
            row=1,
            col=3,
        )
    areas = (
        own.groupby(["layer", "seed"])["auc"].first() if "auc" in own else pd.Series(dtype=float)
    )
    if len(areas):
        figure.add_annotation(
            text=f"area {areas.mean():.2f}<br>({areas.min():.2f} to {areas.max():.2f})",
            x=0.97,
            y=0.06,
            xanchor="right",
            yanchor="bottom",
            row=1,
            col=3,
        )
    figure.update_xaxes(title_text="tokens it harms, or leaves", range=[0, 1], row=1, col=3)
    figure.update_yaxes(title_text="tokens it helps", range=[0, 1], row=1, col=3)
