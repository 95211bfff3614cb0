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
CHILD = "import time, torch; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
REPEATS = 7


def import_ms(statement: str) -> float:
    """Milliseconds of one import statement in a new process, torch's own import not counted."""
    command = [sys.executable, "-c", CHILD.format(statement)]
    return 1e3 * float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def row(case: str, statement: str) -> dict[str, object]:
    """One tidy row; the first run, which may still write bytecode, is not counted."""
    import_ms(statement)
    low, median, high = statistics.quantiles(
        times := [import_ms(statement) for _ in range(REPEATS)], n=4
    )
    best = min(times)
    return {
        "case": case,
        "median_ms": median,
        "spread_ms": high - low,
        "best_ms": best,
        "repeats": REPEATS,
    }


if __name__ == "__main__":
    rows = [row(case, statement) for case, statement in CASES.items()]
    for found in rows:
        print(f"{found['case']:20} {found['median_ms']:8.1f} ms (spread {found['spread_ms']:.1f})")
    print(append_rows("import", rows))
