"""NgramHash: canonical ids to addresses, by odd multipliers, xor and distinct prime lengths."""

from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.history import History, MemoryContext, look_back, read_history
from engram_lab.memory.layout import multipliers, table_layout
from engram_lab.memory.remainder import Divisors
from engram_lab.memory.state import MemoryState


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
        self._prepared: Prepared | None = None

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
        history = self.history(
            canonical_ids, self.config.max_ngram_size - 1, context=context, state=state
        )
        return self.addresses_of(history)

    def history(
        self,
        canonical_ids: Int64[Tensor, "batch seq"],
        back: int,
        *,
        context: MemoryContext | None = None,
        state: MemoryState | None = None,
    ) -> History:
        """These positions behind `back` earlier ones, as `addresses_of` reads them."""
        fill_id = self.prepared.special_ids[0]
        return read_history(canonical_ids, back, context=context, state=state, fill_id=fill_id)

    def addresses_of(self, history: History) -> Int64[Tensor, "batch seq table"]:
        """Addresses of the chunk at the end of `history`.

        Raises:
            ValueError: if the id of a live position is negative or not below
                `canonical_vocab_size`.
        """
        constants = self.prepared
        window = look_back(history, self.config, constants.special_ids)
        self._check_ids(window[0])
        shape = (*window[0].shape, self.config.table_count)
        if constants.divisors.fast and window[0].device.type == "cpu":
            # NumPy, whose calls cost a third of torch's on arrays this small
            numbers = _mixed_arrays([tokens.numpy() for tokens in window], constants.multipliers)
            return torch.from_numpy(constants.divisors.of_array(numbers).reshape(shape))
        numbers = _mixed(window, constants.multipliers)
        return constants.divisors.remainders(numbers.flatten(0, 1)).view(shape)

    forward = addresses

    @property
    def prepared(self) -> "Prepared":
        """The constants as the buffers hold them now; loading or moving the module changes them."""
        names = self._buffers  # a look-up per name that nn.Module would make slow
        buffers = (names["multipliers"], names["primes"], names["special_ids"])
        if self._prepared is None or not self._prepared.made_of(*buffers):
            self._prepared = Prepared(buffers, self._constants())
        return self._prepared

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

    def _check_ids(self, ids: Tensor) -> None:
        """Refuse ids outside the vocabulary; what the mask hides was replaced by the fill id."""
        if ids.is_meta or ids.numel() == 0:
            return
        if ids.device.type == "cpu":  # as unsigned numbers, negative ids are the largest
            highest = int(ids.numpy().view(np.uint64).max())
        else:
            highest = int(torch.where(ids < 0, 2**62, ids).max())
        if highest < self.canonical_vocab_size:
            return
        wrong = ids[(ids < 0) | (ids >= self.canonical_vocab_size)][0].item()
        raise ValueError(
            f"canonical ids must lie in 0..{self.canonical_vocab_size - 1} "
            f"(canonical_vocab_size={self.canonical_vocab_size}); got {wrong}. "
            "Mask padding with attention_mask; labels such as -100 are no ids."
        )


class Prepared:
    """The constants of one hash as Python numbers, read once and not in every pass.

    Attributes:
        multipliers: one per look-back.
        special_ids: fill id and eos id.
        divisors: the primes, ready to divide by.
    """

    def __init__(self, buffers: tuple[Tensor, Tensor, Tensor], rule: dict[str, tuple]):
        """Read the buffers `(multipliers, primes, special_ids)`; those on meta stand for `rule`."""
        factors, primes, special_ids = buffers
        meta = factors.is_meta
        self.multipliers = rule["multipliers"] if meta else tuple(factors.tolist())
        self.special_ids = rule["special_ids"] if meta else tuple(special_ids.tolist())
        self.divisors = Divisors(primes)
        self._buffers, self._versions = buffers, _versions(*buffers)

    def made_of(self, multipliers: Tensor, primes: Tensor, special_ids: Tensor) -> bool:
        """Whether these are the buffers that were read, unchanged since."""
        mine = self._buffers
        same = mine[0] is multipliers and mine[1] is primes and mine[2] is special_ids
        return same and self._versions == _versions(multipliers, primes, special_ids)


def _mixed(window: list[Tensor], multipliers: tuple[int, ...]) -> Int64[Tensor, "batch seq order"]:
    """The running xor of token times multiplier after each order from 2 on."""
    products = [tokens * factor for tokens, factor in zip(window, multipliers, strict=True)]
    return torch.stack(list(accumulate(products, torch.bitwise_xor))[1:], dim=-1)


def _mixed_arrays(window: list[np.ndarray], multipliers: tuple[int, ...]) -> np.ndarray:
    """The same in NumPy, as `[token, order]`."""
    numbers = np.empty((*window[0].shape, len(window) - 1), dtype=np.int64)
    mixed = window[0] * multipliers[0]
    for lag in range(1, len(window)):
        product = window[lag] * multipliers[lag]
        mixed = np.bitwise_xor(mixed, product, out=numbers[..., lag - 1])
    return numbers.reshape(-1, len(window) - 1)


def _versions(*buffers: Tensor) -> tuple[int, ...]:
    """How often each buffer was written to (tensors of inference mode do not count)."""
    return tuple([0 if buffer.is_inference() else buffer._version for buffer in buffers])


def _as_list(numbers: tuple) -> list:
    return [_as_list(entry) if isinstance(entry, tuple) else entry for entry in numbers]
