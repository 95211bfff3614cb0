"""What an update of each drafter costs: those of `catalog.dspark_drafters`, one thread, in turn.

    OMP_NUM_THREADS=1 python benchmarks/bench_draft_updates.py

Rows go to `benchmarks/results/draft_updates_<hardware>_<yyyymm>.csv`. Every drafter is trained anew
for `FEW` and for `MORE` updates; `update_ms` is the difference of the medians over the updates
between, so that what is done once does not count. `ratio` is to the update of DSpark. The target
and its answers are those of the scale, trained here if they are not yet.
"""

from dataclasses import replace
from functools import partial

from common import append_rows, measure_together

from engram_lab.configs import fingerprint
from engram_lab.experiments.catalog.dspark_drafters import drafter_run
from engram_lab.training.draft_fit import fit_drafter
from engram_lab.training.fit import load_or_fit

DRAFTERS = ("dspark", "parallel_same", "parallel", "eagle3", "mtp")
FEW, MORE = 2, 12

if __name__ == "__main__":
    runs = {name: drafter_run(name, 0) for name in DRAFTERS}
    target = load_or_fit(runs["dspark"].target)
    cases = {
        (name, steps): partial(
            fit_drafter,
            replace(run, train=replace(run.train, steps=steps)),
            progress=False,
            target_run=target,
        )
        for name, run in runs.items()
        for steps in (FEW, MORE)
    }
    timed = measure_together(cases)
    rows = []
    for name, run in runs.items():
        few, more = timed[name, FEW], timed[name, MORE]
        update = (more["median_ms"] - few["median_ms"]) / (MORE - FEW)
        rows.append({"drafter": name, "run": fingerprint(run), "update_ms": update, **more})
    for row in rows:
        row["ratio"] = row["update_ms"] / rows[0]["update_ms"]
        print(
            row["drafter"], f"{row['update_ms']:.0f} ms an update, {row['ratio']:.2f} of DSpark's"
        )
    append_rows("draft_updates", rows)
