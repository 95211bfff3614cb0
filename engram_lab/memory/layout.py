"""What follows from a config alone: the lengths of all tables and the multipliers of a layer."""

from functools import cache

import numpy as np

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.primes import next_prime

LAYER_STRIDE = 10_007
"""Distance between the seeds of two layers."""

Layout = tuple[tuple[int, ...], ...]
_MASK64 = 2**64 - 1
_SPLITMIX_GAMMA = 0x9E3779B97F4A7C15


def table_layout(config: EngramConfig) -> dict[int, Layout]:
    """Rows of every table: `layout[layer_id][order - 2][head]`, all distinct primes.

    One set of used primes serves all layers, orders and heads, so the lengths depend on the order
    of `layer_ids`, not on the numbers in it: a model split over machines must build the whole
    layout and then take its part.

    Source: Engram paper, section 2.2; deepseek-ai/Engram engram_demo_v1.py.
    """
    lengths = _prime_lengths(
        len(config.layer_ids), config.engram_vocab_size, config.n_head_per_ngram
    )
    return dict(zip(config.layer_ids, lengths, strict=True))


def layer_rows(config: EngramConfig) -> dict[int, int]:
    """Rows of every layer's matrix, padding rows at its end included."""
    step = config.make_ngram_vocab_size_divisible_by
    totals = {layer: sum(map(sum, primes)) for layer, primes in table_layout(config).items()}
    return {layer: -(-total // step) * step for layer, total in totals.items()}


def table_offsets(layout: Layout) -> tuple[int, ...]:
    """First row of each table of one layer, order-major."""
    lengths = [prime for primes in layout for prime in primes]
    return tuple(sum(lengths[:table]) for table in range(len(lengths)))


def multipliers(
    config: EngramConfig, layer_id: int, *, canonical_vocab_size: int
) -> tuple[int, ...]:
    """Odd multipliers of one layer, one per look-back; the current token takes the first.

    They are odd and below 2^63 / vocabulary, so a product with a valid id cannot overflow int64.

    Args:
        canonical_vocab_size: ids that may be hashed; raw ids count where nothing is compressed.

    Raises:
        ValueError: if `layer_id` has no memory or the vocabulary is empty.

    Source: deepseek-ai/Engram engram_demo_v1.py ("pcg64"); huggingface/transformers
        models/qwen4_exp ("splitmix64").
    """
    if layer_id not in config.layer_ids:
        raise ValueError(
            f"layer_id must be one of EngramConfig.layer_ids {config.layer_ids}; got {layer_id}"
        )
    if canonical_vocab_size < 1:
        raise ValueError(f"canonical_vocab_size must be at least 1; got {canonical_vocab_size}")
    half_bound = max(1, (2**63 - 1) // canonical_vocab_size // 2)
    if config.multiplier_rule == "pcg64":
        generator = np.random.default_rng(config.seed + LAYER_STRIDE * layer_id)
        drawn = generator.integers(0, half_bound, size=config.max_ngram_size, dtype=np.int64)
    else:
        base = config.seed + LAYER_STRIDE * config.layer_ids.index(layer_id)
        steps = range(1, config.max_ngram_size + 1)
        drawn = [_splitmix64(base + _SPLITMIX_GAMMA * step) % half_bound for step in steps]
    return tuple(2 * int(number) + 1 for number in drawn)


@cache
def _prime_lengths(layers: int, budgets: tuple[int, ...], heads: int) -> tuple[Layout, ...]:
    used: set[int] = set()

    def order_lengths(budget: int) -> tuple[int, ...]:
        lengths, current = [], budget - 1
        for _ in range(heads):
            current = next_prime(current)
            while current in used:
                current = next_prime(current)
            used.add(current)
            lengths.append(current)
        return tuple(lengths)

    return tuple(tuple(order_lengths(budget) for budget in budgets) for _ in range(layers))


def _splitmix64(number: int) -> int:
    """One output of the SplitMix64 generator."""
    number = (number + _SPLITMIX_GAMMA) & _MASK64
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK64
    return number ^ (number >> 31)
