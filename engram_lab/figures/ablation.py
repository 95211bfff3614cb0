"""What a model retains without its memory, task by task, raw and above chance."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import (
    COLOURS,
    SOFT_INK,
    SPARE,
    SYMBOLS,
    Room,
    require,
    symbol,
    titled,
    translucent,
)

MADE_BY = "probes.ablation.ablation_frame"
FAMILIES = {"recall": "#D55E00", "reading": "#0072B2", "needles": "#009E73", "tokens": "#6A3D9A"}
PUBLISHED_GROUPS = {"recall": "factual", "reading": "reading"}
CUT_NAMES = {
    "rows_zero": "rows zero",
    "rows_mean": "rows at their mean",
    "rows_permuted": "rows of other n-grams",
    "gate_zero": "gate shut",
    "gate_one": "gate wide open",
}
PANELS = {"retained": "share of the score", "retained_corrected": "share above chance"}
ROW = 46


def retained_bars(
    frame: pd.DataFrame,
    *,
    cut: str = "rows_zero",
    layer: str = "all",
    published: pd.DataFrame | None = None,
    verdict: Any = None,
) -> go.Figure:
    """Retained share of every task, sorted, coloured by family; right, of what is above chance.

    Args:
        frame: rows of `probes.ablation.ablation_frame`, of one kind of model.
        cut: what was taken away.
        layer: of which memory; "all" for every one.
        published: the table `engram_fig6_sensitivity`, drawn as ranges in grey.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns are missing, or there is no such cut or layer.
    """
    require(frame, "family", "task", "arm", "layer", "seed", *PANELS, made_by=MADE_BY)
    own = frame[(frame["arm"] == cut) & (frame["layer"].astype(str) == layer)]
    if own.empty:
        known = frame[["arm", "layer"]].drop_duplicates().to_numpy().tolist()
        raise ValueError(f"no rows of arm {cut!r} and layer {layer!r}; the frame has {known}")
    order = own.groupby("task")["retained"].mean().sort_values()
    rows = {task: y for y, task in enumerate(order.index)}
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04)
    for col, measure in enumerate(PANELS, start=1):
        if published is not None and col == 1:
            _published(figure, own, rows, published)
        _bars(figure, own, rows, measure, col)
        panel_title(figure, PANELS[measure], row=1, col=col, above=6)
    axis_of_tasks(figure, own, rows)
    note = (
        f"{provenance(frame)} · {int(own['items'].max())} items a task. Taken away: "
        f"{CUT_NAMES.get(cut, cut)}, {'all memories' if layer == 'all' else f'block {layer}'}.\n"
        "Points: seeds with 95 % intervals over items; bar: mean of seeds. A missing point: the "
        "intact model scores 0, or right, not clearly above chance. What a model was trained with "
        "is taken away, so this shows dependence, not storage."
    )
    if published is not None:
        note += f"\nPublished (grey): {', '.join(sorted(set(published['source'])))}."
    return titled(
        figure,
        title="What is left without the memory",
        subtitle=sentences(verdict),
        note=note,
        room=Room(height=ROW * len(rows) + 30, left=170, head=34),
    )


def cut_dots(frame: pd.DataFrame, *, measure: str = "retained", layer: str = "all") -> go.Figure:
    """Retained share of every task under every cut, side by side.

    Args:
        frame: rows of `probes.ablation.ablation_frame`, of one kind of model.
        measure: "retained" or "retained_corrected".
        layer: of which memory; "all" for every one.

    Raises:
        ValueError: if columns are missing, or `measure` is another column.
    """
    if measure not in PANELS:
        raise ValueError(f"measure must be one of {', '.join(PANELS)}; got {measure!r}")
    require(frame, "family", "task", "arm", "layer", "seed", measure, made_by=MADE_BY)
    own = frame[(frame["arm"] != "intact") & (frame["layer"].astype(str) == layer)]
    order = own.groupby("task")[measure].mean().sort_values()
    rows = {task: y for y, task in enumerate(order.index)}
    cuts = [cut for cut in CUT_NAMES if cut in set(own["arm"])]
    figure = go.Figure()
    for number, cut in enumerate(cuts):
        means = own[own["arm"] == cut].groupby("task")[measure].mean().reindex(order.index)
        figure.add_scatter(
            x=means,
            y=[rows[task] + 0.11 * (number - (len(cuts) - 1) / 2) for task in order.index],
            mode="markers",
            marker={
                "symbol": SYMBOLS[number % len(SYMBOLS)],
                "size": 10,
                "color": (COLOURS["engram"], *SPARE)[number % (1 + len(SPARE))],
            },
            hovertemplate="%{x:.2f}<extra>" + CUT_NAMES[cut] + "</extra>",
            name=CUT_NAMES[cut],
        )
    figure.add_vline(x=1, line={"color": SOFT_INK, "width": 1, "dash": "dot"}, layer="below")
    axis_of_tasks(figure, own, rows)
    figure.update_xaxes(title_text=f"{PANELS[measure]} retained (mean of seeds)")
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"})
    return titled(
        figure,
        title="Ways of taking the memory away",
        note=(
            f"{provenance(frame)}. If rows of other n-grams hurt less than no rows at all, the "
            "gate keeps wrong rows out. Rows at zero and a shut gate are one cut in a memory "
            "without biases."
        ),
        room=Room(height=(ROW + 14) * len(rows) + 30, left=170, head=30),
    )


def axis_of_tasks(figure: go.Figure, frame: pd.DataFrame, rows: dict[str, int]) -> None:
    """Tasks down the axis, coloured by family."""
    family = frame.drop_duplicates("task").set_index("task")["family"]
    shade = family.map(FAMILIES).fillna(SOFT_INK)
    figure.update_yaxes(
        tickvals=list(rows.values()),
        ticktext=[
            f"{task.replace('_', ' ')}<br><span style='color:{shade[task]}'>{family[task]}</span>"
            for task in rows
        ],
        range=[-0.6, len(rows) - 0.4],
        showgrid=False,
        ticks="",
    )


def _bars(
    figure: go.Figure, own: pd.DataFrame, rows: dict[str, int], measure: str, col: int
) -> None:
    low, high = (f"{measure}_{end}" for end in ("low", "high"))
    for family, part in own.groupby("family", sort=False):
        shade = FAMILIES.get(family, SOFT_INK)
        means = part.groupby("task")[measure].mean()
        figure.add_bar(
            x=means,
            y=[rows[task] for task in means.index],
            orientation="h",
            width=0.5,
            marker={"color": translucent(shade, 0.3), "line": {"color": shade, "width": 1}},
            hovertemplate="%{x:.3f}<extra>mean of seeds</extra>",
            name=family,
            showlegend=False,
            row=1,
            col=col,
        )
        seeds = sorted(part["seed"].unique())
        shift = part["seed"].map(
            {s: 0.14 * (n - (len(seeds) - 1) / 2) for n, s in enumerate(seeds)}
        )
        spread = {}
        if {low, high} <= set(part):
            spread = {
                "type": "data",
                "symmetric": False,
                "array": part[high] - part[measure],
                "arrayminus": part[measure] - part[low],
                "thickness": 1,
                "width": 2,
            }
        figure.add_scatter(
            x=part[measure],
            y=part["task"].map(rows) + shift,
            error_x=spread or None,
            customdata=part["seed"],
            mode="markers",
            marker={"color": shade, "size": 6},
            hovertemplate="seed %{customdata}: %{x:.3f}<extra></extra>",
            name=f"{family}, seeds",
            showlegend=False,
            row=1,
            col=col,
        )
    line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
    figure.add_vline(x=1, line=line, layer="below", row=1, col=col)
    figure.update_xaxes(title_text="retained", rangemode="tozero", row=1, col=col)


def _published(
    figure: go.Figure, own: pd.DataFrame, rows: dict[str, int], published: pd.DataFrame
) -> None:
    """The published range of each group behind its tasks, and the single benchmarks as marks."""
    family = own.drop_duplicates("task").set_index("task")["family"]
    for task, y in rows.items():
        group = published[published["group"] == PUBLISHED_GROUPS.get(family[task])]
        for row in group.itertuples():
            is_range = row.retained_fraction_low != row.retained_fraction_high
            figure.add_scatter(
                x=[row.retained_fraction_low, row.retained_fraction_high][: 1 + is_range],
                y=[y - 0.38] * (1 + is_range),
                mode="lines" if is_range else "markers",
                line={"color": COLOURS["published"], "width": 5},
                marker={
                    "symbol": symbol(row.kind, "diamond"),
                    "size": 8,
                    "color": COLOURS["published"],
                },
                hovertemplate=f"{row.benchmark}: %{{x:.2f}}<extra>{row.source}</extra>",
                name=f"published, {row.benchmark}",
                showlegend=False,
                row=1,
                col=1,
            )
