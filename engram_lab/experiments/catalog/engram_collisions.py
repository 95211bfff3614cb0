"""E12, collisions: how many n-grams share rows, whom it hurts, what several heads repair.

Nothing is trained: the n-grams of the text bundle are counted and hashed. `ENGRAM_COLLISIONS` goes
through table sizes, `_V41` takes V4.1's own map, multipliers and primes at real size, `_FREQUENCY`
asks which keys suffer, `_LOADS` spoils the hash on purpose, `_HEADS` spends one table on 1 to 16
heads, `_PURITY` asks whether n-grams that share a row want the same of it.

Source: Engram paper, section 2.2 (hashed n-grams, several heads).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import pandas as pd

from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.memory.config import EngramConfig, v41
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.keys import KeyCounts, count_keys
from engram_lab.probes.collisions import collisions_of_counts, joint_frame
from engram_lab.probes.hash_rules import LENGTHS, MULTIPLIERS, HashRule
from engram_lab.probes.interference import interference_frame, look_up_interference
from engram_lab.probes.purity import purity_frame
from engram_lab.probes.row_loads import evenness_frame, load_frame
from engram_lab.scales import pick
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.released import bundle_documents, load_backend

PAD_IDS = {"deepseek_v4": 2}
"""Pad id of tokenizers whose pad is not id 0."""
SPLITS = ("width", "rows")


@dataclass(frozen=True, kw_only=True)
class CollisionRun:
    """A text and the hash that its n-grams go through.

    Attributes:
        tokenizer: of the text, shipped or released.
        tokens: how much of the bundle is read.
        memory: sizes and seed of the hash.
        layer: block whose multipliers and primes are taken.
        multipliers: "odd" as they are, or spoilt (`probes.hash_rules`).
        lengths: "primes" as they are, or spoilt.
    """

    tokenizer: str
    tokens: int
    memory: EngramConfig
    layer: int = 1
    multipliers: str = "odd"
    lengths: str = "primes"


class Landing(NamedTuple):
    """What is measured: a hash and the keys that go through it.

    Attributes:
        run: what was asked for.
        rule: the hash.
        counts: distinct keys by order.
    """

    run: CollisionRun
    rule: HashRule
    counts: dict[int, KeyCounts]


def land(run: CollisionRun) -> Landing:
    """Count the keys of a run's text, and take the hash they go through."""
    compression, counts = _counted(run.tokenizer, run.tokens, run.memory.max_ngram_size)
    rule = HashRule.from_config(
        run.memory, run.layer, canonical_vocab_size=compression.canonical_vocab_size
    )
    spoilt = rule.spoilt(multipliers=run.multipliers, lengths=run.lengths)
    return Landing(run, spoilt, counts)


def table_shares(landing: Landing) -> pd.DataFrame:
    """`probes.collisions.collisions_of_counts` of a landing, and its text (tokenizer, tokens)."""
    frame = collisions_of_counts(landing.rule, landing.counts, layer=landing.run.layer)
    return frame.assign(tokenizer=landing.run.tokenizer, tokens=landing.run.tokens)


def by_frequency(landing: Landing) -> pd.DataFrame:
    """`probes.interference.interference_frame` of a landing, for 1, 2, 4, ... heads."""
    heads = [number for number in (1, 2, 4, 8) if number <= landing.run.memory.n_head_per_ngram]
    frame = interference_frame(landing.rule, landing.counts, layer=landing.run.layer, heads=heads)
    return frame.assign(tokenizer=landing.run.tokenizer, tokens=landing.run.tokens)


def loads(landing: Landing) -> pd.DataFrame:
    """Histogram of the loads of a landing, each table's deviation from evenness beside it."""
    frame = load_frame(landing.rule, landing.counts, layer=landing.run.layer)
    even = evenness_frame(landing.rule, landing.counts, layer=landing.run.layer)
    return frame.merge(even, on=["layer", "order", "head"])


def all_heads(landing: Landing) -> pd.DataFrame:
    """Company and interference of a landing with all its heads: one row per order."""
    layer, heads = landing.run.layer, landing.run.memory.n_head_per_ngram
    joint = joint_frame(landing.rule, landing.counts, layer=layer)
    suffered = look_up_interference(landing.rule, landing.counts, layer=layer, heads=[heads])
    frame = joint[joint["heads"] == heads].merge(suffered, on=["layer", "order", "heads"])
    return frame.drop(columns="heads")  # a name of the grid


def purity(landing: Landing) -> pd.DataFrame:
    """`probes.purity.purity_frame` of a landing's text."""
    run = landing.run
    documents, compression = _text(run.tokenizer, run.tokens)
    least = pick(tiny=2, workshop=20, full=20)
    return purity_frame(landing.rule, documents, compression, layer=run.layer, least=least)


