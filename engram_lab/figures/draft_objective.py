"""What a drafter is trained for: accepted length of each objective against the reference."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram_lab.figures.drafters import seed_lengths
from engram_lab.figures.footer import provenance
from engram_lab.figures.panels import panel_title
from engram_lab.figures.style import COLOURS, SOFT_INK, Room, require, titled, translucent

MADE_BY = "experiments.catalog.DSPARK_OBJECTIVE"
REFERENCE = "reference"
OBJECTIVES = {
    "cross_entropy": "cross-entropy instead of the mix",
    "l1": "L1 distance alone",
    "kl": "KL divergence alone",
    "decay_7": "decay 7 instead of 4",
    "no_decay": "no decay: slots weigh alike",
    "corpus_text": "texts as written, not the target's",
    "confidence_detached": "confidence's gradient stopped",
    "no_confidence": "confidence not trained",
}
"""What differs from the reference, in the order in which it is listed."""


def objective_differences(
    frame: pd.DataFrame, *, temperature: float = 1.0, verdict: object = None
) -> go.Figure:
    """Tokens a round that each objective gains over the reference or loses, a panel a kind of text.

    Args:
        frame: rows of `catalog.DSPARK_OBJECTIVE`, by prompt, with columns objective, seed, domain,
            temperature, rounds and emitted.
        temperature: at which it was drawn.
        verdict: written below the title.

    Raises:
        ValueError: if columns are missing, nothing was drawn at this temperature, or the reference
            is missing.
    """
    columns = ("objective", "seed", "domain", "temperature", "rounds", "emitted")
    require(frame, *columns, made_by=MADE_BY)
    deltas, references = _against_reference(frame, temperature)
    domains = list(deltas["domain"].unique())
    shown = [name for name in OBJECTIVES if (deltas["objective"] == name).any()]
    figure = make_subplots(rows=1, cols=len(domains), shared_yaxes=True, horizontal_spacing=0.03)
    for col, domain in enumerate(domains, start=1):
        own = deltas[deltas["domain"] == domain]
        for name in reversed(shown):  # the first is drawn at the top
            _objective(figure, own[own["objective"] == name], OBJECTIVES[name], col)
        text = f"{domain}: reference {references[domain]:.2f}"
        panel_title(figure, text, row=1, col=col, above=6)
        figure.add_vline(
            x=0, line={"color": SOFT_INK, "width": 1, "dash": "dot"}, layer="below", row=1, col=col
        )
    figure.update_xaxes(title_text="tokens a round, minus reference", matches="x")
    words = "most likely token" if temperature == 0 else f"temperature {temperature:g}"
    return titled(
        figure,
        title=f"What a drafter is trained for: accepted length, {words}",
        subtitle=str(verdict or ""),
        note="Reference: 0.1 cross-entropy, 0.9 L1, 1.0 confidence, weights falling with decay 4, "
        "on the target's own answers; one thing differs in each row. Small points: a seed against "
        "the reference of that seed; large: their mean.\n" + provenance(frame),
        room=Room(height=60 + 30 * len(shown), left=230, head=34),
    )


def _against_reference(
    frame: pd.DataFrame, temperature: float
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Differences by objective, seed and domain, and the reference's mean by domain."""
    part = frame[frame["temperature"] == temperature]
    if part.empty:
        raise ValueError(
            f"no rows at temperature {temperature}; there are "
            f"{sorted(frame['temperature'].unique().tolist())}"
        )
    lengths = seed_lengths(part, ["objective"])
    reference = lengths[lengths["objective"] == REFERENCE]
    if reference.empty:
        raise ValueError(
            f"objective_differences needs rows of the objective {REFERENCE!r}; got "
            f"{', '.join(map(str, lengths['objective'].unique()))}"
        )
    both = lengths[lengths["objective"] != REFERENCE].merge(
        reference[["seed", "domain", "accepted_length"]],
        on=["seed", "domain"],
        suffixes=("", "_reference"),
    )
    both = both.assign(delta=both["accepted_length"] - both["accepted_length_reference"])
    means = reference.groupby("domain")["accepted_length"].mean()
    return both, {str(domain): float(mean) for domain, mean in means.items()}


def _objective(figure: go.Figure, rows: pd.DataFrame, label: str, col: int) -> None:
    """Seeds as small points, their mean as a large one."""
    shade = COLOURS["engram"]
    mean = float(rows["delta"].mean())
    figure.add_scatter(
        x=rows["delta"],
        y=[label] * len(rows),
        customdata=rows["seed"],
        mode="markers",
        marker={"color": translucent(shade, 0.45), "size": 6},
        hovertemplate="seed %{customdata}: %{x:+.3f}<extra></extra>",
        name=f"{label}, seeds",
        showlegend=False,
        row=1,
        col=col,
    )
    figure.add_scatter(
        x=[mean],
        y=[label],
        mode="markers",
        marker={"color": shade, "size": 11, "symbol": "diamond"},
        hovertemplate="mean %{x:+.3f}<extra></extra>",
        name=label,
        showlegend=False,
        row=1,
        col=col,
    )
