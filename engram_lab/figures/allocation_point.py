"""One point of the allocation experiment: where on its curve, and what each class pays."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import DELTA_TITLE, MADE_BY, RATIO_TITLE, zero_line
from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.losses import allocation_deltas, class_names, over_seeds
from engram_lab.figures.panels import Line, panel_title, seeds_and_mean
from engram_lab.figures.style import COLOURS, INK, RULE, SOFT_INK, Room, colour, require, titled

NOT_STORED = "no run of this point<br>is in the frame"


def allocation_point(
    frame: pd.DataFrame, allocation_ratio: float, *, static_share: float | None = None
) -> go.Figure:
    """The allocation curve of one static share with a ring at one ratio, and the losses there.

    Left the curve, those of other shares in grey behind it; right what every token class loses or
    gains at that ratio against pure experts. Axes span the whole frame, so that two figures of one
    frame compare. A point that no run in the frame has leaves the ring and the right panel out.

    Args:
        frame: rows of `probes.allocation.final_loss` of one corpus with columns allocation_ratio
            and seed, and static_share if it varies.
        allocation_ratio: nominal ratio of the point.
        static_share: which curve; None where the frame has one.

    Raises:
        ValueError: if columns, the share or its points at ratio 1 are missing, or there are several
            shares or corpora to choose from.
    """
    require(frame, "allocation_ratio", "seed", "loss_nats", made_by=MADE_BY)
    share = _share(frame, static_share)
    deltas = allocation_deltas(frame)
    curve = deltas if share is None else deltas[deltas["static_share"] == share]
    if curve.empty:
        raise ValueError(f"no run at ratio 1 with static share {share:g} to compare with")
    point = curve[curve["allocation_ratio"] == allocation_ratio]
    figure = make_subplots(rows=1, cols=2, column_widths=[0.58, 0.42], horizontal_spacing=0.1)
    _other_curves(figure, deltas, share)
    _curve(figure, curve[curve["token_class"] == "all"], allocation_ratio)
    _classes(figure, point, class_names(frame))
    _axes(figure, deltas)
    rows = frame if share is None else frame[frame["static_share"] == share]
    phrases = "" if share is None else f", {share:.0%} fixed phrases"
    panel_title(figure, f"all tokens{phrases}", row=1, col=1)
    panel_title(figure, f"by token class at ρ = {allocation_ratio:g}", row=1, col=2)
    return titled(
        figure,
        title=f"What a split at ρ = {allocation_ratio:g} is worth",
        note=f"{provenance(rows)}. {held_equal(rows)}\n"
        "Points: seeds; line and bars: mean of seeds; shade: range over seeds. Every loss minus "
        "that at ρ = 1 of the same seed on the same documents; the losses themselves stand at the "
        "bars." + (" Grey: other shares of fixed phrases." if _several(frame) else ""),
        room=Room(width=840),
    )


def _several(frame: pd.DataFrame) -> bool:
    return "static_share" in frame and frame["static_share"].nunique() > 1


def _share(frame: pd.DataFrame, static_share: float | None) -> float | None:
    """The share whose curve is drawn; None where the frame has no such column."""
    if "corpus" in frame and frame["corpus"].nunique() > 1:
        known = ", ".join(map(str, frame["corpus"].unique()))
        raise ValueError(f"allocation_point draws one corpus; the frame has {known}. Choose one.")
    known = sorted(frame["static_share"].unique()) if "static_share" in frame else []
    if static_share is None and len(known) <= 1:
        return known[0] if known else None
    if static_share not in known:
        shares = ", ".join(f"{share:g}" for share in known) or "none (no such column)"
        raise ValueError(f"static_share must be one of the frame's: {shares}; got {static_share}")
    return static_share


def _other_curves(figure: go.Figure, deltas: pd.DataFrame, share: float | None) -> None:
    """The mean curves of the other shares, thin and grey."""
    if share is None:
        return
    others = deltas[(deltas["static_share"] != share) & (deltas["token_class"] == "all")]
    for other, part in others.groupby("static_share"):
        mean = over_seeds(part, ["x"])
        figure.add_scatter(
            x=mean["x"],
            y=mean["mean"],
            mode="lines",
            line={"color": COLOURS["published"], "width": 1},
            hovertemplate=f"{other:.0%} phrases: %{{y:+.4f}} nats at %{{x:.3f}}<extra></extra>",
            name=f"{other:.0%} phrases",
            showlegend=False,
            row=1,
            col=1,
        )


def _curve(figure: go.Figure, curve: pd.DataFrame, ratio: float) -> None:
    """Seeds, mean and range, and a ring at the ratio with its value."""
    line = Line(name="measured", colour=COLOURS["engram"], legend="")
    seeds_and_mean(figure, curve, line, row=1, col=1)
    zero_line(figure, row=1, col=1)
    here = curve[curve["allocation_ratio"] == ratio]
    if here.empty:
        return
    delta = here["delta_nats"].mean()
    figure.add_scatter(
        x=[here["x"].iloc[0]],
        y=[delta],
        mode="markers+text",
        text=[f"{delta:+.4f}"],
        textposition="bottom center" if delta < 0 else "top center",
        textfont={"size": 12, "color": INK},
        marker={"symbol": "circle-open", "size": 17, "color": INK, "line": {"width": 2}},
        hoverinfo="skip",
        name="this split",
        showlegend=False,
        cliponaxis=False,
        row=1,
        col=1,
    )


def _classes(figure: go.Figure, point: pd.DataFrame, names: list[str]) -> None:
    """A bar for each token class with its seeds, its loss written beside."""
    if point.empty:
        figure.add_annotation(
            text=NOT_STORED,
            x=0.5,
            xref="x2 domain",
            y=0.5,
            yref="y2 domain",
            font={"color": SOFT_INK, "size": 13},
            showarrow=False,
        )
    means = point.groupby("token_class")[["delta_nats", "loss_nats"]].mean()
    shown = [name for name in names if name in means.index]
    figure.add_bar(
        x=shown,
        y=[means.loc[name, "delta_nats"] for name in shown],
        text=[f"{means.loc[name, 'loss_nats']:.4g} nats" for name in shown],
        textposition="outside",
        textfont={"size": 11, "color": INK},
        cliponaxis=False,
        marker={"color": [COLOURS["engram"] if n == "all" else colour(n) for n in shown]},
        width=0.6,
        hovertemplate="%{x}: %{y:+.4f} nats against pure experts<extra></extra>",
        name="mean of seeds",
        showlegend=False,
        row=1,
        col=2,
    )
    _class_seeds(figure, point[point["token_class"].isin(shown)])
    figure.update_xaxes(
        type="category",
        categoryorder="array",
        categoryarray=names,
        tickvals=names,
        range=[-0.6, len(names) - 0.4],
        row=1,
        col=2,
    )


def _class_seeds(figure: go.Figure, seeds: pd.DataFrame) -> None:
    """A dot for every seed in the bar of its token class."""
    figure.add_scatter(
        x=seeds["token_class"],
        y=seeds["delta_nats"],
        customdata=seeds[["seed", "loss_nats"]],
        mode="markers",
        marker={"color": "white", "size": 6, "line": {"color": INK, "width": 1}},
        hovertemplate="seed %{customdata[0]}: %{customdata[1]:.5g} nats, %{y:+.4f}<extra></extra>",
        name="seeds",
        showlegend=False,
        row=1,
        col=2,
    )


def _axes(figure: go.Figure, deltas: pd.DataFrame) -> None:
    """The same axes for every point of a frame."""
    whole = deltas[deltas["token_class"] == "all"]
    for col, part in ((1, whole), (2, deltas)):
        low, high = min(part["delta_nats"].min(), 0), max(part["delta_nats"].max(), 0)
        room = 0.14 * max(high - low, 1e-3)
        figure.update_yaxes(range=[low - room, high + room], row=1, col=col)
    figure.update_xaxes(title_text=RATIO_TITLE, range=[-0.04, 1.04], dtick=0.25, row=1, col=1)
    figure.update_yaxes(title_text=DELTA_TITLE, row=1, col=1)
    figure.update_yaxes(zeroline=True, zerolinecolor=SOFT_INK, gridcolor=RULE, row=1, col=2)
