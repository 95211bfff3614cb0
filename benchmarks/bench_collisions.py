"""Collisions of 10 M tokens in a memory of V4.1's real size: time, and memory beside the text.

    python benchmarks/bench_collisions.py            # some minutes on one core
    python benchmarks/bench_collisions.py --dry      # print, store nothing

Rows go to `benchmarks/results/collisions_<hardware>_<yyyymm>.csv`. The text is the shipped bundle
in the ids of DeepSeek V4, whose tokenizer must be at hand (see `data/build/fetch_tokenizers.py`);
tables, primes and multipliers are V4.1's: three orders of eight heads with 16 M rows each.
"""

import argparse
import resource
import sys

from common import append_rows, measure

from engram_lab.memory.config import v41
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.keys import count_keys
from engram_lab.probes.collisions import collisions_of_counts
from engram_lab.probes.hash_rules import HashRule
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.released import bundle_documents, load_backend

LAYER, PAD = 1, 2


def peak_mib() -> float:
    """Most memory that this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def analyse(tokens: int, repeats: int) -> list[dict]:
    """Count the n-grams of all orders, and land them in every table of one layer."""
    compression = VocabCompression.from_tokenizer(load_backend("deepseek_v4"))
    documents = bundle_documents("deepseek_v4", tokens)
    vocab = compression.canonical_vocab_size
    # a window rule alone: rows play no part in counting
    window = NgramHash(
        v41(), LAYER, canonical_vocab_size=vocab, fill_id=int(compression.table[PAD])
    )
    rule = HashRule.from_config(v41(), LAYER, canonical_vocab_size=vocab)
    before = peak_mib()
    counts = count_keys(window, documents, compression)
    shares = collisions_of_counts(rule, counts, layer=LAYER)
    extra = peak_mib() - before
    keys = sum(map(len, counts.values()))
    del counts  # so that no repeat holds two

    def whole() -> object:
        return collisions_of_counts(rule, count_keys(window, documents, compression), layer=LAYER)

    size = {"tokens": tokens, "distinct": keys, "tables": len(shares), "rows": int(shares.rows[0])}
    row = {"case": "count and collisions", **size} | measure(whole, repeats, warmup=0)
    return [row | {"extra_mib": extra}]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dry", action="store_true", help="print, store nothing")
    options = parser.parse_args()
    found = analyse(options.tokens, options.repeats)
    for one in found:
        print({name: round(v, 1) if isinstance(v, float) else v for name, v in one.items()})
    if not options.dry:
        append_rows("collisions", found)
