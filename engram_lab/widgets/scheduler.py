"""Scheduler bench: choose a load, a cost curve and how good confidences are; watch the lengths."""

from collections.abc import Mapping

import ipywidgets
import pandas as pd
import plotly.graph_objects as go

from engram_lab.draft.costs import CostTable
from engram_lab.figures.schedule_bench import bench_figure
from engram_lab.probes.schedule import (
    CONCURRENCY,
    QUALITIES,
    Traces,
    batch_frame,
    default_rules,
    schedule_frame,
    traces_of,
    walk_frame,
)
from engram_lab.widgets.base import Board, Picture, redraw

LABELS = {
    "raw": "as the head says",
    "sequential": "sequential",
    "isotonic": "isotonic",
    "online": "online",
    "mean": "mean rate, blind to the request",
}


def scheduler_bench(
    records: pd.DataFrame,
    costs: Mapping[str, CostTable],
    *,
    concurrency: int = 16,
    draft_costs: CostTable | None = None,
    steps: int = 32,
) -> ipywidgets.VBox:
    """A slider for the load and menus for costs and confidence, over lengths and throughput.

    Without controls, for the same choices: `bench_figure(schedule_frame(traces, table,
    concurrency=(16,), steps=32), batch_frame(traces, default_rules(block, table), concurrency=16,
    steps=32), walk_frame(traces, table, concurrency=16, steps=32))` with
    `traces = traces_of(records, quality="sequential")` and `table` one of the costs.

    Args:
        records: measured rounds, as for `probes.confidence.rounds_of`.
        costs: cost tables by the name that the menu gives them, the first chosen at first.
        concurrency: requests at first; the slider stops at the nearest of `CONCURRENCY`.
        draft_costs: seconds of drafting, by requests.
        steps: replayed for every picture.

    Raises:
        ValueError: if there is no cost table, or as `traces_of`.
    """
    if not costs:
        raise ValueError(
            "scheduler_bench needs a cost table, for instance {'roofline': roofline(base=0.02, "
            "free_tokens=64)}; got none"
        )
    remembered: dict[str, Traces] = {}
    load, curve = _slider(concurrency), ipywidgets.Dropdown(options=list(costs))
    quality = ipywidgets.Dropdown(options=[(LABELS[name], name) for name in QUALITIES])
    curve.description, quality.description, quality.value = "costs", "confidence", "sequential"

    def chosen() -> go.Figure:
        name = quality.value
        if name not in remembered:
            remembered[name] = traces_of(records, quality=name)
        here = {"concurrency": load.value, "steps": steps}
        return _bench(remembered[name], costs[curve.value], draft_costs, **here)

    picture = Picture(chosen())
    for control in (load, curve, quality):
        control.observe(lambda _: redraw(picture, chosen()), names="value")
    return Board([ipywidgets.HBox([load, curve, quality]), picture])


def _bench(
    traces: Traces, table: CostTable, draft_costs: CostTable | None, *, concurrency: int, steps: int
) -> go.Figure:
    """The plain calls behind a choice."""
    rules = default_rules(traces.confidences.shape[1], table, draft_costs=draft_costs)
    priced, here = {"draft_costs": draft_costs}, {"steps": steps}
    return bench_figure(
        schedule_frame(traces, table, rules=rules, concurrency=(concurrency,), **priced, **here),
        batch_frame(traces, rules, concurrency=concurrency, **here),
        walk_frame(traces, table, concurrency=concurrency, **priced, **here),
    )


def _slider(concurrency: int) -> ipywidgets.SelectionSlider:
    return ipywidgets.SelectionSlider(
        options=CONCURRENCY,
        value=min(CONCURRENCY, key=lambda stop: abs(stop - concurrency)),
        description="requests",
        continuous_update=False,
        layout=ipywidgets.Layout(width="330px"),
    )
