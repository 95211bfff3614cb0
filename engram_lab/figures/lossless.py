"""Losslessness: laws under several policies, mistakes by their size, samples closing in."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.policies import POLICIES, listed
from engram_lab.figures.style import (
    COLOURS,
    INK,
    SOFT_INK,
    SPARE,
    Room,
    require,
    symbol,
    titled,
    translucent,
)

GROUP = 0.8
"""Width of the bars of one text together, in texts."""
EXACT = 1e-9
"""Distances below this are rounding."""


def law_bars(
    frame: pd.DataFrame, *, published: pd.DataFrame | None = None, verdict: str = ""
) -> go.Figure:
    """What comes out under every policy, a bar a text, beside what the target says.

    Args:
        frame: rows of `probes.lossless.law_frame`.
        published: the values of `dspark_appendix_a`, if the frame is of that game.
        verdict: sentence for the subtitle.

    Raises:
        ValueError: if columns are missing.
    """
    require(
        frame,
        *("policy", "text", "target", "output", "total_variation"),
        made_by="probes.lossless.law_frame",
    )
    figure, places = go.Figure(), _places(frame)
    for policy, offset in places.items():
        rows = frame[frame["policy"] == policy]
        distance = float(rows["total_variation"].iloc[0])
        figure.add_bar(
            x=[index + offset for index in range(len(rows))],
            y=rows["output"],
            width=0.9 * GROUP / len(places),
            marker={
                "color": POLICIES.get(policy, SPARE[0]),
                "pattern": {"shape": "/" if distance > EXACT else ""},
            },
            name=f"{policy}: {_off(distance)}",
            customdata=rows["text"],
            hovertemplate="%{customdata}: %{y:.4f}<extra>" + policy + "</extra>",
        )
    wanted = frame.drop_duplicates("text")
    _target(figure, wanted)
    if published is not None:
        _published(figure, published, places.get("unrestricted", 0.0))
    texts = {"tickvals": list(range(len(wanted))), "ticktext": wanted["text"].tolist()}
    figure.update_xaxes(title_text="what comes out", **texts)
    highest = max(frame["output"].max(), frame["target"].max())
    figure.update_yaxes(title_text="probability", range=[0, 1.08 * highest])
    return titled(
        figure,
        title="What comes out, by how the length of the drafts is chosen",
        subtitle=verdict,
        note="Exact: summed over every draft, acceptance and correction. Hatched: not the target's "
        "law. Distances are total variations, the largest error in the chance of any event.",
        room=Room(height=380, right=290, head=20),
    )


def mistake_bars(frame: pd.DataFrame, *, verdict: str = "") -> go.Figure:
    """How far every mistake in verification takes the output from the target.

    Args:
        frame: rows of `probes.lossless_mistakes.mistake_frame`.
        verdict: sentence for the subtitle.

    Raises:
        ValueError: if columns are missing.
    """
    require(
        frame,
        *("mistake", "total_variation", "worst_text", "target", "output"),
        made_by="probes.lossless_mistakes.mistake_frame",
    )
    rows = frame.sort_values("total_variation", kind="stable")
    labels = rows["mistake"].replace("none", "<b>no mistake</b>")
    figure = go.Figure(
        go.Bar(
            x=rows["total_variation"],
            y=labels,
            orientation="h",
            marker={"color": COLOURS["static"]},
            text=[_off(value) for value in rows["total_variation"]],
            textposition="outside",
            cliponaxis=False,
            customdata=rows[["worst_text", "target", "output"]],
            hovertemplate="%{y}: off by %{x:.4f}; %{customdata[0]} comes with %{customdata[2]:.4f} "
            "in place of %{customdata[1]:.4f}<extra></extra>",
            showlegend=False,
        )
    )
    figure.update_xaxes(title_text="total variation from the target's law", rangemode="tozero")
    figure.update_yaxes(showgrid=False)
    return titled(
        figure,
        title="What a mistake in verification costs",
        subtitle=verdict,
        note="Exact: summed over every draft, acceptance and correction of one small game. All of "
        "these decode fluently; only the law of what comes out gives them away.",
        room=Room(height=34 * len(rows) + 30, left=280, right=70, head=8),
    )


def error_curve(frame: pd.DataFrame, *, verdict: str = "") -> go.Figure:
    """Distance of samples from the law they should have, against how many there are.

    Args:
        frame: rows of `probes.lossless_samples.error_frame`; a column `sampling` makes a line for
            each of its values.
        verdict: sentence for the subtitle.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("sequences", "total_variation", "null_low", "null_mean", "null_high", "p_value")
    require(frame, *columns, made_by="probes.lossless_samples.error_frame")
    frame = frame if "sampling" in frame else frame.assign(sampling="samples")
    figure = go.Figure()
    shades = (COLOURS["engram"], COLOURS["static"], *SPARE)
    for (name, rows), shade in zip(frame.groupby("sampling", sort=False), shades, strict=False):
        for trace in _line_and_null(str(name), rows, shade):
            figure.add_trace(trace)
    figure.update_xaxes(type="log", title_text="sequences", **_decades(frame["sequences"]))
    spread = frame[["total_variation", "null_low", "null_high"]].stack()
    figure.update_yaxes(type="log", title_text="total variation", **_decades(spread))
    return titled(
        figure,
        title="Samples close in on the target's law",
        subtitle=verdict,
        note="Bands: 95 % of samples of that number from the law itself. A biased sampler leaves "
        "its band and stays level. p: chi-square over all texts at the last point.",
        room=Room(height=380, right=280, head=20),
    )


