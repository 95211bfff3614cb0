"""Seconds that importing engram_lab adds to a fresh interpreter that has torch already."""

import statistics
import subprocess
import sys

from common import append_rows

CASES = {
    "import engram_lab": "import engram_lab",
    "the memory layer": "from engram_lab import Engram",
    "the language model": "from engram_lab import EngramLM",
}
CHILD = """
import time, torch
wall, cpu = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""
REPEATS = 7


def import_ms(statement: str) -> tuple[float, float]:
    """Wall and processor milliseconds of one import in a new process that has torch already."""
    command = [sys.executable, "-c", CHILD.format(statement)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    wall, cpu = (1e3 * float(number) for number in printed.split())
    return wall, cpu


def row(case: str, statement: str) -> dict[str, object]:
    """One tidy row; a first run, which may still write bytecode, is not counted.

    The processor time is beside the wall time because it suffers less from a busy machine.
    """
    import_ms(statement)
    walls, cpus = zip(*(import_ms(statement) for _ in range(REPEATS)), strict=True)
    low, median, high = statistics.quantiles(walls, n=4)
    return {
        "case": case,
        "median_ms": median,
        "spread_ms": high - low,
        "best_ms": min(walls),
        "median_cpu_ms": statistics.median(cpus),
        "repeats": REPEATS,
    }


if __name__ == "__main__":
    rows = [row(case, statement) for case, statement in CASES.items()]
    for found in rows:
        print(
            f"{found['case']:20} {found['median_ms']:8.1f} ms (spread {found['spread_ms']:.1f})",
            f"{found['median_cpu_ms']:8.1f} ms of processor",
        )
    print(append_rows("import", rows))
