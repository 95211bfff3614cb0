"""NgramHash: canonical ids to addresses, by odd multipliers, xor and distinct prime lengths."""

from functools import cache

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.history import History, MemoryContext, look_back, read_history
from engram_lab.memory.primes import next_prime
from engram_lab.memory.remainder import Divisors
from engram_lab.memory.state import MemoryState

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


class NgramHash(nn.Module):
    """Addresses of the suffix n-grams of one layer.

    Attributes:
        multipliers: one odd multiplier per look-back.
        primes: rows of every table, `[order][head]`.
        special_ids: the canonical fill id and eos id; -1 where there is no eos.
    """

    def __init__(
        self,
        config: EngramConfig,
        layer_id: int,
        *,
        canonical_vocab_size: int,
        fill_id: int,
        eos_id: int | None = None,
    ):
        """Hash of layer `layer_id`.

        Args:
            canonical_vocab_size: ids that may come in; the multipliers depend on it.
            fill_id: canonical id that stands where a window has no token (the image of the
                tokenizer's own pad id).
            eos_id: canonical id that ends a window, needed by `reset="eos"` and `fill="eos"`.

        Raises:
            ValueError: if a special id is missing or outside the vocabulary, or `layer_id` has no
                memory.
        """
        super().__init__()
        self.config, self.layer_id = config, layer_id
        self.canonical_vocab_size = canonical_vocab_size
        self._special_ids = self._checked_special_ids(fill_id, eos_id)
        for name, numbers in self._constants().items():
            self.register_buffer(name, torch.tensor(numbers, dtype=torch.int64))
        self._divisors: Divisors | None = None
        self._divisors_of: tuple[Tensor | None, int] = (None, 0)

    def reset_buffers(self) -> None:
        """Write the constants that follow from the config, after a build on the meta device."""
        for name, numbers in self._constants().items():
            getattr(self, name).copy_(torch.tensor(numbers, dtype=torch.int64))

    def check_constants(self) -> None:
        """Compare the constants with the rule, after a checkpoint was loaded.

        Raises:
            ValueError: if one is not what config, vocabulary size and special ids give.
        """
        for name, numbers in self._constants().items():
            buffer = getattr(self, name)
            if buffer.tolist() != _as_list(numbers):
                raise ValueError(
                    f"{name} of memory layer {self.layer_id} must follow from its config and "
                    f"canonical_vocab_size={self.canonical_vocab_size}: {numbers}; the checkpoint "
                    f"holds {buffer.tolist()}. Load it with the config and token map it was "
                    "trained with."
                )

    def addresses(
        self,
        canonical_ids: Int64[Tensor, "batch seq"],
        *,
        context: MemoryContext | None = None,
        state: MemoryState | None = None,
    ) -> Int64[Tensor, "batch seq table"]:
        """Address of every suffix n-gram in every table, order-major.

        Table t = (order, head) holds prime_t rows; the address is the xor of token times odd
        multiplier over the n-gram, modulo prime_t. Where a window has no token it holds the fill
        id. Exact in int64: the multipliers are bounded so that no product overflows.

        Args:
            context: documents and mask of these positions.
            state: what decoding remembers, already extended by these positions.

        Raises:
            ValueError: if the id of a live position is negative or not below
                `canonical_vocab_size`.

        Source: Engram paper, "Sparse retrieval via hashed n-grams"; deepseek-ai/Engram
            engram_demo_v1.py.
        """
        back = self.config.max_ngram_size - 1
        return self.addresses_of(read_history(canonical_ids, back, context=context, state=state))

    def addresses_of(self, history: History) -> Int64[Tensor, "batch seq table"]:
        """Addresses of the chunk at the end of `history`.

        Raises:
            ValueError: if the id of a live position is negative or not below
                `canonical_vocab_size`.
        """
        self._check_ids(history)
        window = look_back(history, self.config, self.special_ids)
        factors = self.multipliers.unbind()
        mixed, mixes = window[0] * factors[0], []
        for tokens, factor in zip(window[1:], factors[1:], strict=True):
            mixed = mixed ^ (tokens * factor)
            mixes.append(mixed)
        numbers = torch.stack(mixes, dim=-1)  # batch seq order
        addresses = self._prepared_divisors().remainders(numbers.flatten(0, 1))
        return addresses.unflatten(0, numbers.shape[:2])

    forward = addresses

    def _constants(self) -> dict[str, tuple]:
        """The numbers every buffer must hold."""
        factors = multipliers(
            self.config, self.layer_id, canonical_vocab_size=self.canonical_vocab_size
        )
        primes = table_layout(self.config)[self.layer_id]
        return {"multipliers": factors, "primes": primes, "special_ids": self._special_ids}

    def _checked_special_ids(self, fill_id: int, eos_id: int | None) -> tuple[int, int]:
        if eos_id is None and "eos" in (self.config.reset, self.config.fill):
            raise ValueError(
                "eos_id is needed by EngramConfig.reset='eos' and fill='eos'; got None"
            )
        fill_id = eos_id if self.config.fill == "eos" else fill_id
        for name, number in (("fill_id", fill_id), ("eos_id", eos_id)):
            if number is not None and not 0 <= number < self.canonical_vocab_size:
                raise ValueError(
                    f"{name} must lie in 0..{self.canonical_vocab_size - 1} "
                    f"(canonical_vocab_size={self.canonical_vocab_size}); got {number}"
                )
        return fill_id, -1 if eos_id is None else eos_id

    def _prepared_divisors(self) -> Divisors:
        """Divisors of the buffer as it is now: loading or moving a module changes it."""
        primes = self.primes
        version = 0 if primes.is_inference() else primes._version
        if self._divisors_of[0] is not primes or self._divisors_of[1] != version:
            self._divisors, self._divisors_of = Divisors(primes), (primes, version)
        return self._divisors

    def _check_ids(self, history: History) -> None:
        ids = history.chunk(history.ids)
        if ids.is_meta or ids.numel() == 0:
            return
        low, high = torch.aminmax(ids)
        if low >= 0 and high < self.canonical_vocab_size:
            return
        wrong = (ids < 0) | (ids >= self.canonical_vocab_size)
        if history.live is not None and self.config.padding != "hashed":
            wrong &= history.chunk(history.live)
        if wrong.any():
            raise ValueError(
                f"canonical ids must lie in 0..{self.canonical_vocab_size - 1} "
                f"(canonical_vocab_size={self.canonical_vocab_size}); got {ids[wrong][0].item()}. "
                "Mask padding with attention_mask; labels such as -100 are no ids."
            )


def _as_list(numbers: tuple) -> list:
    return [_as_list(entry) if isinstance(entry, tuple) else entry for entry in numbers]


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
