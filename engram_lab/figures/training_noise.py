"""How much a comparison of arms depends on when the training is stopped."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.footer import held_equal, provenance
from engram_lab.figures.losses import minus_reference
from engram_lab.figures.panels import NAMES, Line, legend_above, panel_title, seeds_and_mean
from engram_lab.figures.style import DASHES, SOFT_INK, SYMBOLS, Room, colour, require, titled

HEIGHT = 340  # of the panels, in pixels
DOTTED = {"color": SOFT_INK, "width": 1, "dash": "dot"}


def training_noise(frame: pd.DataFrame, *, reference: str = "experts") -> go.Figure:
    """Training loss over the last part of the training, and differences from one arm, by window.

    Args:
        frame: rows of `probes.training_noise.late_losses` with columns arm and seed.
        reference: arm that the others are compared with, seed by seed and window by window.

    Raises:
        ValueError: if columns or the reference arm are missing.
    """
    columns = ("arm", "seed", "window", "tokens", "loss_nats", "train_tokens")
    require(frame, *columns, made_by="probes.training_noise.late_losses")
    rows = frame.assign(token_class="all", x=frame["tokens"] / frame["train_tokens"])
    deltas = minus_reference(rows, "arm", reference, within=["window"])
    deltas = deltas[deltas["arm"] != reference]
    losses = rows.rename(columns={"loss_nats": "delta_nats"})
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.1)
    found = [*dict.fromkeys(frame["arm"])]
    arms = [arm for arm in NAMES if arm in found] + [arm for arm in found if arm not in NAMES]
    for place, arm in enumerate(arms):
        line = Line(
            name=NAMES.get(arm, arm),
            colour=colour(arm),
            symbol=SYMBOLS[place % len(SYMBOLS)],
            dash=DASHES[place % len(DASHES)],
        )
        _means(figure, losses[losses["arm"] == arm], line)
        if arm != reference:
            paired = Line(name=line.name, colour=line.colour, symbol=line.symbol, legend="")
            seeds_and_mean(figure, deltas[deltas["arm"] == arm], paired, row=1, col=2)
    figure.add_hline(y=0, line=DOTTED, layer="below", row=1, col=2)
    panel_title(figure, "every arm", row=1, col=1, above=6)
    against = NAMES.get(reference, reference)
    panel_title(figure, f"minus {against}, same batches", row=1, col=2, above=6)
    figure.update_xaxes(title_text="share of the training", tickformat=".0%")
    figure.update_yaxes(title_text="training loss (nats per token)", row=1, col=1)
    figure.update_yaxes(title_text="difference (nats per token)", row=1, col=2)
    legend = legend_above(figure, row=1, col=1)
    figure.update_layout(legend=legend | {"y": 1 + 32 / HEIGHT})
    updates = f"{frame['updates'].median():.0f} updates" if "updates" in frame else "updates"
    return titled(
        figure,
        title="The last part of the training",
        note=(
            f"{provenance(frame)}. {held_equal(frame)}\nA mark: mean over a window of {updates}; "
            "left over seeds too. Right: points are seeds, the line their mean, the band their "
            "range. Losses on the batches of the training itself, each read once."
        ),
        room=Room(height=HEIGHT, head=70),
    )


def _means(figure: go.Figure, losses: pd.DataFrame, line: Line) -> None:
    over = losses.groupby("x", as_index=False)["delta_nats"].mean()
    figure.add_scatter(
        x=over["x"],
        y=over["delta_nats"],
        mode="lines+markers",
        line={"color": line.colour, "width": 2, "dash": line.dash},
        marker={"size": 7, "symbol": line.symbol, "line": {"color": "white", "width": 1}},
        hovertemplate="%{y:.4f} nats at %{x:.1%}<extra>" + line.name + "</extra>",
        name=line.name,
        legendgroup=line.name,
        row=1,
        col=1,
    )
