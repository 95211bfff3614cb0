"""An experiment as data: a grid, a function from points to configs, and the probe to measure with.

`run` executes the points that are not stored yet and returns the rows of all points. It may be
stopped and started at any time, also twice at once: a finished point is never computed again, and
one failing point costs only itself.
"""

import inspect
import itertools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from engram_lab.configs import fingerprint, to_dict
from engram_lab.experiments.pool import Job, finish_all
from engram_lab.experiments.provenance import circumstances
from engram_lab.experiments.store import Store
from engram_lab.training.fit import load_or_fit

Point = dict[str, Any]
Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


class SweepError(RuntimeError):
    """Some points of a sweep failed; all others are finished and stored.

    Attributes:
        failures: from the label of a point to the traceback that ended it.
    """

    def __init__(self, message: str, failures: Mapping[str, str]):
        super().__init__(message)
        self.failures = dict(failures)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One experiment.

    Attributes:
        name: folder of the results; lower-case letters, digits and underscores.
        grid: values by name, whose product gives the points; or the points themselves, for a grid
            with gaps (`product` helps); or a function without arguments that gives either when
            asked, for grids that depend on the scale. Names are arguments of `configure` and
            columns of the frame.
        configure: from the values of a point to a config (a frozen dataclass).
        measure: from what `execute` returns to a frame, one observation a row.
        execute: from a config to what `measure` takes; trains a model, or loads it, by default.
    """

    name: str
    grid: Grid | Callable[[], Grid]
    configure: Callable[..., Any]
    measure: Callable[[Any], pd.DataFrame]
    execute: Callable[[Any], Any] = load_or_fit

    def __post_init__(self):
        if not re.fullmatch(r"[a-z0-9_]+", self.name):
            raise ValueError(
                f"Sweep.name must be lower-case letters, digits and underscores; got {self.name!r}"
            )
        if not callable(self.grid):
            self.points()

    def points(self) -> list[Point]:
        """All points of the grid, in order.

        Raises:
            ValueError: if there is none, they differ in their names or `configure` does not take
                them.
        """
        grid = self.grid() if callable(self.grid) else self.grid
        points = product(**grid) if isinstance(grid, Mapping) else [dict(point) for point in grid]
        if not points:
            raise ValueError(f"the grid of sweep {self.name!r} has no points; got {grid!r}")
        for point in points:
            if list(point) != list(points[0]):
                raise ValueError(
                    f"all points of sweep {self.name!r} need the same names in the same order; "
                    f"got {list(points[0])} and {list(point)}"
                )
        try:
            inspect.signature(self.configure).bind(**points[0])
        except TypeError as error:
            raise ValueError(
                f"configure of sweep {self.name!r} must take {list(points[0])}: {error}"
            ) from error
        return points


def product(**values: Sequence[Any]) -> list[Point]:
    """Every combination of the values, as points; the last name runs fastest."""
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def run(
    sweep: Sweep,
    *,
    limit: int | None = None,
    fresh: bool = False,
    n_jobs: int | None = None,
    only: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Rows of all points of a sweep; points that are not stored yet are computed first.

    Args:
        limit: take only the first so many points of the grid (after `only`).
        fresh: compute also points that are stored, and put the new rows in their place; an
            `execute` that takes `fresh`, as `load_or_fit` does, also trains anew.
        n_jobs: processes that compute points, one torch thread each; 1 computes in this process.
            None takes `$ENGRAM_LAB_JOBS`, else 1.
        only: keep the points with these values: `{"seed": 0, "allocation_ratio": (0.5, 1.0)}`.

    Returns:
        The rows that `measure` gave, points in grid order, with the grid's names as first columns.

    Raises:
        ValueError: if an argument is out of range, or two points give the same config.
        SweepError: if points failed, listing them, after all others were finished and stored.
    """
    jobs = _jobs(sweep, _chosen(sweep, only, limit))
    workers = _workers(n_jobs)
    store = Store.opened(sweep.name)
    failures = {job.label: job.failure for job in jobs if job.failure}
    ready = [job for job in jobs if not job.failure]
    work = partial(_compute, sweep, fresh=fresh)
    failures |= finish_all(ready, work, store, fresh=fresh, workers=workers, title=sweep.name)
    if failures:
        raise _sweep_error(sweep.name, failures, total=len(jobs))
    advice = "run the sweep again to repair it"
    frames = [store.load(job.name, job.point, advice, config=job.config) for job in jobs]
    missing = [job.label for job, frame in zip(jobs, frames, strict=True) if frame is None]
    if missing:
        raise SweepError(f"results of {sweep.name} vanished after they were stored: {missing}", {})
    return pd.concat(frames, ignore_index=True)


