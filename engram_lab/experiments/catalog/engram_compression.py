"""E10, the canonical map: what it merges, what running text saves by it, and what it may lose.

Nothing is trained. The two shipped tokenizers are always at hand. Points of released ones are
stored; to compute them anew, fetch their tokenizers first (`data/build/fetch_tokenizers.py`): a
point whose tokenizer is absent fails and says so, all others are finished. `ENGRAM_COMPRESSION`
counts removed ids by step of the normaliser, `_GROUPS` lists the largest groups, `_TEXT` reads
text, `_PAIRS` finds the spellings that text keeps apart, `_MINIMAL` asks for known pairs,
`_SCRIPTS` for the scripts whose letters are taken for accents.

Source: Engram paper, section 2.2 and appendix C, table 6.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pandas as pd

from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.probes.compression import group_frame, kind_frame
from engram_lab.probes.compression_pairs import minimal_pair_frame, pair_frame
from engram_lab.probes.compression_scripts import script_frame
from engram_lab.probes.compression_text import text_frame
from engram_lab.scales import pick
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.released import RELEASES, SHIPPED, bundle_documents, load_backend

SHOWN_PAIRS = 40
"""Pairs of a tokenizer that are stored: those the text keeps apart most."""


@dataclass(frozen=True, kw_only=True)
class CompressionRun:
    """A tokenizer, and how much text is read in it.

    Attributes:
        tokenizer: shipped or released.
        tokens: tokens of the bundle; 0 where the map alone is looked at.
    """

    tokenizer: str
    tokens: int = 0


class Merging(NamedTuple):
    """What is measured.

    Attributes:
        run: what was asked for.
        compression: the map.
        documents: the text, or None.
    """

    run: CompressionRun
    compression: VocabCompression
    documents: Documents | None


def merge(run: CompressionRun) -> Merging:
    """The map of a run's tokenizer, and its text."""
    documents = bundle_documents(run.tokenizer, run.tokens) if run.tokens else None
    return Merging(run, _map(run.tokenizer), documents)


def kinds(merging: Merging) -> pd.DataFrame:
    """`probes.compression.kind_frame`, with the map's checksum."""
    frame = kind_frame(merging.compression, tokenizer=merging.run.tokenizer)
    return frame.assign(sha256=merging.compression.sha256)


def groups(merging: Merging) -> pd.DataFrame:
    """`probes.compression.group_frame`."""
    return group_frame(merging.compression, tokenizer=merging.run.tokenizer)


def text(merging: Merging) -> pd.DataFrame:
    """`probes.compression_text.text_frame`."""
    return text_frame(merging.compression, merging.documents, tokenizer=merging.run.tokenizer)


def pairs(merging: Merging) -> pd.DataFrame:
    """The spellings of `probes.compression_pairs.pair_frame` that text keeps apart most."""
    least = pick(tiny=10, workshop=200, full=500)
    frame = pair_frame(
        merging.compression, merging.documents, tokenizer=merging.run.tokenizer, least=least
    )
    return frame.head(SHOWN_PAIRS).assign(pairs=len(frame), least=least)


def minimal_pairs(merging: Merging) -> pd.DataFrame:
    """`probes.compression_pairs.minimal_pair_frame` of its own list."""
    backend = load_backend(merging.run.tokenizer)
    return minimal_pair_frame(merging.compression, backend, tokenizer=merging.run.tokenizer)


def scripts(merging: Merging) -> pd.DataFrame:
    """`probes.compression_scripts.script_frame`."""
    return script_frame(merging.compression, tokenizer=merging.run.tokenizer)


@lru_cache(maxsize=2)
def _map(tokenizer: str) -> VocabCompression:
    return VocabCompression.from_tokenizer(load_backend(tokenizer))


def _tokenizers() -> list[Point]:
    every = (*SHIPPED, *RELEASES)
    return product(tokenizer=pick(tiny=SHIPPED[:1], workshop=every, full=every))


def _alone(tokenizer: str) -> CompressionRun:
    return CompressionRun(tokenizer=tokenizer)


def _reading(tokenizer: str) -> CompressionRun:
    tokens = pick(tiny=10_000, workshop=2_000_000, full=10_000_000)
    return CompressionRun(tokenizer=tokenizer, tokens=tokens)


def _sweep(
    name: str,
    configure: Callable[[str], CompressionRun],
    measure: Callable[[Merging], pd.DataFrame],
) -> Sweep:
    return Sweep(name=name, grid=_tokenizers, configure=configure, measure=measure, execute=merge)


ENGRAM_COMPRESSION = _sweep("engram_compression", _alone, kinds)
ENGRAM_COMPRESSION_GROUPS = _sweep("engram_compression_groups", _alone, groups)
ENGRAM_COMPRESSION_TEXT = _sweep("engram_compression_text", _reading, text)
ENGRAM_COMPRESSION_PAIRS = _sweep("engram_compression_pairs", _reading, pairs)
ENGRAM_COMPRESSION_MINIMAL = _sweep("engram_compression_minimal", _alone, minimal_pairs)
ENGRAM_COMPRESSION_SCRIPTS = _sweep("engram_compression_scripts", _alone, scripts)
