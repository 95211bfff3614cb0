"""What a step of the engine costs, by the number of tokens that are verified together."""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int


@dataclass(frozen=True, kw_only=True)
class CostTable:
    """Seconds per step for every number of tokens in the batch, from times at some of them.

    A larger batch never costs less: of the profiled times the running maximum counts. Up to
    `captured`, where an engine replays graphs of fixed size, a batch is padded to the next profiled
    size and costs as much as that one. Above, times are interpolated, but only between profiled
    sizes that are themselves above: leaving the captured range is a jump. Past the last size the
    slope of the last two goes on.

    Attributes:
        sizes: profiled numbers of tokens, ascending.
        seconds: time of a step at each.
        captured: largest number of tokens with a captured graph; 0 for an engine without.
        name: what was profiled, for captions.

    Raises:
        ValueError: if there are no sizes, they do not ascend from at least 1, their times are not
            positive, or their numbers differ.

    Source: vllm-project/vllm, adaptive_verification.py.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    captured: int = 0
    name: str = ""

    def __post_init__(self):
        ascending = all(a < b for a, b in itertools.pairwise((0, *self.sizes)))
        if not self.sizes or not ascending or self.captured < 0:
            raise ValueError(
                "CostTable.sizes must be at least one size, ascending from 1 or more, and captured "
                f"must not be negative; got {self.sizes} and {self.captured}"
            )
        if len(self.seconds) != len(self.sizes) or not all(0 < s < np.inf for s in self.seconds):
            raise ValueError(
                f"CostTable.seconds must be {len(self.sizes)} positive times, one for each size; "
                f"got {self.seconds}"
            )
        points = np.array(self.sizes)
        times = np.maximum.accumulate(np.array(self.seconds, dtype=np.float64))
        object.__setattr__(self, "_points", points)
        object.__setattr__(self, "_times", times)
        object.__setattr__(
            self, "_first_free", int(np.searchsorted(points, self.captured, "right"))
        )

    @property
    def flat(self) -> bool:
        """Whether all sizes cost the same, so that a schedule can only verify everything."""
        return bool(self._times[0] == self._times[-1])

    @property
    def slope(self) -> float:
        """Seconds that a token costs past the last profiled size."""
        if len(self.sizes) == 1:
            return 0.0
        return float((self._times[-1] - self._times[-2]) / (self._points[-1] - self._points[-2]))

    def __call__(self, tokens: int) -> float:
        """Seconds of one step with so many tokens."""
        return float(self.at(np.array([tokens]))[0])

    def at(self, tokens: Int[np.ndarray, "batch"]) -> Float[np.ndarray, "batch"]:
        """Seconds of steps with so many tokens each; a step without tokens costs as one of 1."""
        points, times, first = self._points, self._times, self._first_free
        if first < len(points):
            seconds = np.interp(tokens, points[first:], times[first:])
        else:
            seconds = np.full(np.shape(tokens), times[-1])
        if first:
            padded = times[np.minimum(np.searchsorted(points, tokens), len(points) - 1)]
            seconds = np.where(tokens <= self.captured, padded, seconds)
        return seconds + self.slope * np.maximum(tokens - points[-1], 0)

    def steps_per_second(self, tokens: Int[np.ndarray, "batch"]) -> Float[np.ndarray, "batch"]:
        """Steps per second at so many tokens (SPS of the paper)."""
        return 1.0 / self.at(tokens)


def from_steps_per_second(
    rates: Mapping[int, float], *, captured: int = 0, name: str = ""
) -> CostTable:
    """Cost table from steps per second at some sizes.

    Args:
        rates: steps per second by tokens in the batch.
        captured: as `CostTable.captured`.
        name: as `CostTable.name`.

    Raises:
        ValueError: as `CostTable`, or if a rate is not positive.
    """
    if any(not rate > 0 for rate in rates.values()):
        raise ValueError(f"steps per second must be positive; got {dict(rates)}")
    sizes = tuple(sorted(rates))
    return CostTable(
        sizes=sizes, seconds=tuple(1 / rates[size] for size in sizes), captured=captured, name=name
    )


def affine(*, base: float, per_token: float) -> CostTable:
    """A step of `base + per_token * tokens` seconds: no free room, no cliffs.

    Args:
        base: seconds that every step takes.
        per_token: seconds that every token adds.
    """
    times = tuple(base + per_token * tokens for tokens in (1, 2))
    return CostTable(sizes=(1, 2), seconds=times, name="affine")


def roofline(*, base: float, free_tokens: int) -> CostTable:
    """A step of `base` seconds up to a number of tokens, and in proportion to them beyond.

    Reading the weights bounds small batches, computing bounds large ones.

    Args:
        base: seconds of a small step.
        free_tokens: tokens up to which a further one costs nothing.

    Raises:
        ValueError: if no token is free.
    """
    if free_tokens < 1:
        raise ValueError(f"roofline needs free_tokens of at least 1; got {free_tokens}")
    sizes = (free_tokens, 2 * free_tokens)
    return CostTable(sizes=sizes, seconds=(base, 2 * base), name="roofline")


def staircase(*, base: float, rise: float, width: int, stairs: int = 64) -> CostTable:
    """A step whose cost rises by `rise` seconds behind every `width` tokens, as padded batches do.

    Args:
        base: seconds of the first stair.
        rise: seconds from one stair to the next.
        width: tokens of a stair.
        stairs: number of them; beyond, cost rises evenly at the same rate.

    Raises:
        ValueError: if a stair has no width, there is none, or costs fall.
    """
    if width < 1 or stairs < 1 or rise < 0:
        raise ValueError(
            "staircase needs a width and a number of stairs of at least 1 and a rise of at least "
            f"0; got {width}, {stairs} and {rise}"
        )
    sizes = tuple(width * (stair + 1) for stair in range(stairs))
    times = tuple(base + rise * stair for stair in range(stairs))
    return CostTable(sizes=sizes, seconds=times, captured=sizes[-1], name="staircase")


def measure_cost_table(
    step: Callable[[int], object],
    sizes: Sequence[int],
    *,
    repeats: int = 5,
    captured: int = 0,
    name: str = "measured",
) -> CostTable:
    """Time a step at several sizes on this machine; the median of the repeats counts.

    The sizes take turns, so that a machine that slows down meanwhile slows all of them, after one
    call each that is not timed.

    Args:
        step: runs one step on so many tokens, for instance a target's pass at a fixed context.
        sizes: numbers of tokens.
        repeats: timed calls of each size, at least 1.
        captured: as `CostTable.captured`.
        name: as `CostTable.name`.

    Raises:
        ValueError: if there is no size, one is below 1, or nothing is repeated.
    """
    ordered = sorted(set(sizes))
    if not ordered or ordered[0] < 1 or repeats < 1:
        raise ValueError(
            "measure_cost_table needs sizes of at least 1 token and at least 1 repeat; got "
            f"{list(sizes)} and {repeats}"
        )
    for size in ordered:
        step(size)
    times: dict[int, list[float]] = {size: [] for size in ordered}
    for _, size in itertools.product(range(repeats), ordered):
        _synchronise()
        start = time.perf_counter()
        step(size)
        _synchronise()
        times[size].append(time.perf_counter() - start)
    medians = tuple(max(statistics.median(times[size]), 1e-9) for size in ordered)
    return CostTable(sizes=tuple(ordered), seconds=medians, captured=captured, name=name)


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
