"""One load on the scheduler bench: lengths by request, the walk, throughput of the policies."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import panel_title
from engram_lab.figures.schedule import PLAIN, draw_walk, policy_colour
from engram_lab.figures.style import INK, Room, require, titled, translucent

SHOWN = "early stop"
MADE_BY = "probes.schedule"
EQUAL = 1e-6  # speeds that differ by less count as equal


def bench_figure(frame: pd.DataFrame, batch: pd.DataFrame, walk: pd.DataFrame) -> go.Figure:
    """Lengths that Algorithm 1 chose in one step, how it came to them, and what policies bring.

    Args:
        frame: rows of `probes.schedule.schedule_frame` for one concurrency.
        batch: rows of `probes.schedule.batch_frame`, of the policy "early stop" among others.
        walk: rows of `probes.schedule.walk_frame` for the same step.

    Raises:
        ValueError: if columns or the policy are missing, or there are several concurrencies.
    """
    _check(frame, batch, walk)
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[0.42, 0.58],
        vertical_spacing=0.2,
        horizontal_spacing=0.2,
    )
    _lengths(figure, batch[batch["policy"] == SHOWN])
    draw_walk(figure, walk, row=2, col=1)
    for trace in figure.data[-4:]:
        trace.showlegend = False
    _speeds(figure, frame)
    panel_title(figure, "one step, request by request", row=1, col=1, above=6)
    panel_title(figure, "its admission walk", row=2, col=1, above=6)
    panel_title(figure, "tokens per second", row=2, col=2, above=6)
    legend = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.0, "yanchor": "bottom"}
    figure.update_layout(barmode="stack", legend=legend)
    requests = int(frame["concurrency"].iloc[0])
    return titled(
        figure,
        title=f"{requests} request{'s' if requests > 1 else ''} together",
        subtitle=_verdict(frame),
        note=_note(frame),
        room=Room(height=520, head=50),
    )


def _check(frame: pd.DataFrame, batch: pd.DataFrame, walk: pd.DataFrame) -> None:
    measured = ("tokens_per_s", "verified_tokens", "regret")
    require(
        frame, "policy", "causal", "concurrency", *measured, made_by=f"{MADE_BY}.schedule_frame"
    )
    require(
        batch, "policy", "request", "length", "kept", "accepted", made_by=f"{MADE_BY}.batch_frame"
    )
    require(walk, "tokens", "tokens_per_s", "admitted", "best", made_by=f"{MADE_BY}.walk_frame")
    if frame["concurrency"].nunique() > 1 or SHOWN not in set(batch["policy"]):
        raise ValueError(
            f"bench_figure shows one concurrency and the policy {SHOWN!r}; got concurrencies "
            f"{sorted(frame['concurrency'].unique())} and policies "
            f"{', '.join(batch['policy'].unique())}"
        )


def _lengths(figure: go.Figure, batch: pd.DataFrame) -> None:
    """Verified drafts of every request, the kept ones below, and what a whole block would keep."""
    colour = policy_colour(SHOWN)
    vain = batch["length"] - batch["kept"]
    for values, name, shade in (
        (batch["kept"], "verified and accepted", colour),
        (vain, "verified in vain", translucent(colour, 0.35)),
    ):
        figure.add_bar(
            x=batch["request"],
            y=values,
            marker={"color": shade, "line": {"width": 0}},
            hovertemplate=f"request %{{x}}: %{{y}} {name}<extra></extra>",
            name=name,
            row=1,
            col=1,
        )
    figure.add_scatter(
        x=batch["request"],
        y=batch["accepted"],
        mode="markers",
        marker={"color": INK, "symbol": "line-ew-open", "size": 6, "line": {"width": 1.5}},
        hovertemplate="request %{x}: %{y} of a whole block<extra></extra>",
        name="a whole block would keep",
        row=1,
        col=1,
    )
    figure.update_xaxes(title_text="request", row=1, col=1)
    figure.update_yaxes(title_text="drafts", dtick=1, rangemode="tozero", row=1, col=1)


def _speeds(figure: go.Figure, frame: pd.DataFrame) -> None:
    """Tokens per second of every policy; a bound that may not generate is hollow."""
    for policy, part in frame.groupby("policy", sort=False):
        colour, causal = policy_colour(str(policy)), bool(part["causal"].all())
        figure.add_bar(
            x=part["tokens_per_s"],
            y=[policy] * len(part),
            orientation="h",
            marker={
                "color": translucent(colour, 0.75 if causal else 0.1),
                "line": {"color": colour, "width": 1.5},
            },
            text=[f"{value:,.4g}" for value in part["tokens_per_s"]],
            textposition="inside",
            insidetextanchor="start",
            textfont={"color": INK},
            customdata=part[["verified_tokens", "regret"]],
            hovertemplate=(
                "%{x:,.4g} tokens per second<br>%{customdata[0]:.2f} verified of a request and "
                f"step<br>regret %{{customdata[1]:.1%}}<extra>{policy}</extra>"
            ),
            name=str(policy),
            showlegend=False,
            row=2,
            col=2,
        )
    figure.update_xaxes(rangemode="tozero", row=2, col=2)
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="", row=2, col=2)


def _verdict(frame: pd.DataFrame) -> str:
    speeds = frame.set_index("policy")["tokens_per_s"]
    lossless = frame[frame["causal"]]
    highest = lossless["tokens_per_s"].max()
    best = list(lossless.loc[lossless["tokens_per_s"] >= highest * (1 - EQUAL), "policy"])
    if PLAIN in best:
        return "Nothing beats plain decoding at this load: do not speculate."
    text = f"Fastest of those that keep the distribution: {', '.join(best)}"
    if PLAIN not in speeds:
        return f"{text}."
    return f"{text}, {highest / speeds[PLAIN] - 1:+.0%} over plain decoding."


def _note(frame: pd.DataFrame) -> str:
    steps = f", {int(frame['steps'].iloc[0])} steps" if "steps" in frame else ""
    return (
        f"Above: the last step under Algorithm 1. Throughput: replayed measured rounds{steps}; a "
        "pale bar is a bound that looks at later drafts and is not lossless."
    )
