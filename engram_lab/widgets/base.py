"""What widgets share: figures redrawn in place, and a box whose figures outlive its kernel.

anywidget, which plotly's figure widget stands on, gives the code of a widget two seconds to load;
later it drops every message, and the figure stays empty without a word. On a machine that is
training at the same time, four megabytes of plotly take longer. A `Picture` loads them after that
deadline is met, once for a page.
"""

from collections.abc import Iterator, Sequence

import ipywidgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import traitlets
from IPython import get_ipython
from IPython.display import display

VIEW = "application/vnd.jupyter.widget-view+json"
LIVE, STILL, FIRST = "engram-lab-live", "engram-lab-still", "engram-lab-first"
_OUTPUT = ".jp-OutputArea-child"
_FOLDED = """{
  height: 0; min-height: 0; padding: 0; overflow: hidden; visibility: hidden; align-items: start
}"""

# Folded, not removed: JupyterLab's plotly keeps a PNG only of a figure that has a size.
STYLE = f"""<style>
.jp-OutputArea:has(.{LIVE}) > {_OUTPUT}:has(.{STILL}),
.jp-OutputArea:has(.{LIVE}) > {_OUTPUT}:has(.{STILL}) + {_OUTPUT},
.jp-OutputArea:not(:has(.{LIVE})) > {_OUTPUT}:has(+ {_OUTPUT} .{FIRST}) {_FOLDED}
</style>"""
NOTE = "The figure as the cell drew it; run the cell to have its controls."

_shown: dict[str, tuple[str, list["Board"]]] = {}


LOADER = """
const load = (model) => (globalThis.engramLabPlotly ??= import(
  URL.createObjectURL(new Blob([model.get("_bundle")], { type: "text/javascript" }))
));
const start = async (model) => {
  const figure = (await load(model)).default();
  figure.initialize({ model });
  return figure;
};
export default () => {
  let started;
  return {
    initialize({ model }) { started = start(model); },
    async render({ model, el }) { return (await started).render({ model, el }); },
  };
};
"""


class Picture(go.FigureWidget):
    """A plotly figure widget that also comes to life on a busy machine.

    Args:
        figure: what it shows at first; change it with `redraw`.
    """

    _esm = LOADER
    _bundle = traitlets.Unicode(str(go.FigureWidget._esm)).tag(sync=True)

    def __init__(self, figure: go.Figure | None = None):
        super().__init__(go.Figure() if figure is None else _sendable(figure))


def redraw(picture: go.FigureWidget, figure: go.Figure) -> None:
    """Show another figure in a figure widget, in place.

    Assigning a layout merges it into the one on the page, where shapes, annotations and axes that
    the new one lacks would stay behind; here they go. Views that come later, as after the page is
    loaded again, show the new figure too.

    Args:
        picture: the widget, whose views change.
        figure: what it shows from now on.
    """
    figure = _sendable(figure)
    gone = set(picture.layout.to_plotly_json()) - set(figure.layout.to_plotly_json())
    with picture.batch_update():
        picture.data = []
        if gone:
            picture.plotly_relayout(dict.fromkeys(sorted(gone)))
        picture.add_traces(figure.data)
        picture.layout = figure.layout
    _tell_later_views(picture)


class Board(ipywidgets.VBox):
    """Controls and figures in a column; its figures stay in a notebook saved with its outputs.

    A widget is a view of objects in the kernel. Opened again, without that kernel, a notebook has
    nothing to show for it but "model not found". A board therefore leaves, beside its view, every
    figure as a plain plotly output, which a front end of the JupyterLab kind hides as long as the
    board is alive (others show both), and to which JupyterLab adds a PNG for readers that know no
    plotly. When its cell runs again a board closes and lets go of what its callbacks hold.

    Args:
        children: controls and figures, from above to below, as for `ipywidgets.VBox`.
    """

    def __init__(self, children: Sequence[ipywidgets.Widget] = (), **traits):
        super().__init__(list(children), **traits)
        self.add_class(LIVE)

    @property
    def figures(self) -> list[go.FigureWidget]:
        """Figure widgets of the board, also those in boxes within it, from above to below."""
        return [widget for widget in _within(self) if isinstance(widget, go.FigureWidget)]

    def close_all(self) -> None:
        """Close the board with everything in it, and forget the callbacks of its controls."""
        for widget in reversed(list(_within(self))):
            widget.unobserve_all()
            if isinstance(widget, ipywidgets.Box):
                widget.children = ()
            widget.close()

    def _ipython_display_(self) -> None:
        _close_former(self)
        for figure in self.figures:
            _tell_later_views(figure)
        display({VIEW: self._repr_mimebundle_()[VIEW]}, raw=True)
        for number, figure in enumerate(self.figures):
            names = STILL if number else f"{STILL} {FIRST}"
            note = f'{STYLE}<div class="{names}"><i>{NOTE}</i></div>'
            display({"text/html": note, "text/plain": NOTE}, raw=True)
            display(go.Figure(figure))


def _sendable(figure: go.Figure) -> go.Figure:
    """A copy with gaps in its tables as None: a message to the page is JSON, which knows no NaN."""
    copy = go.Figure(figure)
    for trace in copy.data:
        for name in {"z", "customdata"} & set(trace):
            values = np.asarray(trace[name], dtype=object)
            if values.ndim and pd.isna(values).any():  # None alone is no table
                trace[name] = np.where(pd.isna(values), None, values)
    return copy


def _tell_later_views(picture: go.FigureWidget) -> None:
    """Bring the state that views start from up to date; plotly does so when a figure is shown."""
    picture._repr_mimebundle_()


def _within(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """A widget and all that it contains, containers first."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _within(child)


def _close_former(board: Board) -> None:
    """Close what an earlier run of this cell has shown, unless it is shown elsewhere too."""
    cell, execution = _place()
    if cell is None:
        return
    former_execution, boards = _shown.get(cell, ("", []))
    if former_execution == execution:
        boards.append(board)
        return
    _shown[cell] = (execution, [board])
    kept = [shown for _, others in _shown.values() for shown in others]
    for former in boards:
        if not any(former is other for other in kept):
            former.close_all()


def _place() -> tuple[str | None, str]:
    """Id of the notebook cell that is running, where the front end tells it, and of this run."""
    shell = get_ipython()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = parent.get("metadata", {}).get("cellId")
    return cell, parent.get("header", {}).get("msg_id", "")
