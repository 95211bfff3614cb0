"""E13, coverage of the hot tier: how many look-ups the most frequent n-grams answer.

Nothing is trained. One half of the text bundle chooses the hot n-grams, the other half is heard;
once in a shipped tokenizer, and in that of DeepSeek V3, whose size the source has.

Source: arXiv:2601.16531 (table 5), secondary.
"""

from dataclasses import dataclass

import pandas as pd

from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.memory.config import EngramConfig
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.keys import KeyCounts, count_keys
from engram_lab.probes.hot_tier import coverage_frame
from engram_lab.scales import pick
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import split_documents
from engram_lab.tokens.released import bundle_documents, load_backend

Counted = tuple[dict[int, KeyCounts], int]
HOT_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
MOST_TOKENS = {"bpe4k": 18_000_000, "deepseek_v3": 13_000_000}
"""Nearly all that the bundle holds."""


@dataclass(frozen=True, kw_only=True)
class CoverageRun:
    """A text of which one half chooses hot keys and the other half is heard.

    Attributes:
        tokenizer: shipped or released.
        tokens: tokens of both halves.
    """

    tokenizer: str
    tokens: int


def two_halves(config: CoverageRun) -> list[Counted]:
    """The distinct n-grams of both halves of a text, and their tokens."""
    compression = VocabCompression.from_tokenizer(load_backend(config.tokenizer))
    halves = split_documents(bundle_documents(config.tokenizer, config.tokens), 0.5)
    window = NgramHash(
        EngramConfig(layer_ids=(1,)),
        1,
        canonical_vocab_size=compression.canonical_vocab_size,
        fill_id=0,
    )
    return [(count_keys(window, half, compression), half.token_count) for half in halves]


def coverage(halves: list[Counted]) -> pd.DataFrame:
    """`probes.hot_tier.coverage_frame` of one half, heard by the other; their tokens beside it."""
    (chooser, tokens), (heard, heard_tokens) = halves
    frame = coverage_frame(chooser, HOT_SIZES, heard=heard)
    return frame.assign(tokens=tokens, heard_tokens=heard_tokens)


def _coverage_grid() -> list[Point]:
    both = tuple(MOST_TOKENS)
    return product(tokenizer=pick(tiny=both[:1], workshop=both, full=both))


def _coverage_run(tokenizer: str) -> CoverageRun:
    most = MOST_TOKENS[tokenizer]
    return CoverageRun(tokenizer=tokenizer, tokens=pick(tiny=20_000, workshop=most, full=most))


ENGRAM_HOT_TIER_COVERAGE = Sweep(
    name="engram_hot_tier_coverage",
    grid=_coverage_grid,
    configure=_coverage_run,
    measure=coverage,
    execute=two_halves,
)
