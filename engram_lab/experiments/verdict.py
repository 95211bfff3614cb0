"""Verdicts: the paired difference of two arms, its interval, and what that says about a claim."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd

from engram_lab.experiments.paired import Bootstrap, PairedLosses, paired_losses

Outcome = Literal["supported", "contradicted", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What measured numbers say about a claim, mostly that one arm has a lower loss than another.

    Attributes:
        claim: the claim, in words.
        difference: mean over paired seeds of L_A - L_B, in `unit`; negative favours the claim.
        low: lower end of the interval of the difference.
        high: upper end.
        level: coverage of the interval.
        n_seeds: paired seeds.
        n_documents: documents that both arms were evaluated on.
        resampled: what the bootstrap draws anew, "documents" or "documents and seeds", or what an
            interval without a bootstrap is over.
        by_seed: the difference of every seed.
        unit: of the difference.

    Source: the rules for a fair comparison of the experiment catalogue.
    """

    claim: str
    difference: float
    low: float
    high: float
    level: float = 0.95
    n_seeds: int
    n_documents: int
    resampled: str = "documents"
    by_seed: tuple[float, ...] = ()
    unit: str = "nats per token"

    @property
    def outcome(self) -> Outcome:
        """Supported or contradicted if the interval lies on one side of 0, else undecided.

        An interval over documents does not know how much seeds differ; so where only documents are
        resampled, no seed may contradict the others either. One seed says nothing of seeds.
        """
        of_seeds = "seeds" in self.resampled
        if self.low <= 0 <= self.high or (self.seeds_disagree and not of_seeds):
            return "undecided"
        if of_seeds and self.n_seeds < 2:
            return "undecided"
        return "supported" if self.high < 0 else "contradicted"

    @property
    def seeds_disagree(self) -> bool:
        """Whether some seeds favour the claim and others do not."""
        return len({difference < 0 for difference in self.by_seed}) > 1

    @property
    def sentence(self) -> str:
        """The verdict in words, with the interval that says so."""
        seeds = f"{self.n_seeds} paired seed{'s' if self.n_seeds != 1 else ''}"
        if len(self.by_seed) > 1:
            opinion = "which disagree, " if self.seeds_disagree else ""
            seeds += f", {opinion}{min(self.by_seed):+.3f} to {max(self.by_seed):+.3f}"
        how = self.resampled if "over" in self.resampled else f"{self.resampled} resampled"
        items = f"{self.n_documents} items; " if self.n_documents else ""
        return (
            f"{self.claim}: {self.outcome}. Difference {self.difference:+.4f} {self.unit} "
            f"(below 0 favours the claim), {self.level:.0%} interval {self.low:+.4f} to "
            f"{self.high:+.4f} ({seeds}; {items}{how})."
        )

    def __str__(self) -> str:
        return self.sentence


def paired_difference(
    frame: pd.DataFrame,
    arm_a: Any,
    arm_b: Any,
    *,
    by: str = "arm",
    claim: str = "",
    token_class: str = "all",
    bootstrap: Bootstrap | None = None,
) -> Verdict:
    """Verdict on the claim that arm A has a lower loss than arm B.

    The difference is the mean over the seeds both arms have of L_A - L_B on the same documents,
    each document weighted by its tokens. Documents are resampled, seeds stay paired.

    Args:
        frame: rows of `probes.allocation.final_loss`, with a column `by` and a column seed.
        arm_a: value of `by` of the arm the claim favours.
        arm_b: value of `by` of the other arm.
        by: column that tells the arms apart, for instance "arm" or "allocation_ratio".
        claim: the claim in words; by default "A has a lower loss than B".
        token_class: class of tokens to compare on.
        bootstrap: how the interval is made; None takes `Bootstrap()`.

    Raises:
        ValueError: if the arms do not share documents and seeds (see `paired_losses`).
    """
    pair = paired_losses(frame, [arm_a, arm_b], by=by, token_class=token_class)
    claim = claim or f"{by} {arm_a} has a lower loss than {by} {arm_b}"
    return compare(pair, arm_a, arm_b, claim=claim, bootstrap=bootstrap or Bootstrap())


def compare(
    losses: PairedLosses, arm_a: Any, arm_b: Any, *, claim: str, bootstrap: Bootstrap
) -> Verdict:
    """`paired_difference` of two arms whose losses are aligned already."""
    first, second = losses.arms.index(arm_a), losses.arms.index(arm_b)
    mean, samples, seeds = losses.mean(), losses.resample(bootstrap), losses.by_seed()
    by_seed = seeds[first] - seeds[second]
    drawn = bootstrap.interval(samples[:, first] - samples[:, second])
    low, high = bootstrap.widened(drawn, by_seed)
    return Verdict(
        claim=claim,
        difference=float(mean[first] - mean[second]),
        low=low,
        high=high,
        level=bootstrap.level,
        n_seeds=len(losses.seeds),
        n_documents=len(losses.tokens),
        resampled=bootstrap.resampled,
        by_seed=tuple(float(difference) for difference in by_seed),
    )


def verdict_frame(verdicts: Iterable[Verdict]) -> pd.DataFrame:
    """One verdict a row: its attributes, its outcome and its sentence."""
    rows = [
        asdict(verdict) | {"outcome": verdict.outcome, "sentence": verdict.sentence}
        for verdict in verdicts
    ]
    return pd.DataFrame(rows)
