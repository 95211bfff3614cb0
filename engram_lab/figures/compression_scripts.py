"""Whose letters the token map takes: ids that lose a mark, and ids merged by it, by script."""

import pandas as pd
import plotly.graph_objects as go

from engram_lab.figures.compression import KINDS, NAMES, of_tokenizer
from engram_lab.figures.style import RULE, Room, require, titled, translucent


def script_shares(frame: pd.DataFrame, *, tokenizer: str) -> go.Figure:
    """Share of every script's ids that the accent step changes, and that it merges away.

    Args:
        frame: rows of `probes.compression_scripts.script_frame`.
        tokenizer: the one to draw.

    Raises:
        ValueError: if columns are missing, or the tokenizer is not in the frame.
    """
    measured = ("changed_share", "removed_share")
    made_by = "probes.compression_scripts.script_frame"
    require(frame, "tokenizer", "script", "ids", *measured, made_by=made_by)
    rows = of_tokenizer(frame, tokenizer).sort_values("removed_share")
    names = rows["script"].replace("Cjk", "Chinese")
    labels = [f"{name} ({ids:,})" for name, ids in zip(names, rows["ids"], strict=True)]
    shade = KINDS["accent"][1]
    figure = go.Figure()
    for measure, name, colour, width in (
        ("changed_share", "lose a mark", translucent(shade, 0.3), 0.7),
        ("removed_share", "merged with another id of the script", shade, 0.36),
    ):
        figure.add_bar(
            x=rows[measure],
            y=labels,
            orientation="h",
            marker={"color": colour},
            width=width,
            hovertemplate="%{y}: %{x:.1%}<extra>" + f"{name}</extra>",
            name=name,
        )
    figure.update_xaxes(tickformat=".0%", range=[0, 1], showgrid=True, gridcolor=RULE)
    figure.update_xaxes(title_text="share of the script's ids")
    figure.update_yaxes(showgrid=False, ticks="", showline=False)
    figure.update_layout(
        barmode="overlay", legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}
    )
    return titled(
        figure,
        title=f"Whose letters the accent step takes, {NAMES.get(tokenizer, tokenizer)}",
        note=(
            "In brackets: ids that begin with a letter of the script. The step strips every mark "
            "that does not stand alone: accents in Latin, vowel signs in Indic scripts and Thai, "
            "the voicing of Japanese syllables. It acts alone here."
        ),
        room=Room(height=30 + 24 * len(rows), left=170, head=30),
    )
