"""How long to verify under load: chosen lengths, the admission walk and its stop, regret, speed."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import (
    COLOURS,
    DASHES,
    INK,
    SOFT_INK,
    SPARE,
    SYMBOLS,
    Room,
    require,
    symbol,
    titled,
    translucent,
)

MADE_BY = "probes.schedule.schedule_frame"
PLAIN = "plain decoding"
POLICIES = {
    PLAIN: SOFT_INK,
    "fixed 1": COLOURS["neighbour"],
    "threshold 0.5": SPARE[0],
    "early stop": COLOURS["engram"],
    "stale capacity": COLOURS["wide_ffn"],
    "unrestricted": COLOURS["computed"],
}
FIXED = COLOURS["static"]


def policy_colour(policy: str) -> str:
    """Colour of a policy, the same in every figure; longer fixed lengths share one."""
    if policy in POLICIES:
        return POLICIES[policy]
    return FIXED if policy.startswith("fixed") else SPARE[sum(policy.encode()) % len(SPARE)]


def lengths_against_load(
    frame: pd.DataFrame, *, published: pd.DataFrame | None = None
) -> go.Figure:
    """Tokens verified of a request, and tokens per second of all and of one, against the load.

    Args:
        frame: rows of `probes.schedule.schedule_frame` for several concurrencies.
        published: the table `dspark_fig8_budget`, which stands behind the lengths.

    Raises:
        ValueError: if columns are missing.
    """
    measured = ("verified_tokens", "tokens_per_s", "tokens_per_s_user")
    require(frame, "policy", "concurrency", *measured, made_by=MADE_BY)
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.1)
    if published is not None:
        _published(figure, published)
    for number, (policy, part) in enumerate(frame.groupby("policy", sort=False)):
        part = part.sort_values("concurrency")
        shown = {"number": number, "policy": str(policy)}
        if policy != PLAIN:
            _line(figure, part, "concurrency", "verified_tokens", col=1, legend=True, **shown)
        named = policy == PLAIN
        _line(figure, part, "tokens_per_s_user", "tokens_per_s", col=2, legend=named, **shown)
    figure.update_xaxes(**_loads(frame), row=1, col=1)
    figure.update_yaxes(rangemode="tozero", title_text="tokens verified", row=1, col=1)
    figure.update_xaxes(rangemode="tozero", title_text="tokens per second of a request", col=2)
    figure.update_yaxes(rangemode="tozero", title_text="tokens per second of all", row=1, col=2)
    panel_title(figure, "verified of a request and step, anchor included", row=1, col=1, above=6)
    panel_title(figure, "throughput against speed: up and right is better", row=1, col=2, above=6)
    legend = {"orientation": "h", "x": 0, "y": 1.1, "yanchor": "bottom"}
    figure.update_layout(legend=legend)
    note = f"Replayed measured rounds, {_steps(frame)} a point."
    if published is not None:
        note += " Grey: published budgets in production (arXiv:2607.05147, figure 8, read by eye)."
    note += _biased(frame)
    room = Room(height=360, head=90)
    return titled(figure, title="How long to verify under load", note=note, room=room)


def admission_figure(walk: pd.DataFrame) -> go.Figure:
    """Expected throughput after every further draft, with the stop and the highest point.

    Args:
        walk: rows of `draft.admission.AdmissionWalk.frame`.

    Raises:
        ValueError: if columns are missing.
    """
    columns = ("drafts", "position", "survival", "tokens", "tokens_per_s", "admitted", "best")
    require(walk, "request", *columns, made_by="draft.admission.AdmissionWalk.frame")
    figure = make_subplots(rows=1, cols=1)
    draw_walk(figure, walk, row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"})
    stop, best = walk[walk["admitted"]].iloc[-1], walk[walk["best"]].iloc[0]
    lost = 1 - stop["tokens_per_s"] / best["tokens_per_s"]
    requests = int(walk["tokens"].iloc[0])
    note = (
        f"{requests} request{'s' if requests > 1 else ''}. Drafts are admitted by the chance that "
        f"they survive. Algorithm 1 keeps {int(stop['drafts'])} of {len(walk) - 1} and stops at "
        f"the first that brings no more; the highest point has {int(best['drafts'])}. "
        f"Stopping early costs {lost:.1%} here, and keeps the target's distribution."
    )
    return titled(figure, title="Where admission stops", note=note, room=Room(height=330, head=50))


def draw_walk(figure: go.Figure, walk: pd.DataFrame, *, row: int, col: int) -> None:
    """Draw an admission walk, its stop and its highest point in one panel.

    Args:
        figure: drawn on.
        walk: rows of `draft.admission.AdmissionWalk.frame`.
        row: of the panel, from 1.
        col: of the panel, from 1.
    """
    place = {"row": row, "col": col}
    kept, later = walk[walk["admitted"]], walk[~walk["admitted"]]
    later = pd.concat([kept.tail(1), later])
    hover = (
        "%{x} tokens: %{y:.4g} tokens per second<br>request %{customdata[0]}, position "
        "%{customdata[1]}, survives with %{customdata[2]:.1%}<extra></extra>"
    )
    for part, name, colour, dash in (
        (later, "not admitted", COLOURS["published"], "dot"),
        (kept, "admitted", policy_colour("early stop"), "solid"),
    ):
        figure.add_scatter(
            x=part["tokens"],
            y=part["tokens_per_s"],
            customdata=part[["request", "position", "survival"]],
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"color": colour, "size": 5 if len(walk) < 80 else 3},
            hovertemplate=hover,
            name=name,
            **place,
        )
    marks = (
        (kept.tail(1), "early stop", "circle-open", policy_colour("early stop")),
        (walk[walk["best"]], "highest", "diamond-open", policy_colour("unrestricted")),
    )
    for part, name, marker, colour in marks:
        figure.add_scatter(
            x=part["tokens"],
            y=part["tokens_per_s"],
            mode="markers",
            marker={"color": colour, "symbol": marker, "size": 14, "line": {"width": 2.5}},
            hoverinfo="skip",
            name=name,
            **place,
        )
    figure.update_xaxes(title_text="tokens in the batch, anchors included", **place)
    figure.update_yaxes(title_text="expected tokens per second", **place)


def regret_figure(frame: pd.DataFrame) -> go.Figure:
    """Share of the expected throughput that each policy leaves to the best lengths, by load.

    Args:
        frame: rows of `probes.schedule.schedule_frame` for several concurrencies.

    Raises:
        ValueError: if columns are missing.
    """
    require(frame, "policy", "concurrency", "regret", made_by=MADE_BY)
    figure = go.Figure(make_subplots(rows=1, cols=1))
    figure.add_hline(y=0, line={"color": INK, "width": 1})
    for number, (policy, part) in enumerate(frame.groupby("policy", sort=False)):
        part = part.sort_values("concurrency")
        style = {"number": number, "policy": str(policy), "col": 1, "legend": True}
        _line(figure, part, "concurrency", "regret", **style)
    figure.update_xaxes(**_loads(frame))
    figure.update_yaxes(tickformat=".0%", title_text="throughput left")
    figure.update_layout(legend={"x": 1.02, "y": 1, "yanchor": "top"})
    note = (
        "Expected by the confidences that decide; the best lengths are those of the unrestricted "
        f"search over the current block. {_steps(frame)} a point.{_biased(frame)} Below zero: not "
        "drafting at all is faster, since drafting costs time too."
    )
    return titled(
        figure,
        title="What a policy leaves behind",
        note=note,
        room=Room(height=330, right=170, head=26),
    )


def _line(
    figure: go.Figure,
    part: pd.DataFrame,
    x: str,
    y: str,
    *,
    number: int,
    policy: str,
    col: int,
    legend: bool,
) -> None:
    """One policy in one panel."""
    colour = policy_colour(policy)
    causal = bool(part["causal"].all()) if "causal" in part else True
    figure.add_scatter(
        x=part[x],
        y=part[y],
        customdata=part["concurrency"],
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": "solid" if causal else DASHES[1]},
        marker={
            "color": colour,
            "size": 7,
            "symbol": SYMBOLS[number % len(SYMBOLS)] + ("" if causal else "-open"),
        },
        hovertemplate=f"%{{customdata}} requests: %{{y:.4g}}<extra>{policy}</extra>",
        name=policy,
        legendgroup=policy,
        showlegend=legend,
        row=1,
        col=col,
    )


def _published(figure: go.Figure, published: pd.DataFrame) -> None:
    """Published budgets, a line for each model that has one against concurrency."""
    shade = COLOURS["published"]
    loads = pd.to_numeric(published["concurrency"], errors="coerce")
    rows = published.assign(concurrency=loads).dropna(subset="concurrency")
    for number, (model, part) in enumerate(rows.groupby("model", sort=False)):
        figure.add_scatter(
            x=part["concurrency"],
            y=part["verification_budget_tokens"],
            mode="lines+markers",
            line={"color": translucent(shade, 0.8), "width": 1.5, "dash": DASHES[number]},
            marker={"color": shade, "symbol": symbol(part["kind"].iloc[0], "circle"), "size": 8},
            hovertemplate="%{x} requests: %{y:.3g}<extra>published</extra>",
            name=f"published {model}",
            row=1,
            col=1,
        )


def _loads(frame: pd.DataFrame) -> dict[str, object]:
    """A logarithmic axis of concurrency that names the loads of the frame."""
    loads = sorted(map(int, frame["concurrency"].unique()))
    ticks = {"tickmode": "array", "tickvals": loads, "ticktext": [f"{load}" for load in loads]}
    return {"type": "log", "title_text": "requests together"} | ticks


def _steps(frame: pd.DataFrame) -> str:
    return f"{int(frame['steps'].min())} steps" if "steps" in frame else "some steps"


def _biased(frame: pd.DataFrame) -> str:
    """What hollow markers mean, where there are any."""
    if "causal" not in frame or frame["causal"].all():
        return ""
    names = ", ".join(map(str, frame.loc[~frame["causal"], "policy"].unique()))
    return f" Hollow ({names}): a bound, not lossless."
