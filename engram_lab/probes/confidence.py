"""Does confidence mean it: predicted against observed survival of prefixes, before and after fits.

Calibrations are fitted on one half of the rounds and measured on the other, for every drafter,
domain and seed by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from engram_lab.draft.calibration import METHODS, Calibrator, check_rounds, prefix_survival
from engram_lab.draft.reliability import (
    BINS,
    calibration_error,
    ranking_quality,
    reliability_by_position,
    squared_error,
    survived,
)
from engram_lab.draft.schedule import Threshold

CONTEXT = ("drafter", "domain", "seed")
"""Columns that keep rounds apart where records have them."""
COLUMNS = ("round", "position", "logit", "accepted")
THRESHOLDS = tuple(step / 10 for step in range(10))


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds:
    """Rounds of one drafter, domain and seed, in the order in which they were drafted.

    Attributes:
        context: what they have in common: the columns of `CONTEXT` that their records have.
        logits: raw confidence logits; NaN for slots that a round lacks.
        accepted: accepted drafts, the bonus token not counted.
        text: what must not be split between fitting and measuring: the prompt, else the round.
    """

    context: dict[str, object]
    logits: Float[np.ndarray, "round position"]
    accepted: Int[np.ndarray, "round"]
    text: np.ndarray

    def halves(self) -> tuple["Rounds", "Rounds"]:
        """The first half, for fitting, and the second, for measuring.

        Raises:
            ValueError: if there is only one round or prompt.
        """
        texts = pd.unique(self.text)
        if len(texts) < 2:
            raise ValueError(
                "a fit needs rounds of its own beside those that are measured; got "
                f"{len(self.accepted)} of one prompt or round{_of(self.context)}. Draft for longer"
            )
        first = np.isin(self.text, texts[: len(texts) // 2])
        return self._chosen(first), self._chosen(~first)

    def _chosen(self, rows: np.ndarray) -> "Rounds":
        return Rounds(
            context=self.context,
            logits=self.logits[rows],
            accepted=self.accepted[rows],
            text=self.text[rows],
        )


def records_of(
    logits: Float[np.ndarray, "round position"],
    accepted: Int[np.ndarray, "round"],
    **columns: object,
) -> pd.DataFrame:
    """Arrays as the records that the functions here take.

    Args:
        logits: raw confidence logits; NaN for slots that a round lacks.
        accepted: accepted drafts of every round.
        columns: what the rounds have in common, for instance domain="code".

    Returns:
        Columns `columns`, round (from 0), position (1-based), logit and accepted.
    """
    rounds, positions = logits.shape
    frame = pd.DataFrame(
        {
            "round": np.repeat(np.arange(rounds), positions),
            "position": np.tile(np.arange(positions) + 1, rounds),
            "logit": logits.ravel(),
            "accepted": np.repeat(accepted, positions),
        }
    )
    return frame.dropna(subset="logit", ignore_index=True).assign(**columns)


def rounds_of(records: pd.DataFrame) -> list[Rounds]:
    """Records as arrays, one entry for every drafter, domain and seed.

    Args:
        records: one row per drafted token, with columns round (number, ascending in time), position
            (1-based), logit (of the confidence head) and accepted (drafts accepted in that round);
            drafter, domain and seed keep rounds apart, prompt keeps them together, and verified
            (drafts that were verified) tells rounds whose outcome is not known to the end.

    Raises:
        ValueError: if columns or rows are missing, a round has a position twice or a gap, its rows
            disagree on what was accepted, it accepted more than it drafted, or a part of it that
            might have been accepted was not verified.
    """
    missing = [name for name in COLUMNS if name not in records]
    if missing or records.empty:
        raise ValueError(
            f"confidence records need rows with columns {', '.join(COLUMNS)}; missing: "
            f"{', '.join(missing) or 'every row'}. records_of() makes them of arrays"
        )
    keys = [name for name in CONTEXT if name in records]
    if not keys:
        return [_rounds({}, records)]
    return [
        _rounds(dict(zip(keys, values, strict=True)), part)
        for values, part in records.groupby(keys, sort=False)
    ]


def confidence_frame(
    records: pd.DataFrame, *, methods: Sequence[str] = METHODS, bins: int = BINS
) -> pd.DataFrame:
    """Predicted and observed survival in every bin, at every position, with every calibration.

    Args:
        records: see `rounds_of`; of rounds whose whole block was verified.
        methods: calibrations, of `draft.calibration.METHODS`.
        bins: equal-width bins of the predicted survival.

    Returns:
        Measured on the second half of the rounds: columns drafter, domain, seed (those that records
        have), method, position (1-based), bin (from 0), predicted (mean survival of the prefix up
        to this position, as said), observed (share of prefixes that were accepted) and count.

    Raises:
        ValueError: as `rounds_of` and `Calibrator`, or if there are too few rounds to split.
    """
    parts = [
        reliability_by_position(survival, rounds.accepted, bins=bins).assign(
            **rounds.context, method=method
        )
        for rounds, method, _, survival in _measured(records, methods)
    ]
    frame = pd.concat(parts, ignore_index=True)
    return _ordered(frame, ["method", "position", "bin", "predicted", "observed", "count"])


def confidence_summary(
    records: pd.DataFrame, *, methods: Sequence[str] = METHODS, bins: int = BINS
) -> pd.DataFrame:
    """Calibration error, ranking and squared error at every position, with every calibration.

    Args:
        records: see `rounds_of`; of rounds whose whole block was verified.
        methods: calibrations, of `draft.calibration.METHODS`.
        bins: equal-width bins of the calibration error.

    Returns:
        Measured on the second half of the rounds, for the survival of prefixes: columns drafter,
        domain, seed (those that records have), method, position (1-based), ece (in 0..1), auc
        (chance that a prefix that survived is rated above one that did not; NaN if all agree),
        brier (mean squared error), rounds (measured) and temperature (NaN for curves).

    Raises:
        ValueError: as `confidence_frame`.
    """
    rows = []
    for rounds, method, calibrator, survival in _measured(records, methods):
        outcomes = survived(rounds.accepted, survival.shape[1])
        temperatures = calibrator.temperatures or [np.nan] * survival.shape[1]
        for k, (predicted, observed) in enumerate(zip(survival.T, outcomes.T, strict=True)):
            rows.append(
                {
                    **rounds.context,
                    "method": method,
                    "position": k + 1,
                    "ece": calibration_error(predicted, observed, bins=bins),
                    "auc": ranking_quality(predicted, observed),
                    "brier": squared_error(predicted, observed),
                    "rounds": int((~np.isnan(predicted)).sum()),
                    "temperature": float(temperatures[k]),
                }
            )
    return pd.DataFrame(rows)


def threshold_frame(
    records: pd.DataFrame, *, thresholds: Sequence[float] = THRESHOLDS
) -> pd.DataFrame:
    """What a static threshold on the raw confidence would verify of every round, and gain.

    The rounds are those that were drafted with whole blocks verified; a decoder with the threshold
    would start its rounds elsewhere in the same text.

    Args:
        records: see `rounds_of`; of rounds whose whole block was verified.
        thresholds: in 0..1; 0 verifies everything.

    Returns:
        Columns drafter, domain, seed (those that records have), threshold, verified_tokens,
        accepted_tokens and rejected_tokens (means per round; anchor counted as verified, correction
        or bonus as accepted), verify_rate (accepted over verified) and rounds.

    Raises:
        ValueError: as `rounds_of`, or if a threshold lies outside 0..1.
    """
    rows = []
    for rounds in rounds_of(records):
        confidences = Calibrator("raw").fit(rounds.logits, rounds.accepted).apply(rounds.logits)
        for threshold in thresholds:
            lengths = Threshold(threshold=threshold)(confidences)
            verified = 1 + lengths.mean()
            kept = 1 + np.minimum(lengths, rounds.accepted).mean()
            rows.append(
                {
                    **rounds.context,
                    "threshold": threshold,
                    "verified_tokens": verified,
                    "accepted_tokens": kept,
                    "rejected_tokens": verified - kept,
                    "verify_rate": kept / verified,
                    "rounds": len(lengths),
                }
            )
    return pd.DataFrame(rows)


def _measured(
    records: pd.DataFrame, methods: Sequence[str]
) -> Iterator[tuple[Rounds, str, Calibrator, np.ndarray]]:
    """Rounds that are measured, method, fitted calibrator and survival of their prefixes."""
    for rounds in rounds_of(records):
        fitted, measured = rounds.halves()
        for method in methods:
            calibrator = Calibrator(method).fit(fitted.logits, fitted.accepted)
            yield measured, method, calibrator, prefix_survival(calibrator.apply(measured.logits))


def _rounds(context: dict[str, object], records: pd.DataFrame) -> Rounds:
    where = _of(context)
    twice = records.duplicated(["round", "position"])
    if twice.any():
        number, position = records.loc[twice, ["round", "position"]].iloc[0]
        raise ValueError(f"round {number}{where} has position {position} more than once")
    by_round = records.groupby("round", sort=True)
    for name in ("accepted", "prompt", "verified"):
        if name in records and (by_round[name].nunique() > 1).any():
            raise ValueError(f"{name} must be the same in all rows of a round; in some{where} not")
    wide = records.pivot(index="round", columns="position", values="logit").sort_index()
    if list(wide.columns) != list(range(1, len(wide.columns) + 1)):
        raise ValueError(f"positions must be 1, 2, ...; got {list(wide.columns)}{where}")
    logits, first = wide.to_numpy(float), by_round.first()
    accepted = first["accepted"].to_numpy(np.int64)
    check_rounds(logits, accepted)
    if "verified" in records:
        unknown = (accepted == first["verified"]) & (accepted < (~np.isnan(logits)).sum(1))
        if unknown.any():
            raise ValueError(
                f"round {first.index[unknown][0]}{where} ends where verification ended, so what "
                "became of its later drafts is not known. Record with the whole block verified"
            )
    text = first["prompt"] if "prompt" in records else first.index
    return Rounds(context=context, logits=logits, accepted=accepted, text=np.asarray(text))


def _of(context: dict[str, object]) -> str:
    return f" of {', '.join(map(str, context.values()))}" if context else ""


def _ordered(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    return frame[[name for name in CONTEXT if name in frame] + columns]