def _line_and_null(name: str, rows: pd.DataFrame, shade: str) -> Sequence[go.Scatter]:
    band = go.Scatter(
        x=[*rows["sequences"], *rows["sequences"][::-1]],
        y=[*rows["null_high"], *rows["null_low"][::-1]],
        fill="toself",
        fillcolor=translucent(shade, 0.15),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        name=f"{name}, band",
        legendgroup=name,
        showlegend=False,
    )
    line = go.Scatter(
        x=rows["sequences"],
        y=rows["total_variation"],
        mode="lines+markers",
        line={"color": shade, "width": 2},
        marker={"size": 7},
        name=f"{name} (p = {rows['p_value'].iloc[-1]:.2g})",
        legendgroup=name,
        customdata=rows["p_value"],
        hovertemplate="%{x:,} sequences: %{y:.4f}, p = %{customdata:.2g}<extra></extra>",
    )
    return band, line


def _places(frame: pd.DataFrame) -> dict[str, float]:
    """Where the bars of every policy stand beside the middle of a text."""
    policies = listed(frame)
    middle = (len(policies) - 1) / 2
    return {name: (at - middle) * GROUP / len(policies) for at, name in enumerate(policies)}


def _target(figure: go.Figure, wanted: pd.DataFrame) -> None:
    """A line across the bars of every text, at what the target says."""
    half = GROUP / 2 + 0.04
    figure.add_scatter(
        x=[x for index in range(len(wanted)) for x in (index - half, index + half, None)],
        y=[y for chance in wanted["target"] for y in (chance, chance, None)],
        mode="lines",
        line=_ink(2),
        name="the target's law",
        hovertemplate="%{y:.4f}<extra>target</extra>",
    )


def _published(figure: go.Figure, published: pd.DataFrame, place: float) -> None:
    """The paper's biased chance of the first text, on the bar that repeats it."""
    (row,) = published[published["quantity"] == "biased output p(A)"].itertuples()
    figure.add_scatter(
        x=[place],
        y=[float(row.value)],
        mode="markers",
        marker={
            "symbol": symbol(row.kind, "diamond"),
            "size": 11,
            "color": COLOURS["published"],
            "line": _ink(1),
        },
        name=f"published for the unrestricted search: {float(row.value):g}",
        hovertemplate="published: %{y:.2f}<extra></extra>",
    )


def _off(distance: float) -> str:
    return "exact" if distance < EXACT else f"off by {distance:.3g}"


def _ink(width: int) -> dict[str, object]:
    return {"color": INK if width > 1 else SOFT_INK, "width": width}


def _decades(values: pd.Series) -> dict[str, list[float]]:
    """Ticks of 1, 2 and 5 in every decade that the values touch."""
    steps = [m * 10.0**power for power in range(-6, 9) for m in (1, 2, 5)]
    low, high = float(values.min()) / 1.5, float(values.max()) * 1.5
    inside = [step for step in steps if low <= step <= high]
    return {"tickvals": inside, "ticktext": [f"{step:,g}" for step in inside]}
