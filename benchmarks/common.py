"""Time functions, and append the timings and what they were measured on to `benchmarks/results/`.

A benchmark script stands beside this file, is run as `python benchmarks/bench_<topic>.py`, and
reads:

    from common import append_rows, measure, measure_together

    row = {"case": "hash one batch", "seq": 128} | measure(lambda: ngram_hash(ids), repeats=7)
    append_rows("addresses", [row])
"""

import datetime
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import torch

RESULTS = Path(__file__).parent / "results"


def measure(fn: Callable[[], object], repeats: int = 5, *, warmup: int = 1) -> dict[str, float]:
    """Median and spread of the wall time of `fn()`.

    Args:
        fn: what is timed; called `warmup + repeats` times.
        repeats: timed calls, at least 5.
        warmup: calls before the first timed one.

    Returns:
        `median_ms`, `spread_ms` (distance between the quartiles), `best_ms`, `cpu_ms` (median
        processor time of this process, which other programs disturb less) and `repeats`.
    """
    return measure_together({"fn": fn}, repeats, warmup=warmup)["fn"]


def measure_together(
    fns: Mapping[str, Callable[[], object]], repeats: int = 5, *, warmup: int = 1
) -> dict[str, dict[str, float]]:
    """The `measure` of several functions, called in turn so that a busy machine disturbs all alike.

    Use it where two timings are divided by each other.
    """
    if repeats < 5:
        raise ValueError(f"a benchmark needs at least 5 repeats for its spread; got {repeats}")
    for _ in range(warmup):
        for fn in fns.values():
            fn()
    seconds: dict[str, list[float]] = {name: [] for name in fns}
    busy: dict[str, list[float]] = {name: [] for name in fns}
    for _ in range(repeats):
        for name, fn in fns.items():
            _synchronise()
            start, busy_start = time.perf_counter(), time.process_time()
            fn()
            _synchronise()
            seconds[name].append(time.perf_counter() - start)
            busy[name].append(time.process_time() - busy_start)
    return {name: _summary(seconds[name], busy[name]) for name in fns}


def append_rows(topic: str, rows: Sequence[Mapping[str, object]]) -> Path:
    """Append rows, each with device, versions, threads, to `<topic>_<hardware>_<yyyymm>.csv`.

    Columns that earlier rows lack are added to the file; the file is replaced in one step.
    """
    provenance = machine()
    month = datetime.datetime.now(datetime.UTC).strftime("%Y%m")
    path = RESULTS / f"{topic}_{_slug(provenance['device'])}_{month}.csv"
    frame = pd.DataFrame([{**row, **provenance} for row in rows])
    if path.exists():
        frame = pd.concat([pd.read_csv(path), frame], ignore_index=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    frame.to_csv(partial, index=False, float_format="%.6g")
    os.replace(partial, path)
    return path


def machine() -> dict[str, object]:
    """What a timing depends on beside the code: device, cores, threads, versions, other programs.

    `load` is the number of programs that wanted a core in the last minute; well above the threads
    of the benchmark, only ratios and processor times mean much.
    """
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }


def _summary(seconds: list[float], busy: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(seconds, n=4)
    return {
        "median_ms": 1e3 * median,
        "spread_ms": 1e3 * (high - low),
        "best_ms": 1e3 * min(seconds),
        "cpu_ms": 1e3 * statistics.median(busy),
        "repeats": len(seconds),
    }


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _cpu_name() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def _slug(text: object) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-")
