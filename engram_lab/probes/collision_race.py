"""Prediction races count: any hash under any number of made-up n-grams, in some tenths of a second.

The n-grams are distinct pairs of ids from a small vocabulary, so that turned pairs ("a b" and "b
a") and doubled ones occur; their frequencies follow Zipf's law.
"""

import math
from functools import lru_cache

import numpy as np
import pandas as pd

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.keys import KeyCodec, KeyCounts
from engram_lab.probes.collisions import joint_frame
from engram_lab.probes.hash_rules import HashRule
from engram_lab.probes.interference import look_up_interference
from engram_lab.probes.row_loads import evenness_frame, load_frame

MOST_KEYS = 500_000


def race_frame(
    *,
    keys: int = 20_000,
    rows: int = 50_000,
    heads: int = 4,
    multipliers: str = "odd",
    lengths: str = "primes",
    seed: int = 0,
) -> pd.DataFrame:
    """Company in the first 1, 2, ... heads, predicted and counted, for made-up n-grams.

    Args:
        keys: distinct n-grams.
        rows: rows wished per table; every head takes the next unused prime.
        heads: hash heads.
        multipliers: "odd" as the memory draws them, "even", "equal" or "small".
        lengths: "primes" as the memory chooses them, "equal" or "power_of_two".
        seed: of the n-grams and of the hash.

    Returns:
        One row per number of heads, with the columns of `probes.collisions.joint_frame`, and rows,
        mean_interference, cleanest_interference and clean_share of
        `probes.interference.look_up_interference`.

    Raises:
        ValueError: if a number is out of range, or a choice has another name.
    """
    rule, counts = _racers(keys, rows, heads, multipliers, lengths, seed)
    joint = joint_frame(rule, counts, layer=0)
    suffered = look_up_interference(rule, counts, layer=0)
    return joint.merge(suffered, on=["layer", "order", "heads"])


def race_loads(
    *,
    keys: int = 20_000,
    rows: int = 50_000,
    heads: int = 4,
    multipliers: str = "odd",
    lengths: str = "primes",
    seed: int = 0,
) -> pd.DataFrame:
    """Keys per row of the same tables: `probes.row_loads.load_frame` and each table's deviation.

    Arguments and errors are those of `race_frame`.
    """
    rule, counts = _racers(keys, rows, heads, multipliers, lengths, seed)
    even = evenness_frame(rule, counts, layer=0)
    frame = load_frame(rule, counts, layer=0).merge(even, on=["layer", "order", "head"])
    return frame.assign(multipliers=multipliers, lengths=lengths)


def made_up_keys(keys: int, seed: int = 0) -> dict[int, KeyCounts]:
    """Distinct pairs of ids with Zipf frequencies, a quarter of all pairs of their vocabulary.

    Args:
        keys: how many, up to `MOST_KEYS`.
        seed: of the choice.

    Raises:
        ValueError: if the number is out of range.
    """
    if not 1 <= keys <= MOST_KEYS:
        raise ValueError(f"keys must lie in 1..{MOST_KEYS}; got {keys}")
    generator = np.random.default_rng(seed)
    vocab = 2 * math.isqrt(keys) + 2
    words = np.sort(generator.choice(vocab**2, size=keys, replace=False))
    counts = 1 + keys // (1 + generator.permutation(keys))
    codec = KeyCodec(order=2, vocab_size=vocab)
    return {2: KeyCounts(codec=codec, words=(words,), counts=counts)}


@lru_cache(maxsize=4)
def _racers(
    keys: int, rows: int, heads: int, multipliers: str, lengths: str, seed: int
) -> tuple[HashRule, dict[int, KeyCounts]]:
    counts = made_up_keys(keys, seed)
    config = EngramConfig(
        layer_ids=(0,),
        max_ngram_size=2,
        engram_vocab_size=(rows,),
        n_head_per_ngram=heads,
        n_embed_per_ngram=heads,
        seed=seed,
    )
    vocab = counts[2].codec.vocab_size
    rule = HashRule.from_config(config, 0, canonical_vocab_size=vocab)
    return rule.spoilt(multipliers=multipliers, lengths=lengths), counts
