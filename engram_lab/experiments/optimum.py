"""Where an allocation curve has its minimum, how sure that is, and where it meets pure experts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from engram_lab.experiments.paired import Bootstrap, PairedLosses, paired_losses
from engram_lab.experiments.verdict import Outcome, Verdict, compare


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The minimum of an allocation curve L(ratio) and the tests of its being inside.

    Attributes:
        ratio: ρ*, minimum of the fitted parabola c + a(ρ - ρ*)², cut to [0, 1].
        low: lower end of the bootstrap interval of `ratio`.
        high: upper end.
        resampled: what the bootstrap draws anew: "documents" or "documents and seeds".
        interior_share: share of bootstrap samples whose parabola opens upwards with its minimum
            inside (0, 1).
        cubic_ratio: minimum of a cubic through all ratios, within them, as a check; NaN if there
            are fewer than five ratios.
        fitted_on: ratios that the parabola was fitted to: those between 0 and 1, or all of them
            where fewer than three lie between.
        best_ratio: measured ratio between 0 and 1 with the lowest mean loss.
        against_experts: L(best_ratio) - L(1), the ratio chosen on the same documents; None if 1 was
            not measured.
        against_memory: L(best_ratio) - L(0), likewise.
        parity: smaller ratio at which the curve, joined by lines, meets L(1); None where it does
            not.
        parity_note: the same in words.

    Source: Engram paper, section 3.1 and figure 3 left.
    """

    ratio: float
    low: float
    high: float
    resampled: str
    interior_share: float
    cubic_ratio: float
    fitted_on: tuple[float, ...]
    best_ratio: float
    against_experts: Verdict | None
    against_memory: Verdict | None
    parity: float | None
    parity_note: str

    @property
    def fit_is_inside(self) -> bool:
        """Whether most bootstrap samples give a parabola with a minimum inside (0, 1)."""
        return self.interior_share > 0.5

    @property
    def is_exact_fit(self) -> bool:
        """Whether the parabola has as many points as coefficients and so meets every one."""
        return len(self.fitted_on) == 3

    @property
    def outcome(self) -> Outcome:
        """Whether an interior split beats both ends, as far as both were measured."""
        tests = [test for test in (self.against_experts, self.against_memory) if test]
        outcomes = {test.outcome for test in tests}
        if "contradicted" in outcomes:
            return "contradicted"
        return "supported" if len(tests) == 2 and outcomes == {"supported"} else "undecided"

    @property
    def sentence(self) -> str:
        """The finding in words, with the intervals that say so."""
        if self.fit_is_inside:
            fit = (
                f"Minimum of the fit at ρ* = {self.ratio:.2f} ({self.low:.2f} to {self.high:.2f}, "
                f"{self.resampled} resampled"
                + ("; a parabola through all of its three points)" if self.is_exact_fit else ")")
            )
        else:
            fit = "The fitted parabola has no minimum between 0 and 1"
            if 0 < self.cubic_ratio < 1:
                fit += f", a cubic through all ratios has one at {self.cubic_ratio:.2f}"
        parts = [f"A split between experts and memory beats both ends: {self.outcome}. {fit}"]
        for end, test in (("1", self.against_experts), ("0", self.against_memory)):
            if test is None:
                parts.append(f"ratio {end} was not measured")
            else:
                parts.append(
                    f"L({self.best_ratio:g}) - L({end}) = {test.difference:+.4f} nats "
                    f"({test.low:+.4f} to {test.high:+.4f})"
                )
        parts.append(f"ratio {self.best_ratio:g} was chosen on these documents")
        parts.append(f"parity {self.parity_note}")
        return "; ".join(parts) + "."

    def __str__(self) -> str:
        return self.sentence


