"""Length policies as figures show them: their order and colours, and panels to compare them in."""

import pandas as pd

from engram_lab.figures.style import COLOURS, SPARE

POLICIES = {
    "plain decoding": COLOURS["experts"],
    "MTP-1": COLOURS["neighbour"],
    "whole block": COLOURS["static"],
    "threshold": SPARE[0],
    "early stop": COLOURS["engram"],
    "stale capacity": COLOURS["wide_ffn"],
    "unrestricted": SPARE[1],
    "oracle": COLOURS["computed"],
}
"""Policies in the order in which they are listed, with their colours."""
COLUMNS = ("policy", "concurrency", "causal")
MADE_BY = "probes.serving.serving_frame"


def panels_by(frame: pd.DataFrame, by: str) -> dict[str, pd.DataFrame]:
    """Rows of each panel, by its title.

    Args:
        frame: rows of `probes.serving.serving_frame`.
        by: column that makes the panels; without it there is one.

    Raises:
        ValueError: if the frame mixes domains in a panel.
    """
    if "domain" in frame and by != "domain" and frame["domain"].nunique() > 1:
        raise ValueError(
            f"this figure shows one domain; the frame has {sorted(frame['domain'].unique())}. "
            "Choose one, or give by='domain'"
        )
    if by not in frame:
        return {"": frame}
    return {str(value): part for value, part in frame.groupby(by, sort=False)}


def listed(frame: pd.DataFrame) -> list[str]:
    """Policies of a frame: the known ones in their order, then others."""
    found = list(dict.fromkeys(frame["policy"]))
    return [name for name in POLICIES if name in found] + [n for n in found if n not in POLICIES]


def provenance_of_serving(frame: pd.DataFrame) -> str:
    """Domain, seeds and rounds behind a frame of serving, as far as its columns tell."""
    parts = []
    if "domain" in frame:
        parts.append(f"Acceptance measured on {', '.join(map(str, frame['domain'].unique()))}")
    if "seed" in frame:
        seeds = frame["seed"].nunique()
        parts.append(f"mean of {seeds} seeds" if seeds > 1 else "one seed")
    if "rounds" in frame:
        parts.append(f"{frame['rounds'].min():,.0f} request-rounds or more a point")
    return "; ".join(parts) + "." if parts else ""
