"""How far drafts survive: by position, by prompt, and what each round said of its confidence.

Frames of generations with the whole block verified; a rule that cuts blocks censors positions.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.proposer import Proposer
from engram_lab.draft.rounds import Generation
from engram_lab.draft.target import Target
from engram_lab.published import load_published
from engram_lab.training.draft_data import Answers


def acceptance_frame(generations: Iterable[Generation]) -> pd.DataFrame:
    """Survival of drafts by position, over all rounds of some generations.

    Args:
        generations: decoded with a drafter.

    Returns:
        One row per position, from 1: `offered` (rounds that verified a draft there), `reached` (of
        those, all earlier drafts were kept), `accepted`, `survival` (accepted / offered),
        `conditional_rate` (accepted / reached; NaN where none was reached), `expected_rate` (mean
        chance that the target keeps the draft, where it was reached).

    Raises:
        ValueError: if no round verified a draft.

    Source: DSpark paper, section 4.3.1 (conditional acceptance).
    """
    frames = [generation.positions() for generation in generations]
    rounds = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    if rounds.empty:
        raise ValueError(
            "acceptance_frame needs rounds that verified a draft; got none. Decode with a drafter "
            "and a length of at least 1."
        )
    return position_rates(rounds)


def position_rates(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rates of `acceptance_frame` from `Generation.positions()` frames."""
    rounds = rounds.assign(reached=_reached(rounds))
    rows = []
    for position, group in rounds.groupby("position"):
        reached = group[group["reached"]]
        accepted = int(group["accepted"].sum())
        rows.append(
            {
                "position": int(position),
                "offered": len(group),
                "reached": len(reached),
                "accepted": accepted,
                "survival": accepted / len(group),
                "conditional_rate": accepted / len(reached) if len(reached) else float("nan"),
                "expected_rate": reached["expected"].mean() if len(reached) else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def beside_published(positions: pd.DataFrame, drafter: str = "DSpark") -> pd.DataFrame:
    """Acceptance by position, with the published curve of a drafter beside it.

    The curves are those of a target of four billion parameters at temperature 1; their shapes
    compare with those of a small model, their heights do not.

    Args:
        positions: rows by position, as `acceptance_frame` gives them.
        drafter: "DSpark", "DFlash" or "Eagle3".

    Returns:
        The same rows with the columns `published_math`, `published_code` and `published_chat`
        (conditional acceptance, to hold beside `conditional_rate`; NaN at positions of which
        nothing is published), `published_drafter` and `published_kind` (grade of the values).

    Raises:
        ValueError: if nothing is published of the drafter.

    Source: DSpark paper, figure 2.
    """
    curves = load_published("dspark_fig2_conditional_acceptance")
    own = curves[curves["drafter"] == drafter]
    if own.empty:
        known = ", ".join(curves["drafter"].unique())
        raise ValueError(f"acceptance by position is published of {known}; got {drafter!r}")
    wide = own.pivot(index="position", columns="domain", values="conditional_acceptance")
    wide = wide[own["domain"].unique()].add_prefix("published_").rename_axis(columns=None)
    joined = positions.join(wide, on="position")
    kinds = ", ".join(own["kind"].unique())
    return joined.assign(published_drafter=drafter, published_kind=kinds)


def accepted_lengths(generation: Generation) -> pd.DataFrame:
    """Tokens gained a round, by prompt.

    Returns:
        One row per prompt: `sequence rounds emitted accepted_length`; tokens of a round include the
        bonus, the first token of a prompt (from prefill) is not counted.

    Raises:
        ValueError: if there was no round.
    """
    frame = generation.frame()
    if frame.empty:
        raise ValueError(
            "accepted_lengths needs at least one round; got none. Ask for more than one new token."
        )
    sums = frame.groupby("sequence")["emitted"].agg(rounds="size", emitted="sum").reset_index()
    return sums.assign(accepted_length=sums["emitted"] / sums["rounds"])


def confidence_records(generation: Generation) -> pd.DataFrame:
    """What the confidence head said in every round, and how far the round came.

    Returns:
        One row per verified draft: `prompt`, `round` (counted over all prompts), `position` (from
        1), `logit`, `accepted` (drafts kept in the round).

    Raises:
        ValueError: if the drafter has no confidence head.
    """
    rounds = generation.positions()
    if rounds["logit"].isna().any():
        raise ValueError(
            "confidence_records needs a drafter with a confidence head; this one gave none. Build "
            "it with DraftConfig(confidence=True)."
        )
    keys = ["sequence", "round"]
    kept = rounds.groupby(keys)["accepted"].transform("sum")
    number = rounds.groupby(keys, sort=False).ngroup()
    return pd.DataFrame(
        {
            "prompt": rounds["sequence"],
            "round": number,
            "position": rounds["position"],
            "logit": rounds["logit"],
            "accepted": kept.astype(int),
        }
    )


def decode(
    target: Target, drafter: Proposer | None, answers: Answers, config: GenerationConfig
) -> Generation:
    """Answer the prompts of some texts with a drafter.

    Args:
        target: the model drafted for.
        drafter: None decodes plainly.
        answers: texts whose prompts are taken.
        config: how.
    """
    return speculative_generate(target, drafter, answers.prompts, config)


def _reached(rounds: pd.DataFrame) -> np.ndarray:
    """Whether all drafts before a row's were kept."""
    lost = ~rounds["accepted"].to_numpy(bool)
    first = rounds["position"].to_numpy() == 1
    before = np.r_[False, lost[:-1]]  # drafts behind a lost one are lost, so one step suffices
    return first | ~before
