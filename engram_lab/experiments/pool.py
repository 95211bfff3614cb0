"""The points of a sweep, computed one after the other or by several processes."""

import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pandas as pd
import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError
from tqdm.auto import tqdm

from engram_lab.experiments.store import Store


@dataclass(frozen=True, kw_only=True)
class Job:
    """One point of a sweep on its way to a result.

    Attributes:
        point: grid values.
        config: what `configure` made of them; None if it raised.
        name: fingerprint of the config, the name of the result.
        failure: traceback, if the point failed before it could begin.
    """

    point: Mapping[str, Any]
    config: Any = None
    name: str = ""
    failure: str = ""

    @staticmethod
    def describe(point: Mapping[str, Any]) -> str:
        """The point in words."""
        return ", ".join(f"{key}={value}" for key, value in point.items())

    @classmethod
    def failing(cls, point: Mapping[str, Any], error: Exception) -> "Job":
        """A point whose config could not be made."""
        return cls(point=point, failure="".join(traceback.format_exception(error)))

    @property
    def label(self) -> str:
        """The point in words."""
        return self.describe(self.point)


Work = Callable[[Job], tuple[pd.DataFrame, Mapping[str, Any]]]  # gives the frame and its record
Outcome = tuple[Job, Literal["stored", "busy", "failed"], str]


def finish_all(
    jobs: Sequence[Job], work: Work, store: Store, *, fresh: bool, workers: int, title: str
) -> dict[str, str]:
    """Compute the jobs that are not stored, and return the tracebacks of those that failed.

    A point that another run holds is put back; when the rest is done its lock is waited for, and
    what the other run stored is taken.

    Args:
        work: computes one job; crosses to other processes if there are several.
        fresh: compute also what is stored.
        workers: processes; 1 computes in this one.
        title: stands before the progress bar.

    Returns:
        From the label of a failed job to its traceback.
    """
    pending = [
        job
        for job in jobs
        if fresh or not store.holds(job.name, job.point, "it is computed again", config=job.config)
    ]
    failures: dict[str, str] = {}
    if not pending:
        return failures
    with tqdm(total=len(pending), desc=title, unit="point", leave=False) as bar:
        for wait in (False, True):
            busy = []
            finish = partial(_finish, work=work, store=store, fresh=fresh, wait=wait)
            for job, state, trace in _outcomes(finish, pending, workers):
                if state == "failed":
                    failures[job.label] = trace
                if state == "busy":
                    busy.append(job)
                else:
                    bar.update()
            pending = busy
    return failures


def _outcomes(
    finish: Callable[[Job], Outcome], jobs: Sequence[Job], workers: int
) -> Iterator[Outcome]:
    if workers == 1 or not jobs:
        yield from map(finish, jobs)
        return
    settings = {key: value for key, value in os.environ.items() if key.startswith("ENGRAM_LAB_")}
    left = {job.name: job for job in jobs}
    try:
        with parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
            pool = Parallel(return_as="generator_unordered")
            for outcome in pool(delayed(_elsewhere)(finish, job, settings) for job in jobs):
                left.pop(outcome[0].name)
                yield outcome
    except TerminatedWorkerError as error:
        reason = (
            f"a worker process died, perhaps for want of memory; take a smaller n_jobs ({error})"
        )
        for job in left.values():
            yield job, "failed", reason.replace("\n", " ")


def _elsewhere(finish: Callable[[Job], Outcome], job: Job, settings: Mapping[str, str]) -> Outcome:
    """Finish a job in a worker process, which may be older than the settings of this run."""
    os.environ.update(settings)
    torch.set_num_threads(1)
    return finish(job)


def _finish(job: Job, *, work: Work, store: Store, fresh: bool, wait: bool) -> Outcome:
    """Compute and store one job, unless another run holds it or has stored it meanwhile."""
    try:
        with store.locked(job.name, wait=wait) as held:
            if not held:
                return job, "busy", ""
            if fresh or not store.holds(job.name, job.point, config=job.config):
                store.save(job.name, *work(job))
    except Exception:
        return job, "failed", traceback.format_exc()
    return job, "stored", ""
