"""Tasks, arm beside arm: what each of them answers, and the published differences behind."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.allocation import sentences
from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.panels import NAMES, panel_title
from engram_lab.figures.style import (
    COLOURS,
    RULE,
    SOFT_INK,
    Room,
    colour,
    require,
    symbol,
    titled,
    translucent,
)

MADE_BY = "probes.task_sets.task_items"
SHAPES = {
    "dense": "square",
    "experts": "circle",
    "engram": "circle",
    "engram_3x": "diamond",
    "neighbour": "triangle-up",
    "wide_ffn": "cross",
}
BENCHMARKS = {  # published tasks that ask for the same ability as a family of ours
    "recall": ("TriviaQA", "TriviaQA-ZH", "PopQA"),
    "reading": ("DROP", "RACE-Middle", "RACE-High", "C3"),
}
ROW = 54


def task_dumbbell(
    frame: pd.DataFrame,
    *,
    arms: tuple[str, str] = ("experts", "engram"),
    published: pd.DataFrame | None = None,
    verdict: Any = None,
) -> go.Figure:
    """Scores by task, two arms joined; beside them their difference, published ones in grey.

    Args:
        frame: rows of `probes.task_sets.task_items` (or of `probes.tasks.task_frame`) with columns
            arm and seed.
        arms: the two that are joined; the second one minus the first is the difference.
        published: the table `engram_table1_pretraining`.
        verdict: a sentence, an object with a `sentence`, or several of them.

    Raises:
        ValueError: if columns or one of the two arms are missing.
    """
    require(frame, "family", "task", "arm", "seed", "score", made_by=MADE_BY)
    missing = [arm for arm in arms if not (frame["arm"] == arm).any()]
    if missing:
        known = ", ".join(frame["arm"].unique())
        raise ValueError(f"task_dumbbell joins the arms {arms}; the frame has only {known}")
    keys = ["family", "task", "arm", "seed"]
    scores = frame.groupby(keys, as_index=False, sort=False)["score"].mean()
    rows = rows_by_family(scores)
    figure = make_subplots(
        rows=1, cols=2, shared_yaxes=True, column_widths=[0.56, 0.44], horizontal_spacing=0.05
    )
    _chance(figure, frame, rows)
    _scores(figure, scores, rows, arms)
    _differences(figure, scores, rows, arms)
    sources = _published(figure, published, rows, arms) if published is not None else ""
    family_axis(figure, rows)
    names = [NAMES.get(arm, arm) for arm in arms]
    panel_title(figure, "every arm", row=1, col=1, above=6)
    panel_title(figure, f"{names[1]} minus {names[0]}", row=1, col=2, above=6)
    height = ROW * len(rows) + 20
    legend = {"orientation": "h", "x": 0, "y": 1 + 34 / height, "yanchor": "bottom"}
    figure.update_layout(legend=legend)
    return titled(
        figure,
        title="What the models answer, at equal budget",
        subtitle=sentences(verdict),
        note=_note(frame) + sources,
        room=Room(height=height, left=190, head=104),
    )


def rows_by_family(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per task in the order of the frame, families together.

    Returns:
        Columns family, task and y.
    """
    tasks = frame[["family", "task"]].drop_duplicates()
    families = {name: number for number, name in enumerate(tasks["family"].unique())}
    tasks = tasks.sort_values("family", key=lambda names: names.map(families), kind="stable")
    return tasks.assign(y=range(len(tasks))).reset_index(drop=True)


def family_axis(figure: go.Figure, rows: pd.DataFrame) -> None:
    """Tasks down the axis, each with its family, rules between families."""
    figure.update_yaxes(
        tickvals=list(rows["y"]),
        ticktext=[
            f"{task.replace('_', ' ')}<br><span style='color:{SOFT_INK}'>{family}</span>"
            for family, task in zip(rows["family"], rows["task"], strict=True)
        ],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        ticks="",
    )
    changes = rows.index[1:][rows["family"].to_numpy()[1:] != rows["family"].to_numpy()[:-1]]
    for y in changes:
        line = {"color": RULE, "width": 1}
        figure.add_hline(y=y - 0.5, line=line, layer="below", row=1, col="all")


def _chance(figure: go.Figure, frame: pd.DataFrame, rows: pd.DataFrame) -> None:
    if "chance" not in frame:
        return
    chance = frame.groupby("task")["chance"].mean()
    figure.add_scatter(
        x=rows["task"].map(chance),
        y=rows["y"],
        mode="markers",
        marker={"symbol": "line-ns", "size": 22, "line": {"color": SOFT_INK, "width": 1.5}},
        hovertemplate="chance %{x:.3f}<extra></extra>",
        name="chance",
        row=1,
        col=1,
    )