def optimum(
    frame: pd.DataFrame,
    *,
    by: str = "allocation_ratio",
    token_class: str = "all",
    bootstrap: Bootstrap | None = None,
) -> Optimum:
    """The minimum of the allocation curve of one corpus.

    Args:
        frame: rows of `probes.allocation.final_loss` with columns `by` and seed. Where it has the
            column realised_ratio, curves are fitted at realised ratios.
        by: nominal ratio, the same for all seeds of a point.
        token_class: class of tokens whose loss makes the curve.
        bootstrap: how intervals are made; None takes `Bootstrap()`.

    Raises:
        ValueError: if there are fewer than three ratios or none between 0 and 1, or the points do
            not share documents and seeds (see `paired_losses`).
    """
    bootstrap = bootstrap or Bootstrap()
    curve = paired_losses(frame, by=by, token_class=token_class)
    nominal = np.array(curve.arms, dtype=float)
    inner = (nominal > 0) & (nominal < 1)
    if len(nominal) < 3 or not inner.any():
        raise ValueError(
            "optimum needs at least three ratios, one of them between 0 and 1; "
            f"got {nominal.tolist()}"
        )
    realised = _realised(frame, curve.arms, by)
    losses, samples = curve.mean(), curve.resample(bootstrap)
    chosen = inner if inner.sum() >= 3 else np.ones_like(inner)
    drawn, inside = _parabola_minimum(realised[chosen], samples[:, chosen])
    low, high = bootstrap.interval(drawn)
    best = curve.arms[int(np.flatnonzero(inner)[losses[inner].argmin()])]
    parity, note = _parity(realised, nominal, losses)
    return Optimum(
        ratio=float(_parabola_minimum(realised[chosen], losses[None, chosen])[0][0]),
        low=low,
        high=high,
        resampled=bootstrap.resampled,
        interior_share=float(inside.mean()),
        cubic_ratio=_cubic_minimum(realised, losses),
        fitted_on=tuple(float(ratio) for ratio in realised[chosen]),
        best_ratio=float(best),
        against_experts=_against(curve, best, 1.0, bootstrap),
        against_memory=_against(curve, best, 0.0, bootstrap),
        parity=parity,
        parity_note=note,
    )


def optimum_frame(frame: pd.DataFrame, across: str, **options: Any) -> pd.DataFrame:
    """One optimum a row, for each value of the column `across` (a corpus, a static share).

    Args:
        across: column that tells the curves apart.
        options: handed on to `optimum`.

    Returns:
        Columns `across`, ratio, low, high, resampled, cubic_ratio, best_ratio, parity, outcome,
        sentence.
    """
    names = ("ratio", "low", "high", "resampled", "cubic_ratio", "best_ratio", "parity")
    names += ("outcome", "sentence")
    rows = []
    for value, part in frame.groupby(across):
        found = optimum(part, **options)
        rows.append({across: value} | {name: getattr(found, name) for name in names})
    return pd.DataFrame(rows)


def _realised(frame: pd.DataFrame, ratios: tuple[Any, ...], by: str) -> Float[np.ndarray, "ratio"]:
    column = "realised_ratio" if "realised_ratio" in frame else by
    means = frame.groupby(by)[column].mean()
    return np.array([means[ratio] for ratio in ratios], dtype=float)


def _parabola_minimum(
    ratios: Float[np.ndarray, "ratio"], losses: Float[np.ndarray, "sample ratio"]
) -> tuple[Float[np.ndarray, "sample"], np.ndarray]:
    """Minimum in [0, 1] of the fitted parabola of every sample, and whether it lies inside."""
    fit = np.linalg.pinv(np.vander(ratios, 3))  # coefficients of ρ², ρ and 1
    square, slope, _ = fit @ losses.T
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = -slope / (2 * square)
    lower_end = np.where(square + slope < 0, 1.0, 0.0)  # value at 1 against value at 0
    minimum = np.where(square > 0, np.clip(vertex, 0.0, 1.0), lower_end)
    return minimum, (square > 0) & (vertex > 0) & (vertex < 1)


def _cubic_minimum(ratios: np.ndarray, losses: np.ndarray) -> float:
    if len(ratios) < 5:
        return float("nan")
    grid = np.linspace(ratios.min(), ratios.max(), 1001)
    return float(grid[np.polyval(np.polyfit(ratios, losses, 3), grid).argmin()])


def _against(curve: PairedLosses, best: Any, end: float, bootstrap: Bootstrap) -> Verdict | None:
    if end not in curve.arms:
        return None
    claim = f"allocation ratio {best:g} has a lower loss than ratio {end:g}"
    return compare(curve, best, end, claim=claim, bootstrap=bootstrap)


def _parity(
    realised: np.ndarray, nominal: np.ndarray, losses: np.ndarray
) -> tuple[float | None, str]:
    """Where the curve comes back to L(1) on the way from its best ratio towards 0."""
    if nominal[-1] != 1:
        return None, "unknown: ratio 1 was not measured"
    gain = losses - losses[-1]
    best = int(gain[:-1].argmin())
    if gain[best] >= 0:
        return None, "not reached: no ratio beats 1"
    for left in range(best - 1, -1, -1):
        if gain[left] >= 0:
            right = left + 1
            share = gain[right] / (gain[right] - gain[left])
            ratio = float(realised[right] + share * (realised[left] - realised[right]))
            return ratio, f"at ρ = {ratio:.2f}"
    return None, f"not reached: ratio {nominal[0]:g} still beats 1"
