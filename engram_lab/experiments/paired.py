"""Losses of several arms on the same documents and seeds, and the bootstrap over them."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import t as student_t

INDEX = ("seed", "document", "loss_nats", "eval_tokens")


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """How an interval is made.

    Attributes:
        resamples: bootstrap samples.
        level: coverage of the interval, in (0, 1).
        seeds: whether the interval also speaks of other seeds, not only of these trained models on
            other documents. The seeds are then drawn anew as well, and the interval of a difference
            is widened to Student's t over the seeds: drawing from three values again and again
            finds their range, which misses the true mean far too often.
        seed: seed of the draws.
    """

    resamples: int = 2_000
    level: float = 0.95
    seeds: bool = False
    seed: int = 0

    def __post_init__(self):
        if self.resamples < 100:
            raise ValueError(f"Bootstrap.resamples must be at least 100; got {self.resamples}")
        if not 0 < self.level < 1:
            raise ValueError(f"Bootstrap.level must lie in (0, 1); got {self.level}")

    @property
    def resampled(self) -> str:
        """What is drawn anew, in words."""
        return "documents and seeds" if self.seeds else "documents"

    def widened(
        self, interval: tuple[float, float], by_seed: Float[np.ndarray, "seed"]
    ) -> tuple[float, float]:
        """An interval of a difference, widened to Student's t where it is to speak of seeds."""
        count = len(by_seed)
        if not self.seeds or count < 2:
            return interval
        quantile = student_t.ppf(0.5 + self.level / 2, count - 1)
        half = quantile * by_seed.std(ddof=1) / count**0.5
        centre = by_seed.mean()
        return min(interval[0], float(centre - half)), max(interval[1], float(centre + half))

    def interval(self, samples: Float[np.ndarray, "resample"]) -> tuple[float, float]:
        """The middle `level` of bootstrap samples."""
        tail = (1 - self.level) / 2
        low, high = np.quantile(samples, (tail, 1 - tail))
        return float(low), float(high)


@dataclass(frozen=True, kw_only=True)
class PairedLosses:
    """Losses of some arms on the same documents, with the same seeds.

    Attributes:
        arms: what tells the arms apart, in order.
        seeds: seeds that every arm has.
        losses: mean loss per document, nats per token.
        tokens: tokens that the loss of a document is the mean of.
    """

    arms: tuple[Any, ...]
    seeds: tuple[Any, ...]
    losses: Float[np.ndarray, "arm seed document"]
    tokens: Float[np.ndarray, "document"]

    def mean(self) -> Float[np.ndarray, "arm"]:
        """Mean over seeds of the loss per token."""
        return self.losses.mean(axis=1) @ self.tokens / self.tokens.sum()

    def by_seed(self) -> Float[np.ndarray, "arm seed"]:
        """Loss per token of every arm and seed."""
        return self.losses @ self.tokens / self.tokens.sum()

    def resample(self, bootstrap: Bootstrap) -> Float[np.ndarray, "resample arm"]:
        """`mean()` on bootstrap samples; all arms see the same draw, so differences stay paired."""
        generator = np.random.default_rng(bootstrap.seed)
        arms, seeds, documents = self.losses.shape
        counts = _draws(generator, bootstrap.resamples, documents)  # resample document
        total = counts @ self.tokens
        weighted = (self.losses * self.tokens).reshape(arms * seeds, documents)
        sums = (counts @ weighted.T).reshape(-1, arms, seeds) / total[:, None, None]
        if not bootstrap.seeds:
            return sums.mean(axis=2)
        chosen = _draws(generator, bootstrap.resamples, seeds) / seeds  # resample seed
        return np.einsum("ras,rs->ra", sums, chosen)