def load_results(sweep: Sweep, *, only: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Rows of the points that are stored; computes nothing.

    Args:
        only: keep the points with these values, as in `run`.

    Returns:
        The stored rows in grid order; a frame with the grid's names and no rows if none is stored.
        Damaged results are named in a warning and left out.
    """
    jobs = [job for job in _jobs(sweep, _chosen(sweep, only, None)) if not job.failure]
    store = Store.of(sweep.name)
    frames = [store.load(job.name, job.point, "it is left out", config=job.config) for job in jobs]
    found = [frame for frame in frames if frame is not None]
    if not found:
        return pd.DataFrame(columns=list(sweep.points()[0]))
    return pd.concat(found, ignore_index=True)


def _chosen(sweep: Sweep, only: Mapping[str, Any] | None, limit: int | None) -> list[Point]:
    points = sweep.points()
    for key, value in (only or {}).items():
        if key not in points[0]:
            raise ValueError(
                f"only= names {key!r}; the grid of {sweep.name!r} has {', '.join(points[0])}"
            )
        wanted = list(value) if isinstance(value, (list, tuple, set, range)) else [value]
        points = [point for point in points if point[key] in wanted or point[key] == value]
        if not points:
            raise ValueError(f"no point of sweep {sweep.name!r} has {key} in {wanted}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 point; got {limit}")
    return points[:limit]


def _jobs(sweep: Sweep, points: list[Point]) -> list[Job]:
    """One job a point; a point whose `configure` raises becomes a job that has failed already."""
    jobs: dict[str, Job] = {}
    failed: list[Job] = []
    for point in points:
        try:
            config = sweep.configure(**point)
            name = fingerprint(config)
        except Exception as error:
            failed.append(Job.failing(point, error))
            continue
        if name in jobs:
            raise ValueError(
                f"sweep {sweep.name!r} gives one config for two points, ({jobs[name].label}) and "
                f"({Job.describe(point)}). Let configure use every name, or list the points "
                "without the repeat."
            )
        jobs[name] = Job(point=_plain(point), config=config, name=name)
    return [*jobs.values(), *failed]


def _plain(point: Point) -> Point:
    """Point values as JSON and CSV keep them: scalars stay, anything else becomes its text."""
    return {
        key: value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
        for key, value in point.items()
    }


def _compute(sweep: Sweep, job: Job, *, fresh: bool) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows of one point, and the record of how they came about."""
    started = time.perf_counter()
    anew = fresh and "fresh" in inspect.signature(sweep.execute).parameters
    executed = sweep.execute(job.config, **({"fresh": True} if anew else {}))
    if getattr(executed, "interrupted", False):
        raise KeyboardInterrupt(f"the run at {job.label} was interrupted; it is not stored")
    frame = _labelled(sweep.measure(executed), job)
    return frame, {
        "sweep": sweep.name,
        "fingerprint": job.name,
        "point": dict(job.point),
        "config": to_dict(job.config),
        "seconds": round(time.perf_counter() - started, 2),
        **circumstances(getattr(executed, "model", None)),
    }


def _labelled(frame: pd.DataFrame, job: Job) -> pd.DataFrame:
    """The measured frame with the point's values as first columns."""
    if not len(frame):
        raise ValueError(f"measure returned no rows at {job.label}")
    clash = [key for key in job.point if key in frame and not (frame[key] == job.point[key]).all()]
    if clash:
        raise ValueError(
            f"measure returned the columns {clash}, names of the grid, with other values; "
            "rename them"
        )
    measured = frame.drop(columns=[key for key in job.point if key in frame])
    index = pd.DataFrame({key: [value] * len(frame) for key, value in job.point.items()})
    return pd.concat([index, measured.reset_index(drop=True)], axis=1)


def _workers(n_jobs: int | None) -> int:
    if n_jobs is None:
        text = os.environ.get("ENGRAM_LAB_JOBS", "1")
        if not text.isdigit():
            raise ValueError(f"ENGRAM_LAB_JOBS must be a number of processes; got {text!r}")
        n_jobs = int(text)
    if n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1 process; got {n_jobs}")
    return n_jobs


def _sweep_error(name: str, failures: Mapping[str, str], *, total: int) -> SweepError:
    lines = [f"  {label}: {trace.strip().splitlines()[-1]}" for label, trace in failures.items()]
    first = next(iter(failures.values())).strip()
    return SweepError(
        f"{len(failures)} of {total} points of sweep {name!r} failed, the others are stored:\n"
        + "\n".join(lines)
        + f"\nTraceback of the first:\n{first}",
        failures,
    )
