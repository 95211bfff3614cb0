"""Ways to get verification wrong, each of which changes the law of what comes out."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float

from engram_lab.probes.lossless import (
    Game,
    Law,
    Rule,
    Text,
    Verifier,
    accept_chance,
    compared,
    output_law,
    residual_law,
    target_law,
    total_variation,
)
from engram_lab.probes.lossless_games import tempered


def same_number_twice(p: Law, q: Law) -> Float[np.ndarray, "refused vocab"]:
    """Replacements drawn with the very number that drew the refused draft, both by inversion.

    Args:
        p: law of the target.
        q: law of the drafter.

    Returns:
        One row for every refused token: the share of its interval that each replacement covers.
    """
    drawn, kept = _edges(q), _edges(residual_law(p, q))
    low = np.maximum(drawn[:-1, None], kept[None, :-1])
    high = np.minimum(drawn[1:, None], kept[None, 1:])
    overlap = np.maximum(high - low, 0.0)
    return overlap / np.maximum(overlap.sum(1, keepdims=True), 1e-300)


def same_number_for_acceptance(p: Law, q: Law) -> Law:
    """Chance of acceptance if its number is the one that drew the draft.

    Args:
        p: law of the target.
        q: law of the drafter.
    """
    edges = _edges(q)
    below = np.minimum(edges[1:], accept_chance(p, q)) - edges[:-1]
    return np.clip(below / np.maximum(q, 1e-300), 0.0, 1.0)


def anew(p: Law, q: Law) -> Float[np.ndarray, "refused vocab"]:
    """Replacements drawn from the target itself, whatever was refused.

    Args:
        p: law of the target.
        q: law of the drafter.
    """
    return np.tile(p, (len(p), 1))


MISTAKES: dict[str, Verifier] = {
    "correction from the target": Verifier(correct=anew),
    "matching, then a fresh draw": Verifier(accept=lambda p, q: p, correct=anew),
    "one number drafts and corrects": Verifier(correct=same_number_twice),
    "one number drafts and accepts": Verifier(accept=same_number_for_acceptance),
    "target row one too early": Verifier(row=lambda text: text[:-1]),
    "bonus from the drafter": Verifier(bonus=lambda p, q: q),
    "acceptance at another temperature": Verifier(
        accept=lambda p, q: accept_chance(tempered(p, 0.5), q)
    ),
    "ratio upside down": Verifier(accept=lambda p, q: accept_chance(q, p)),
}
"""Wrong verifiers by what is wrong with them."""


def peeking(game: Game) -> Rule:
    """A rule whose confidence reads the token it decides on: verify while it is likely.

    Args:
        game: whose target is asked.
    """

    def rule(text: Text, drafts: Text) -> int:
        for slot, token in enumerate(drafts):
            if game.target(text + drafts[:slot])[token] < 1 / game.vocab:
                return slot
        return len(drafts)

    return rule


def mistake_frame(
    game: Game,
    *,
    tokens: int = 2,
    rounds: int = 1,
    mistakes: Mapping[str, Verifier] | None = None,
) -> pd.DataFrame:
    """How far every mistake takes the output from the target.

    Args:
        game: who drafts and who decides.
        tokens: how many are looked at.
        rounds: of drafting.
        mistakes: wrong verifiers by name; None for `MISTAKES` and the peeking rule.

    Returns:
        One row per mistake, the right verifier first, with columns mistake ("none" for the right
        one), total_variation, worst_text (where output and target differ most), target and output
        (chances of that text).
    """
    wanted = target_law(game, tokens=tokens)
    laws = {"none": output_law(game, tokens=tokens, rounds=rounds)}
    for name, verifier in (MISTAKES if mistakes is None else mistakes).items():
        laws[name] = output_law(game, tokens=tokens, rounds=rounds, verifier=verifier)
    if mistakes is None:
        laws["confidence reads its own token"] = output_law(
            game, peeking(game), tokens=tokens, rounds=rounds
        )
    rows = []
    for name, law in laws.items():
        texts = compared(law, wanted)
        worst = texts.loc[(texts["output"] - texts["target"]).abs().idxmax()]
        rows.append(
            {
                "mistake": name,
                "total_variation": total_variation(law, wanted),
                "worst_text": worst["text"],
                "target": worst["target"],
                "output": worst["output"],
            }
        )
    return pd.DataFrame(rows)


def _edges(law: Law) -> Float[np.ndarray, "edge"]:
    return np.concatenate([[0.0], np.cumsum(law) / law.sum()])
