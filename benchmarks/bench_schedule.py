"""Deciding how many drafts to verify: time of every length rule, and of a calibration.

    python benchmarks/bench_schedule.py            # seconds on one core
    python benchmarks/bench_schedule.py --dry      # print, store nothing

Rows go to `benchmarks/results/schedule_<hardware>_<yyyymm>.csv`. A decision has to fit between two
steps of an engine: for 256 requests with 7 drafts each the aim is below 1 ms.
"""

import argparse

import numpy as np
from common import append_rows, measure

from engram_lab.draft.calibration import Calibrator
from engram_lab.draft.costs import roofline
from engram_lab.draft.oracle import GlobalSearch
from engram_lab.draft.schedule import FixedLength, PrefixScheduler, Threshold, TopK

REQUESTS, POSITIONS, ROUNDS = 256, 7, 2_000


def analyse(repeats: int) -> list[dict]:
    """Time the rules on confidences as a drafter gives them, and the fit of temperatures."""
    generator = np.random.default_rng(0)
    logits = generator.normal(1.5, 1.5, (ROUNDS, POSITIONS))
    kept = generator.random(logits.shape) < 1 / (1 + np.exp(-logits / 1.5))
    accepted = np.cumprod(kept, axis=1).sum(1)
    calibrator = Calibrator("sequential").fit(logits, accepted)
    confidences = calibrator.apply(logits[:REQUESTS])
    costs = roofline(base=0.02, free_tokens=512)
    rules = (
        FixedLength(length=POSITIONS),
        Threshold(threshold=0.5),
        PrefixScheduler(costs=costs),
        TopK(costs=costs),
        GlobalSearch(costs=costs),
    )
    size = {"requests": REQUESTS, "positions": POSITIONS}
    rows = []
    for rule in rules:
        chosen = {"case": rule.name, **size, "verified": int(rule(confidences).sum()) + REQUESTS}
        rows.append(chosen | measure(lambda rule=rule: rule(confidences), repeats, warmup=5))
    apply = measure(lambda: calibrator.apply(logits[:REQUESTS]), repeats, warmup=5)
    rows.append({"case": "apply temperatures", **size} | apply)
    fit = measure(lambda: Calibrator("sequential").fit(logits, accepted), max(repeats // 20, 5))
    rows.append({"case": "fit temperatures", "requests": ROUNDS, "positions": POSITIONS} | fit)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--dry", action="store_true", help="print, store nothing")
    options = parser.parse_args()
    found = analyse(options.repeats)
    for one in found:
        print({name: round(v, 3) if isinstance(v, float) else v for name, v in one.items()})
    if not options.dry:
        append_rows("schedule", found)
