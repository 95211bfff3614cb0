"""How many rounds of a request the serving simulation gets through in a second, by policy and load.

    python benchmarks/bench_serving.py            # a minute or two on one core
    python benchmarks/bench_serving.py --dry      # print, store nothing

Rows go to `benchmarks/results/serving_<hardware>_<yyyymm>.csv`. Rounds are made up: the speed of
the simulation does not depend on what they say, only on how many requests run in a step.
"""

import argparse

import numpy as np
from common import append_rows, measure

from engram_lab.draft.costs import affine
from engram_lab.draft.serving import Engine, Load, simulate
from engram_lab.draft.serving_policies import Policy, standard_policies
from engram_lab.draft.serving_records import AcceptanceRecords

BLOCK = 5
NAMES = ("plain decoding", "whole block", "early stop", "stale capacity")


def made_up(rounds: int = 4_000) -> AcceptanceRecords:
    """Rounds that survive with the chance that their confidences state."""
    generator = np.random.default_rng(0)
    confidences = generator.beta(3, 1, (rounds, BLOCK))
    kept = generator.random((rounds, BLOCK)) < confidences
    return AcceptanceRecords(
        confidences=confidences,
        accepted=kept.cumprod(axis=1).sum(axis=1),
        domain=np.full(rounds, "made up", dtype=object),
    )


def speed(policy: Policy, users: int, steps: int, repeats: int) -> dict:
    """Time of so many steps, and the rounds that are simulated in a second of processor time."""
    costs = affine(base=0.02, per_token=0.02 / 700)
    load = Load(users=users, rounds=steps * users, warmup=0)
    engine, records = Engine(verify_seconds=costs), made_up()
    row = measure(lambda: simulate(records, policy, engine, load), repeats)
    rate = 1e3 * steps * users / row["cpu_ms"]
    return {"case": policy.name, "users": users, "rounds": steps * users, **row} | {
        "rounds_per_s": rate
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dry", action="store_true", help="print, store nothing")
    options = parser.parse_args()
    compared = standard_policies(affine(base=0.02, per_token=0.02 / 700), block_size=BLOCK)
    found = [
        speed(policy, users, options.steps, options.repeats)
        for users in (1, 16, 64, 256)
        for policy in compared
        if policy.name in NAMES
    ]
    for one in found:
        print({name: round(v, 1) if isinstance(v, float) else v for name, v in one.items()})
    if not options.dry:
        append_rows("serving", found)
