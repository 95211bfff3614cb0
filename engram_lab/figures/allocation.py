"""The allocation curve: loss against the split of the sparse parameters, also by token class."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.losses import (
    allocation_deltas,
    class_names,
    over_seeds,
    split_by_condition,
)
from engram_lab.figures.panels import Line, legend_above, legend_beside, panel_title, seeds_and_mean
from engram_lab.figures.published import PUBLISHED_OPTIMUM, published_shapes
from engram_lab.figures.style import (
    COLOURS,
    DASHES,
    INK,
    RULE,
    SOFT_INK,
    SYMBOLS,
    Room,
    colour,
    require,
    symbol,
    titled,
)

MADE_BY = "probes.allocation.final_loss"
RATIO_TITLE = "allocation ratio ρ (0: memory only, 1: experts only)"
CLASSES_ABOVE = 4  # more names than this do not fit above a panel
DELTA_TITLE = "loss minus loss at ρ = 1 (nats per token)"


def allocation_curve(
    frame: pd.DataFrame,
    *,
    published: pd.DataFrame | Sequence[pd.DataFrame] | None = None,
    verdict: Any = None,
) -> go.Figure:
    """Loss against the share of the sparse parameters given to experts, minus that of pure experts.

    Left all tokens, with the published curves behind as shapes; right the same by token class. A
    corpus or static share that varies gives a row of panels each.

    Args:
        frame: rows of `probes.allocation.final_loss` with columns allocation_ratio (nominal) and
            seed; curves are drawn at realised_ratio where the frame has it.
        published: the tables `engram_allocation` and `qwen38_fixed_budget`, either or both.
        verdict: a sentence, or an object with a `sentence` (a `Verdict`, an `Optimum`).

    Raises:
        ValueError: if columns or the points at ratio 1 are missing.
    """
    require(frame, "allocation_ratio", "seed", "loss_nats", made_by=MADE_BY)
    shapes = published_shapes(published)
    parts = split_by_condition(allocation_deltas(frame))
    classes = [name for name in class_names(frame) if name != "all"]
    figure = _panels(len(parts), with_classes=bool(classes))
    for row, (label, part) in enumerate(parts, start=1):
        _all_tokens(figure, part[part["token_class"] == "all"], shapes, row)
        panel_title(figure, f"all tokens{label}", row=row, col=1)
        if classes:
            _by_class(figure, part, classes, row)
            panel_title(figure, f"by token class{label}", row=row, col=2)
    fitted = len(parts) == 1 and getattr(verdict, "fit_is_inside", False)
    if fitted:
        _fitted_minimum(figure, verdict)
    figure.update_xaxes(title_text=RATIO_TITLE, row=len(parts))
    _published_behind(figure)
    figure.update_layout(legend=legend_above(figure, row=1, col=1))
    crowded = len(classes) > CLASSES_ABOVE
    if classes:
        place = legend_beside if crowded else legend_above
        figure.update_layout(legend2=place(figure, row=1, col=2))
    return titled(
        figure,
        title="How to split the sparse parameters between experts and memory",
        subtitle=sentences(verdict),
        note=_note(frame, shapes) + (_fit_note(verdict) if fitted else ""),
        room=Room(height=400 * len(parts), right=150 if crowded else 24),
    )


def _panels(rows: int, *, with_classes: bool) -> go.Figure:
    """A row of panels for each corpus: all tokens, and beside them the token classes."""
    return make_subplots(
        rows=rows,
        cols=1 + with_classes,
        column_widths=[0.55, 0.45] if with_classes else None,
        horizontal_spacing=0.14,
        vertical_spacing=0.28 / rows,
        specs=[[{"secondary_y": True}] + [{}] * with_classes] * rows,
    )


def sentences(verdict: Any) -> str:
    """Text of a verdict: a sentence, an object with one, or several of them, one a line."""
    if verdict is None:
        return ""
    if isinstance(verdict, (list, tuple)):
        return "\n".join(sentences(item) for item in verdict)
    return str(getattr(verdict, "sentence", verdict))


def _all_tokens(figure: go.Figure, deltas: pd.DataFrame, shapes: pd.DataFrame, row: int) -> None:
    place = {"row": row, "col": 1}
    low, high = deltas["delta_nats"].min(), deltas["delta_nats"].max()
    room = 0.12 * max(high - low, 1e-3)
    low, high = low - 2.8 * room, high + 1.2 * room
    if len(shapes):
        gain = -over_seeds(deltas, ["x"])["mean"].min()
        unit = gain if gain > 0.1 * (high - low) else -0.75 * low
        _published(figure, shapes, (low / unit, high / unit), row)
    name = "measured" if row == 1 else ""
    line = Line(name=name, colour=COLOURS["engram"], legend="legend" if row == 1 else "")
    summary = seeds_and_mean(figure, deltas, line, **place)
    zero_line(figure, row=row, col=1)
    if len(shapes):
        figure.add_vrect(*PUBLISHED_OPTIMUM, fillcolor=RULE, line_width=0, layer="below", **place)
    _lowest_mean(figure, summary.loc[summary["mean"].idxmin()], row)
    figure.update_xaxes(range=[-0.04, 1.04], dtick=0.25, **place)
    figure.update_yaxes(title_text=DELTA_TITLE, range=[low, high], secondary_y=False, **place)


def _lowest_mean(figure: go.Figure, best: pd.Series, row: int) -> None:
    """A ring around the lowest mean, named beyond the seeds so that none is covered."""
    figure.add_scatter(
        x=[best["x"]],
        y=[best["mean"]],
        mode="markers",
        marker={"symbol": "circle-open", "size": 15, "color": INK, "line": {"width": 1.5}},
        hoverinfo="skip",
        name="lowest mean",
        showlegend=False,
        row=row,
        col=1,
    )
    above = best["x"] > 0.95  # there the curve comes from above left, and published ones lie below
    figure.add_annotation(
        text=f"lowest mean<br>ρ = {best['x']:.2f}",
        x=best["x"],
        y=best["high"] if above else best["low"],
        yanchor="bottom" if above else "top",
        yshift=60 if above else -10,
        xshift=10 if above else 0,
        xanchor="right" if above else "left" if best["x"] < 0.05 else "center",
        showarrow=False,
        row=row,
        col=1,
    )


def _fitted_minimum(figure: go.Figure, verdict: Any) -> None:
    """ρ* of an `Optimum` with its interval, near the top of the first panel."""
    low, high = figure.layout.yaxis.range
    figure.add_scatter(
        x=[verdict.ratio],
        y=[high - 0.05 * (high - low)],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [verdict.high - verdict.ratio],
            "arrayminus": [verdict.ratio - verdict.low],
            "thickness": 1.5,
            "width": 4,
            "color": INK,
        },
        mode="markers",
        marker={"symbol": "diamond", "size": 9, "color": INK},
        hovertemplate="ρ* = %{x:.3f}<extra></extra>",
        name="minimum of fit",
        legend="legend",
        row=1,
        col=1,
    )


def zero_line(figure: go.Figure, *, row: int, col: int) -> None:
    """A dotted line at 0, behind; call it when the panel has its traces."""
    line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
    figure.add_hline(y=0, line=line, layer="below", row=row, col=col)


def _published(
    figure: go.Figure, shapes: pd.DataFrame, span: tuple[float, float], row: int
) -> None:
    """The published shapes on an axis of their own, whose 0 is that of the measured one."""
    for number, (name, curve) in enumerate(shapes.groupby("series", sort=False)):
        printed = [
            symbol(kind if printed else "approx", SYMBOLS[1 + number])
            for kind, printed in zip(curve["kind"], curve["printed"], strict=True)
        ]
        figure.add_scatter(
            x=curve["ratio"],
            y=curve["shape"],
            customdata=curve[["delta_nats", "kind", "source"]],
            mode="lines+markers",
            line={"color": COLOURS["published"], "width": 1, "dash": "dot"},
            marker={"symbol": printed, "size": 9, "color": COLOURS["published"]},
            hovertemplate=(
                "ρ = %{x:.2f}: %{customdata[0]:+.4f} nats, %{y:.0%} of the largest gain<br>"
                "%{customdata[1]}, %{customdata[2]}<extra>" + name + "</extra>"
            ),
            name=name,
            legend="legend",
            legendrank=2000,
            showlegend=row == 1,
            row=row,
            col=1,
            secondary_y=True,
        )
    figure.update_yaxes(
        title={"text": "published: share of its own largest gain", "font": {"color": SOFT_INK}},
        range=list(span),
        tickvals=[-1, -0.5, 0],
        tickfont={"color": SOFT_INK},
        showgrid=False,
        row=row,
        col=1,
        secondary_y=True,
    )


def _published_behind(figure: go.Figure) -> None:
    """Let every measured axis lie over the published one that shares its panel."""
    for published in list(figure.select_yaxes(secondary_y=True)):
        measured = figure.layout[published.overlaying.replace("y", "yaxis")]
        published.update(overlaying=None, domain=measured.domain)
        measured.update(overlaying=published.plotly_name.replace("axis", ""), tickmode="auto")


def _by_class(figure: go.Figure, part: pd.DataFrame, classes: list[str], row: int) -> None:
    place = {"row": row, "col": 2}
    for number, name in enumerate(classes):
        line = Line(
            name=name,
            colour=colour(name),
            symbol=SYMBOLS[number % len(SYMBOLS)],
            dash=DASHES[number % len(DASHES)],
            legend="legend2" if row == 1 else "",
        )
        seeds_and_mean(figure, part[part["token_class"] == name], line, **place)
    zero_line(figure, row=row, col=2)
    figure.update_xaxes(range=[-0.04, 1.04], dtick=0.25, **place)


def _fit_note(verdict: Any) -> str:
    resampled = getattr(verdict, "resampled", "documents")
    return f"\nDiamond: minimum of a fitted parabola, bootstrap interval over {resampled}."


def _note(frame: pd.DataFrame, shapes: pd.DataFrame) -> str:
    lines = [
        provenance(frame) + ". " + held_equal(frame),
        "Points: seeds; line: mean of seeds; shade: range over seeds. Every loss minus that at "
        "ρ = 1 of the same seed on the same documents"
        + ("; ρ is the realised ratio." if "realised_ratio" in frame else "."),
    ]
    if len(shapes):
        gains = shapes[shapes["shape"] == -1]
        gains = ", ".join(
            f"{-delta:.4f} nats ({name})"
            for name, delta in zip(gains["series"], gains["delta_nats"], strict=True)
        )
        lines.append(
            "Published (grey): losses of other tokenizers and data do not compare, so each curve "
            f"is drawn as a share of its own largest gain, {gains}. Grey band: optimum printed as "
            "0.75-0.80. Hollow: only said to equal pure experts, or not printed in the source. "
            f"Sources: {', '.join(sorted(set(shapes['source'])))}."
        )
        if shapes.attrs.get("left_out"):
            lines[-1] += (
                f" Not drawn, for want of printed losses: {', '.join(shapes.attrs['left_out'])}."
            )
    return "\n".join(lines)
