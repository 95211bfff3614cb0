"""What the hot tier costs in time: speed of each arm against that of the hashed rows."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, INK, Room, require, symbol, titled, translucent

ARMS = {
    "hash": ("hashed rows", COLOURS["engram"]),
    "hot_cold": ("hot tier,<br>sorted keys", COLOURS["static"]),
    "hot_cold_perfect": ("hot tier,<br>perfect hash", COLOURS["neighbour"]),
}
PUBLISHED = {"hash": "Hash-500K", "hot_cold_perfect": "Nine-100/400K"}


def speed_bars(frame: pd.DataFrame, *, published: pd.DataFrame | None = None) -> go.Figure:
    """Tokens per second of every arm over those of the hashed rows, a panel for each part.

    Args:
        frame: rows of `probes.hot_tier_speed.speed_frame`; a column rows gives a bar for every
            table size.
        published: the table `nine_table3_iso_param`; its training speeds stand beside the whole
            pass.

    Raises:
        ValueError: if columns or the arm "hash" are missing.
    """
    made_by = "probes.hot_tier_speed.speed_frame"
    require(frame, "arm", "part", "repeat", "tokens_per_s", made_by=made_by)
    if "hash" not in set(frame["arm"]):
        raise ValueError("speed_bars divides by the arm 'hash', which no row has")
    sized = frame if "rows" in frame else frame.assign(rows=0)
    parts = list(frame["part"].unique())
    figure = make_subplots(rows=1, cols=len(parts), shared_yaxes=True, horizontal_spacing=0.05)
    ratios = _ratios(sized)
    sizes = sorted(map(int, sized["rows"].unique()))
    for col, part in enumerate(parts, 1):
        for arm, (label, shade) in ARMS.items():
            chosen = ratios[(ratios["part"] == part) & (ratios["arm"] == arm)]
            for number, size in enumerate(sizes):
                opacity = 0.35 + 0.5 * number / max(len(sizes) - 1, 1)
                name = f"{size:,} rows a head" if size else label
                _bar(figure, chosen[chosen["rows"] == size], label, translucent(shade, opacity))
                figure.data[-1].update(name=name, offsetgroup=str(size), legendgroup=name)
                figure.data[-1].update(xaxis=f"x{col}" if col > 1 else "x", yaxis="y")
                if col > 1:
                    figure.data[-1].update(yaxis=f"y{col}")
        panel_title(figure, part, row=1, col=col, above=4)
    if published is not None:
        _published(figure, published, col=len(parts))
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    figure.update_xaxes(title_text="tokens per second, hashed rows = 100%")
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    figure.update_layout(barmode="group", showlegend=False)
    return titled(
        figure,
        title="What the hot tier costs in time",
        note=_note(sized, sizes, published is not None),
        room=Room(height=90 * len(ARMS), left=140, head=30),
    )


def _ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Speed of every repeat over that of the hashed rows in the same round; their quartiles."""
    keys = ["rows", "part", "repeat"]
    base = frame[frame["arm"] == "hash"][[*keys, "tokens_per_s"]]
    joined = frame.merge(base, on=keys, suffixes=("", "_hash"))
    joined["ratio"] = joined["tokens_per_s"] / joined["tokens_per_s_hash"]
    grouped = joined.groupby(["rows", "part", "arm"], as_index=False)["ratio"]
    return grouped.quantile(0.5).assign(
        low=grouped.quantile(0.25)["ratio"], high=grouped.quantile(0.75)["ratio"]
    )


def _bar(figure: go.Figure, ratio: pd.DataFrame, label: str, shade: str) -> None:
    figure.add_bar(
        x=ratio["ratio"],
        y=[label] * len(ratio),
        orientation="h",
        marker={"color": shade},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": ratio["high"] - ratio["ratio"],
            "arrayminus": ratio["ratio"] - ratio["low"],
            "thickness": 1,
            "width": 3,
        },
        text=[f"{value:.0%}" for value in ratio["ratio"]],
        textposition="inside",
        insidetextanchor="start",
        textfont={"color": INK},
        hovertemplate="%{x:.1%} of the speed of hashed rows<extra></extra>",
    )


def _published(figure: go.Figure, published: pd.DataFrame, *, col: int) -> None:
    speeds, kind = published.set_index("config")["tok_per_s"], published["kind"].iloc[0]
    figure.add_scatter(
        x=[speeds[name] / speeds[PUBLISHED["hash"]] for name in PUBLISHED.values()],
        y=[ARMS[arm][0] for arm in PUBLISHED],
        mode="markers",
        marker={"symbol": symbol(kind, "diamond"), "size": 11, "color": COLOURS["published"]}
        | {"line": {"width": 2, "color": COLOURS["published"]}},
        hovertemplate="published: %{x:.1%}<extra></extra>",
        name=f"published ({kind})",
        row=1,
        col=col,
    )


def _note(frame: pd.DataFrame, sizes: list[int], published: bool) -> str:
    repeats = frame["repeat"].nunique()
    text = f"Median of {repeats} repeats in turn, by processor time; whiskers: quartiles. "
    if any(sizes):
        text += f"Bars from pale to full: {', '.join(f'{size:,}' for size in sizes)} rows a head. "
    if published:
        text += "Diamonds: published training speed (arXiv:2601.16531, secondary)."
    return text
