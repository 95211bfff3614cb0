"""What the token map does to a trained model's loss, behind which spelling of the last token."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.losses import losses_by_seed, minus_reference, over_seeds
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, RULE, SOFT_INK, Room, require, titled, translucent

CLASSES = {
    "all": "all tokens",
    "single": "the only spelling",
    "usual": "the usual spelling",
    "space": "other white space",
    "case": "other case",
    "accent": "other accent",
    "form": "other form",
    "several": "several at once",
}
"""Classes of the token before, and how they are named."""


def map_effect(frame: pd.DataFrame, *, verdict: Any = None) -> go.Figure:
    """Loss with canonical ids minus that with raw ones, by the spelling of the token before.

    Args:
        frame: rows of `probes.compression_loss.spelling_loss` with columns arm, allocation_ratio
            and seed; the arms canonical and raw.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns or the arm raw are missing.
    """
    columns = ("arm", "allocation_ratio", "seed", "token_class", "loss_nats", "eval_tokens")
    require(frame, *columns, made_by="probes.compression_loss.spelling_loss")
    hybrids = frame[frame["arm"] != "experts"]
    deltas = _deltas(hybrids)
    share = _shares(hybrids)
    classes = [name for name in CLASSES if name in share.index]
    labels = {name: f"{CLASSES[name]}<br>{share[name]:.1%} of tokens" for name in classes}
    ratios = list(dict.fromkeys(hybrids["allocation_ratio"]))
    figure = make_subplots(rows=1, cols=len(ratios), shared_yaxes=True, horizontal_spacing=0.05)
    for col, ratio in enumerate(ratios, start=1):
        part = deltas[deltas["allocation_ratio"] == ratio]
        for trace in (_means(part, labels), _seeds(part, labels)):
            figure.add_trace(trace, row=1, col=col)
        figure.add_vline(x=0, line={"color": SOFT_INK, "width": 1, "dash": "dot"}, row=1, col=col)
        panel_title(
            figure, f"{ratio:.0%} of the sparse parameters in experts", row=1, col=col, above=4
        )
    figure.update_xaxes(
        title_text="canonical minus raw (nats per token)", showgrid=True, gridcolor=RULE
    )
    figure.update_yaxes(
        categoryorder="array",
        categoryarray=[labels[name] for name in reversed(classes)],
        showgrid=False,
        ticks="",
        showline=False,
    )
    return titled(
        figure,
        title="Does the token map pay, and behind which spelling?",
        subtitle=sentences(verdict),
        note=(
            f"{provenance(hybrids)}. {held_equal(hybrids)}\nLeft of 0 the map helps. Bars: mean; "
            "points: seeds. Tokens are sorted by the token before them: the last one that the "
            "memory reads. The usual spelling is the most frequent one in training."
        ),
        room=Room(height=30 + 44 * len(classes), left=150, head=24),
    )


def _deltas(hybrids: pd.DataFrame) -> pd.DataFrame:
    """Loss of canonical ids minus that of raw ones, by ratio, seed and class."""
    losses = losses_by_seed(hybrids, ["arm", "allocation_ratio"])
    deltas = minus_reference(losses, "arm", "raw", within=["allocation_ratio"])
    return deltas[deltas["arm"] == "canonical"]


def _shares(frame: pd.DataFrame) -> pd.Series:
    """Share of the tokens in each class."""
    tokens = frame.groupby("token_class")["eval_tokens"].sum()
    return tokens / tokens["all"]


def _means(deltas: pd.DataFrame, labels: dict[str, str]) -> go.Bar:
    summary = over_seeds(deltas, ["token_class"])
    shade = COLOURS["engram"]
    return go.Bar(
        x=summary["mean"],
        y=summary["token_class"].map(labels),
        orientation="h",
        width=0.5,
        marker={"color": translucent(shade, 0.35), "line": {"color": shade, "width": 1}},
        text=[f"{mean:+.3f}".replace("-", "−") for mean in summary["mean"]],
        textposition="none",
        hovertemplate="mean %{x:+.4f} nats<extra></extra>",
        name="mean",
        showlegend=False,
    )


def _seeds(deltas: pd.DataFrame, labels: dict[str, str]) -> go.Scatter:
    return go.Scatter(
        x=deltas["delta_nats"],
        y=deltas["token_class"].map(labels),
        customdata=deltas["seed"],
        mode="markers",
        marker={"color": COLOURS["engram"], "size": 7, "line": {"color": "white", "width": 1}},
        hovertemplate="seed %{customdata}: %{x:+.4f} nats<extra></extra>",
        name="seeds",
        showlegend=False,
    )