def _scores(
    figure: go.Figure, scores: pd.DataFrame, rows: pd.DataFrame, arms: tuple[str, str]
) -> None:
    figure.update_xaxes(title_text="score (share answered)", range=[-0.03, 1.03], row=1, col=1)
    means = scores.groupby(["task", "arm"])["score"].mean()
    for task, y in zip(rows["task"], rows["y"], strict=True):
        figure.add_scatter(
            x=[means[task, arm] for arm in arms],
            y=[y, y],
            mode="lines",
            line={"color": translucent(colour(arms[1]), 0.4), "width": 5},
            hoverinfo="skip",
            showlegend=False,
            row=1,
            col=1,
        )
    known = [arm for arm in NAMES if arm in set(scores["arm"])]
    for arm in [*known, *sorted(set(scores["arm"]) - set(known))]:
        own = means.xs(arm, level="arm").reindex(rows["task"])
        figure.add_scatter(
            x=own,
            y=rows["y"],
            mode="markers",
            marker={
                "symbol": SHAPES.get(arm, "circle"),
                "size": 11 if arm in arms else 8,
                "color": colour(arm),
                "line": {"color": "white", "width": 1},
            },
            hovertemplate="%{x:.3f}<extra>" + NAMES.get(arm, arm) + "</extra>",
            name=NAMES.get(arm, arm),
            row=1,
            col=1,
        )


def _differences(
    figure: go.Figure, scores: pd.DataFrame, rows: pd.DataFrame, arms: tuple[str, str]
) -> None:
    wide = scores.pivot_table(index=["task", "seed"], columns="arm", values="score")
    points = (100 * (wide[arms[1]] - wide[arms[0]])).dropna()
    shade = colour(arms[1])
    figure.add_bar(
        x=points.groupby("task").mean().reindex(rows["task"]),
        y=rows["y"] - 0.12,
        orientation="h",
        width=0.26,
        marker={"color": translucent(shade, 0.35), "line": {"color": shade, "width": 1}},
        hovertemplate="%{x:+.1f} points<extra>mean of seeds</extra>",
        name="mean of seeds",
        showlegend=False,
        row=1,
        col=2,
    )
    place = rows.set_index("task")["y"]
    figure.add_scatter(
        x=points,
        y=place.reindex(points.index.get_level_values("task")) - 0.12,
        customdata=points.index.get_level_values("seed"),
        mode="markers",
        marker={"color": shade, "size": 6},
        hovertemplate="seed %{customdata}: %{x:+.1f} points<extra></extra>",
        name="seeds",
        showlegend=False,
        row=1,
        col=2,
    )
    line = {"color": SOFT_INK, "width": 1, "dash": "dot"}
    figure.add_vline(x=0, line=line, layer="below", row=1, col=2)
    figure.update_xaxes(title_text="difference (percentage points)", row=1, col=2)


def _published(
    figure: go.Figure, published: pd.DataFrame, rows: pd.DataFrame, arms: tuple[str, str]
) -> str:
    """Grey marks in the rows of the same ability; returns what the footer says of them."""
    models = {"experts": "MoE-27B", "dense": "Dense-4B", "engram": "Engram-27B"}
    models |= {"engram_3x": "Engram-40B"}
    if not set(arms) <= set(models):
        return ""
    wide = published.pivot_table(
        index=["benchmark", "kind", "source"], columns="model", values="value"
    ).reset_index()
    wide["points"] = wide[models[arms[1]]] - wide[models[arms[0]]]
    drawn: list[str] = []
    for family, names in BENCHMARKS.items():
        own = wide[wide["benchmark"].isin(names)]
        places = rows.loc[rows["family"] == family, "y"]
        if own.empty or places.empty:
            continue
        figure.add_scatter(
            x=own["points"],
            y=[places.iloc[0] + 0.2] * len(own),
            customdata=own[["benchmark", "source"]],
            mode="markers",
            marker={
                "symbol": [symbol(kind, "diamond") for kind in own["kind"]],
                "size": 9,
                "color": COLOURS["published"],
            },
            hovertemplate="%{customdata[0]} %{x:+.1f} points<extra>%{customdata[1]}</extra>",
            name="published",
            legendrank=2000,
            showlegend=not drawn,
            row=1,
            col=2,
        )
        drawn += [f"{family}: {', '.join(own['benchmark'])}"]
    pair = f"{models[arms[1]]} minus {models[arms[0]]}"
    return f"\nPublished (grey diamonds, {pair}): {'; '.join(drawn)}. Other tasks, other scale."


def _note(frame: pd.DataFrame) -> str:
    items = frame.groupby("task")["item"].nunique() if "item" in frame else pd.Series(dtype=int)
    asked = f" · {_span(items)} items a task" if len(items) else ""
    return (
        f"{provenance(frame)}{asked}. {held_equal(frame)}\n"
        "Left: means over seeds; upright line: chance. Right: points are seeds, the bar their mean."
    )


def _span(counts: Sequence[int] | pd.Series) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
