"""Rounds of two drafters as `theatre_frame` gives them, made by hand."""

import pandas as pd

NAN = float("nan")
DRAWN = (" The", " capital", " of", " a", " large", " <b>")


def drafted_rounds(*, heads: bool = True) -> pd.DataFrame:
    """Two rounds of "DSpark" (one correction by its head, one reject), one of "DFlash".

    Args:
        heads: whether the first drafter has a confidence.
    """
    said = [0.9, 0.8, 0.4] if heads else [NAN] * 3
    rows = [
        _draft("DSpark", 0, 1, "accepted", said[0], 0.95, base="The"),
        _draft("DSpark", 0, 2, "rejected", said[1], 0.3),
        _draft("DSpark", 0, 3, "discarded", said[2], 0.5),
        _added("DSpark", 0, 2, "correction"),
        _draft("DSpark", 1, 1, "accepted", said[0], 0.9),
        _draft("DSpark", 1, 2, "accepted", said[1], 0.9),
        _draft("DSpark", 1, 3, "not verified", said[2], NAN),
        _added("DSpark", 1, 3, "bonus"),
        _draft("DFlash", 0, 1, "accepted", NAN, 0.9),
        _draft("DFlash", 0, 2, "accepted", NAN, 0.9),
        _draft("DFlash", 0, 3, "accepted", NAN, 0.9),
        _added("DFlash", 0, 4, "bonus"),
    ]
    return pd.DataFrame(rows).assign(temperature=0.0, prompt="Economy\n")


def _draft(
    drafter: str,
    round: int,
    position: int,
    outcome: str,
    confidence: float,
    expected: float,
    base: str | None = None,
) -> dict:
    text = DRAWN[position]
    return _slot(drafter, round, position, outcome, text) | {
        "base_text": text if base is None else base,
        "corrected": base is not None,
        "confidence": confidence,
        "expected": expected,
        "verified": outcome != "not verified",
        "accepted": outcome == "accepted",
        "emitted": outcome == "accepted",
    }


def _added(drafter: str, round: int, position: int, outcome: str) -> dict:
    return _slot(drafter, round, position, outcome, DRAWN[5]) | {
        "base_text": None,
        "corrected": False,
        "confidence": NAN,
        "expected": NAN,
        "verified": False,
        "accepted": False,
        "emitted": True,
    }


def _slot(drafter: str, round: int, position: int, outcome: str, text: str) -> dict:
    return {
        "drafter": drafter,
        "round": round,
        "position": position,
        "outcome": outcome,
        "token_text": text,
        "anchor_text": DRAWN[0],
    }