def paired_losses(
    frame: pd.DataFrame, arms: Sequence[Any] | None = None, *, by: str, token_class: str = "all"
) -> PairedLosses:
    """The losses of a frame as arrays in which arms, seeds and documents are aligned.

    Args:
        frame: columns seed, document, loss_nats, eval_tokens, token_class (unless there is only one
            class) and the column `by`.
        arms: values of `by` to take, in this order; None takes all of them, sorted.
        by: column that tells the arms apart.
        token_class: class of tokens whose loss is taken.

    Raises:
        ValueError: if columns, arms or the class are missing, losses are not finite, fewer than two
            documents are left, or the arms do not share documents, tokens or any seed. Seeds that
            only some arms have are left out, with a warning.
    """
    _check_columns(frame, by)
    rows = _of_class(frame, token_class)
    arms = sorted(rows[by].unique()) if arms is None else list(arms)
    absent = [arm for arm in arms if not (rows[by] == arm).any()]
    if absent:
        known = sorted(rows[by].unique())
        raise ValueError(f"no rows with {by} in {absent}; the frame has {known}")
    rows = rows[rows[by].isin(arms)]
    if rows.duplicated([by, "seed", "document"]).any():
        raise ValueError(
            f"several rows for one {by}, seed and document: keep one corpus, share and layer, "
            "for instance frame[frame['corpus'] == 'd8']"
        )
    broken = rows.loc[~np.isfinite(rows["loss_nats"].astype(float)), "document"].unique()
    if len(broken):
        raise ValueError(f"losses must be finite; they are not in documents {broken[:5].tolist()}")
    losses = rows.pivot(index=[by, "seed"], columns="document", values="loss_nats")
    seeds = _shared_seeds(losses, arms, by)
    order = pd.MultiIndex.from_product([arms, seeds])
    losses = losses.loc[order].dropna(axis=1, how="all")
    tokens = rows.pivot(index=[by, "seed"], columns="document", values="eval_tokens")
    tokens = tokens.loc[order, losses.columns]
    _check_aligned(losses, tokens, by)
    return PairedLosses(
        arms=tuple(arms),
        seeds=tuple(seeds),
        losses=losses.to_numpy(float).reshape(len(arms), len(seeds), -1),
        tokens=tokens.iloc[0].to_numpy(float),
    )


def _draws(generator: np.random.Generator, resamples: int, size: int) -> np.ndarray:
    """How often each of `size` items is drawn, `size` draws with replacement, `[resample size]`."""
    drawn = generator.integers(size, size=(resamples, size))
    flat = drawn + size * np.arange(resamples)[:, None]
    counts = np.bincount(flat.ravel(), minlength=resamples * size)
    return counts.reshape(resamples, size).astype(float)


def _check_columns(frame: pd.DataFrame, by: str) -> None:
    missing = [name for name in (by, *INDEX) if name not in frame]
    if missing:
        raise ValueError(
            f"paired losses need columns {', '.join((by, *INDEX))}; missing: {', '.join(missing)}. "
            "probes.allocation.final_loss() makes such a frame."
        )


def _of_class(frame: pd.DataFrame, token_class: str) -> pd.DataFrame:
    if "token_class" not in frame:
        return frame
    rows = frame[frame["token_class"] == token_class]
    if rows.empty:
        known = ", ".join(map(str, frame["token_class"].unique()))
        raise ValueError(f"no rows of token_class {token_class!r}; the frame has {known}")
    return rows


def _shared_seeds(losses: pd.DataFrame, arms: Sequence[Any], by: str) -> list[Any]:
    sets = [set(losses.loc[arm].index) for arm in arms]
    shared, every = set.intersection(*sets), set.union(*sets)
    if not shared:
        raise ValueError(
            f"the arms {list(arms)} of {by} share no seed; got {[sorted(found) for found in sets]}"
        )
    if shared != every:
        warnings.warn(
            f"seeds {sorted(every - shared)} are left out: not every value of {by} has them",
            stacklevel=4,
        )
    return sorted(shared)


def _check_aligned(losses: pd.DataFrame, tokens: pd.DataFrame, by: str) -> None:
    lacking = losses.columns[losses.isna().any()].tolist()
    if lacking:
        raise ValueError(
            f"every {by} and seed needs a loss on every document; missing in {lacking[:5]}"
        )
    if (tokens != tokens.iloc[0]).any(axis=None):
        raise ValueError(
            f"eval_tokens differ between arms or seeds of {by}: they were evaluated on other tokens"
        )
    if losses.shape[1] < 2:
        raise ValueError(
            f"an interval over documents needs at least 2 documents; got {losses.shape[1]}"
        )