@lru_cache(maxsize=1)
def _text(tokenizer: str, tokens: int) -> tuple[Documents, VocabCompression]:
    compression = VocabCompression.from_tokenizer(load_backend(tokenizer))
    return bundle_documents(tokenizer, tokens), compression


@lru_cache(maxsize=1)
def _counted(
    tokenizer: str, tokens: int, max_ngram_size: int
) -> tuple[VocabCompression, dict[int, KeyCounts]]:
    """Keys depend on text, map and window rules, not on the sizes of tables."""
    documents, compression = _text(tokenizer, tokens)
    config = _memory((1,) * (max_ngram_size - 1), heads=1)
    pad_id = int(compression.table[PAD_IDS.get(tokenizer, 0)])
    window = NgramHash(
        config, 1, canonical_vocab_size=compression.canonical_vocab_size, fill_id=pad_id
    )
    return compression, count_keys(window, documents, compression)


def _memory(rows: Sequence[int], *, heads: int) -> EngramConfig:
    return EngramConfig(
        layer_ids=(1,),
        max_ngram_size=len(rows) + 1,
        engram_vocab_size=tuple(rows),
        n_head_per_ngram=heads,
        n_embed_per_ngram=heads,
    )


def _run(row_budget: int, *, heads: int = 8, **choices: str) -> CollisionRun:
    """The n-grams of orders 2 and 3 of the larger shipped tokenizer, in tables of one size."""
    return CollisionRun(
        tokenizer=pick(tiny="bpe4k", workshop="bpe16k", full="bpe16k"),
        tokens=pick(tiny=10_000, workshop=2_000_000, full=14_000_000),
        memory=_memory((row_budget, row_budget), heads=heads),
        **choices,
    )


def _real(layer: int) -> CollisionRun:
    """V4.1's own hash on the text bundle; at scale tiny on a little text in a shipped tokenizer."""
    return CollisionRun(
        tokenizer=pick(tiny="bpe4k", workshop="deepseek_v4", full="deepseek_v4"),
        tokens=pick(tiny=10_000, workshop=10_000_000, full=13_000_000),
        memory=pick(
            tiny=replace(v41(), engram_vocab_size=(16_000,) * 3), workshop=v41(), full=v41()
        ),
        layer=layer,
    )


def _spoilt(multipliers: str, lengths: str) -> CollisionRun:
    return _run(_middle(), heads=4, multipliers=multipliers, lengths=lengths)


def _spent(split: str, heads: int) -> CollisionRun:
    """One budget of parameters: heads share the width of a row, or the rows of a table.

    A single head is the same in both.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}")
    return _run(_middle() if split == "width" else _middle() // heads, heads=heads)


def _middle() -> int:
    """Rows of a table: about one for every distinct bigram of the text."""
    return pick(tiny=4_096, workshop=524_288, full=2_097_152)


def _sizes() -> list[Point]:
    sizes = (4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)
    return product(row_budget=pick(tiny=(1_024, 16_384), workshop=sizes, full=sizes))


def _two_sizes() -> list[Point]:
    return product(row_budget=pick(tiny=(4_096,), workshop=(32_768, 262_144), full=(262_144,)))


def _heads() -> list[Point]:
    several = pick(tiny=(4,), workshop=(2, 4, 8, 16), full=(2, 8))
    return product(split=("width",), heads=(1, *several)) + product(split=("rows",), heads=several)


ENGRAM_COLLISIONS = Sweep(
    name="engram_collisions", grid=_sizes, configure=_run, measure=table_shares, execute=land
)
ENGRAM_COLLISIONS_V41 = Sweep(
    name="engram_collisions_v41",
    grid={"layer": (1, 14)},
    configure=_real,
    measure=table_shares,
    execute=land,
)
ENGRAM_COLLISIONS_FREQUENCY = Sweep(
    name="engram_collisions_frequency",
    grid=_two_sizes,
    configure=_run,
    measure=by_frequency,
    execute=land,
)
ENGRAM_COLLISIONS_LOADS = Sweep(
    name="engram_collisions_loads",
    grid={"lengths": LENGTHS, "multipliers": MULTIPLIERS},
    configure=_spoilt,
    measure=loads,
    execute=land,
)
ENGRAM_COLLISIONS_HEADS = Sweep(
    name="engram_collisions_heads", grid=_heads, configure=_spent, measure=all_heads, execute=land
)
ENGRAM_COLLISIONS_PURITY = Sweep(
    name="engram_collisions_purity",
    grid=_two_sizes,
    configure=_run,
    measure=purity,
    execute=land,
)
