"""A hash as plain numbers: as a memory has it, or spoilt on purpose to see what a part is for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.keys import KeyCounts
from engram_lab.memory.layout import multipliers, table_layout

MULTIPLIERS = ("odd", "even", "equal", "small")
LENGTHS = ("primes", "equal", "power_of_two")
SMALL = (1, 3, 5, 7, 11, 13, 17, 19)
"""What small multipliers are: odd numbers of the size a first attempt might choose."""


@dataclass(frozen=True, kw_only=True)
class HashRule:
    """What decides where a key lands.

    Attributes:
        multipliers: one per look-back, the current token's first.
        lengths: rows of every table, `[order - 2][head]`.
    """

    multipliers: tuple[int, ...]
    lengths: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, ngram_hash: NgramHash) -> "HashRule":
        """The rule of one layer of a memory."""
        return cls(
            multipliers=tuple(ngram_hash.multipliers.tolist()),
            lengths=tuple(map(tuple, ngram_hash.primes.tolist())),
        )

    @classmethod
    def from_config(
        cls, config: EngramConfig, layer_id: int, *, canonical_vocab_size: int
    ) -> "HashRule":
        """The rule of one layer of a config, without building a memory.

        Raises:
            ValueError: if `layer_id` has no memory or the vocabulary is empty.
        """
        factors = multipliers(config, layer_id, canonical_vocab_size=canonical_vocab_size)
        return cls(multipliers=factors, lengths=table_layout(config)[layer_id])

    def orders_of(self, counts: Mapping[int, KeyCounts]) -> list[int]:
        """Orders that have tables and were counted."""
        return [order for order in range(2, len(self.lengths) + 2) if order in counts]

    def numbers(self, keys: KeyCounts) -> Int64[np.ndarray, "key"]:
        """The mixed number of every key: xor of token times multiplier; heads divide it."""
        numbers = np.zeros(len(keys), np.int64)
        for lag in range(keys.codec.order):
            numbers ^= keys.codec.column(keys.words, lag) * self.multipliers[lag]
        return numbers

    def spoilt(self, *, multipliers: str = "odd", lengths: str = "primes") -> "HashRule":
        """The same rule with another choice of multipliers or table lengths.

        Args:
            multipliers: "odd" as they are; "even" one less; "equal" the first for every look-back;
                "small" 1, 3, 5, 7 and so on.
            lengths: "primes" as they are; "equal" the first head's for all heads of an order;
                "power_of_two" the nearest power of two, for all heads alike.

        Raises:
            ValueError: if a choice has another name.
        """
        for name, choice, known in (
            ("multipliers", multipliers, MULTIPLIERS),
            ("lengths", lengths, LENGTHS),
        ):
            if choice not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {choice!r}")
        return replace(
            self,
            multipliers=_other_multipliers(self.multipliers, multipliers),
            lengths=tuple(_other_lengths(order, lengths) for order in self.lengths),
        )


def _other_multipliers(factors: Sequence[int], choice: str) -> tuple[int, ...]:
    return {
        "odd": tuple(factors),
        "even": tuple(max(2, factor - 1) for factor in factors),
        "equal": (factors[0],) * len(factors),
        "small": SMALL[: len(factors)],
    }[choice]


def _other_lengths(lengths: Sequence[int], choice: str) -> tuple[int, ...]:
    if choice == "primes":
        return tuple(lengths)
    one = lengths[0] if choice == "equal" else 2 ** round(float(np.log2(lengths[0])))
    return (one,) * len(lengths)
