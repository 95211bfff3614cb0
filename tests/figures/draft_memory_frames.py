"""Frames of memory and draft together for the figure and claim tests: numbers that are known."""

import itertools

import pandas as pd

GAINS = {
    ("plain", "bigram", False): 0,
    ("plain", "dspark", False): 10,
    ("plain", "dspark", True): 15,
    ("plain", "parallel_bigram", False): 5,
    ("memory", "bigram", False): 0,
    ("memory", "dspark", False): 20,
    ("memory", "dspark", True): 20,
    ("memory", "parallel_bigram", False): 5,
}
"""Tokens of a prompt beside its ten rounds."""
DOMAINS = ("structured", "prose")


def cell_rows(*, seeds=(0, 1, 2), prompts: int = 4) -> pd.DataFrame:
    """Ten rounds a prompt of 8 positions each; a position has 8 rows of 32 bytes."""
    rows = []
    for (cell, gain), seed, domain, temperature, sequence in itertools.product(
        GAINS.items(), seeds, DOMAINS, (0.0, 1.0), range(prompts)
    ):
        emitted = 20 + gain + seed + sequence % 2
        reads = cell[0] == "memory" or cell[2]
        rows.append(
            dict(zip(("target", "drafter", "rows"), cell, strict=True))
            | {
                "seed": seed,
                "domain": domain,
                "temperature": temperature,
                "sequence": sequence,
                "rounds": 10,
                "emitted": emitted,
                "row_reads_per_token": 640 / emitted if reads else 0.0,
                "bytes_per_token": 20_480 / emitted if reads else 0.0,
                "wasted_reads_per_token": (640 - 8 * emitted) / emitted if reads else 0.0,
                "target_loss_nats": 3.0 if cell[0] == "plain" else 2.5,
            }
        )
    return pd.DataFrame(rows)


def threshold_rows(*, seeds=(0, 1, 2), saved: float = 100.0) -> pd.DataFrame:
    """Bytes that fall by `saved` a token from threshold 0 to 0.5 where rows are read."""
    rows = [
        {
            "target": target,
            "drafter": "dspark",
            "rows": reads,
            "seed": seed,
            "domain": domain,
            "temperature": 1.0,
            "threshold": threshold,
            "rounds": 40,
            "accepted_length": 3.0 - threshold,
            "row_reads_per_token": 20.0 - 2 * threshold if target == "memory" or reads else 0.0,
            "wasted_reads_per_token": 12.0 - 2 * threshold if target == "memory" or reads else 0.0,
            "bytes_per_token": 800.0 + seed - 2 * saved * threshold
            if target == "memory" or reads
            else 0.0,
        }
        for (target, reads), seed, domain, threshold in itertools.product(
            itertools.product(("plain", "memory"), (False, True)), seeds, DOMAINS, (0.0, 0.5)
        )
    ]
    return pd.DataFrame(rows)
