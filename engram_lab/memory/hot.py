"""The hot tier: chosen n-grams get rows of their own, all others fall through to hashing.

Every table of an order is lengthened by one row per hot key. Hot key number i of an order has the
address `prime + i` in each of that order's tables, so its rows are as wide together as a hashed
key's, and nobody else reads them. Which key has which number is the work of a `KeyIndex`: the exact
`KeyDictionary` here, or the smaller `perfect_hash.MinimalPerfectHash`.

Source: arXiv:2601.16531 (a collision-free hot tier beside the hashed one).
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.engram import Engram
from engram_lab.memory.hashing import NgramHash
from engram_lab.memory.history import History, look_back
from engram_lab.memory.keys import KeyCodec, KeyCounts
from engram_lab.memory.layout import table_layout
from engram_lab.memory.table import MemoryTable


class KeyIndex(nn.Module):
    """Numbers 0 to size - 1 for chosen keys of one order, and -1 for every other key.

    Attributes:
        codec: how the keys are packed.
        size: chosen keys.
        false_hits: chance that a key which was not chosen gets a number all the same.
    """

    def __init__(self, keys: KeyCounts, *, false_hits: float = 0.0):
        """Index `keys`.

        Raises:
            ValueError: if there is none.
        """
        super().__init__()
        if not len(keys):
            raise ValueError("a key index needs at least one key; got none")
        self.codec, self.size, self.false_hits = keys.codec, len(keys), false_hits

    @abstractmethod
    def find(self, words: Sequence[Int64[Tensor, "*axes"]]) -> Int64[Tensor, "*axes"]:
        """Number of every key, -1 where it was not chosen.

        Args:
            words: packed keys, as `codec.pack` gives them.
        """

    def forward(self, window: Sequence[Int64[Tensor, "*axes"]]) -> Int64[Tensor, "*axes"]:
        """`find` for ids by look-back, the newest first."""
        return self.find(self.codec.pack(window))

    @property
    def bytes_per_key(self) -> float:
        """Memory of all that the index keeps, divided by its keys."""
        return sum(buffer.nbytes for buffer in self.buffers()) / self.size


class KeyDictionary(KeyIndex):
    """The exact index: sorted keys, found by bisection; numbers follow the order of the keys."""

    def __init__(self, keys: KeyCounts):
        """Index `keys`.

        Raises:
            ValueError: if there is none.
        """
        super().__init__(keys)
        words = [torch.from_numpy(word) for word in keys.words]
        number = self._keep("word_0", words[0])
        for place, word in enumerate(words[1:], 1):
            value = self._keep(f"word_{place}", word)
            distinct = len(getattr(self, f"word_{place}"))
            number = self._keep(f"pair_{place}", number * distinct + value)

    def find(self, words: Sequence[Int64[Tensor, "*axes"]]) -> Int64[Tensor, "*axes"]:
        """Number of every key, -1 where it was not chosen."""
        number = _place(self.word_0, words[0])
        for place, word in enumerate(words[1:], 1):
            values = getattr(self, f"word_{place}")
            value = _place(values, word)
            pair = torch.where((number < 0) | (value < 0), -1, number * len(values) + value)
            number = _place(getattr(self, f"pair_{place}"), pair)
        return number

    def _keep(self, name: str, values: Tensor) -> Tensor:
        """Keep the distinct values, sorted; the place of each value among them."""
        distinct, places = torch.unique(values, return_inverse=True)
        self.register_buffer(name, distinct)
        return places


class HotHash(NgramHash):
    """A hash whose hot keys have addresses behind the primes; all others are hashed as before.

    Attributes:
        indices: the `KeyIndex` of each order, by its decimal name; an order without one has no hot
            keys.
    """

    def __init__(self, cold: NgramHash, indices: Mapping[int, KeyIndex]):
        """Put indices, by order, before a hash.

        Raises:
            ValueError: if an order is not hashed, or an index was made for other keys.
        """
        fill_id, eos_id = cold.special_ids.tolist()
        super().__init__(
            cold.config,
            cold.layer_id,
            canonical_vocab_size=cold.canonical_vocab_size,
            fill_id=fill_id,
            eos_id=None if eos_id < 0 else eos_id,
        )
        for order, index in indices.items():
            self._check(order, index)
        self.indices = nn.ModuleDict({str(order): index for order, index in indices.items()})

    def addresses_of(self, history: History) -> Int64[Tensor, "batch seq table"]:
        """Addresses of the chunk at the end of `history`; `prime + number` for hot keys.

        Raises:
            ValueError: if the id of a live position is negative or not below
                `canonical_vocab_size`.
        """
        addresses = super().addresses_of(history)
        window = look_back(history, self.config, self.prepared.special_ids)
        heads = self.config.n_head_per_ngram
        for name, index in self.indices.items():
            order = int(name)
            number = index(window[:order])[..., None]  # batch seq 1
            tables = slice((order - 2) * heads, (order - 1) * heads)
            hot = self.primes[order - 2] + number
            addresses[..., tables] = torch.where(number >= 0, hot, addresses[..., tables])
        return addresses

    def _check(self, order: int, index: KeyIndex) -> None:
        wanted = KeyCodec(order=order, vocab_size=self.canonical_vocab_size)
        if not 2 <= order <= self.config.max_ngram_size:
            raise ValueError(
                f"hot keys must be of an order 2..{self.config.max_ngram_size} "
                f"(EngramConfig.max_ngram_size); got {order}"
            )
        if index.codec != wanted:
            raise ValueError(
                f"the index of order {order} must hold keys of {wanted}; got {index.codec}. "
                "Count the keys with this memory's own hash."
            )


class HotTable(MemoryTable):
    """The rows of one layer, each table with its hot rows behind its hashed ones."""

    def __init__(self, config: EngramConfig, layer_id: int, hot_sizes: Sequence[int]):
        """Allocate and initialise the rows of `layer_id`.

        Args:
            hot_sizes: hot keys of every order, from 2 on.
        """
        super().__init__(config, layer_id)
        layout = table_layout(config)[layer_id]
        lengths = [
            prime + hot for primes, hot in zip(layout, hot_sizes, strict=True) for prime in primes
        ]
        *offsets, rows = accumulate(lengths, initial=0)
        self._offsets = tuple(offsets)
        self.weight = nn.Parameter(self.weight.new_empty(rows, config.row_width))
        self.reset_buffers()
        self.reset_parameters()


def add_hot_tier(memories: Iterable[Engram], indices: Mapping[int, KeyIndex]) -> None:
    """Give memories a hot tier, in place; all rows are drawn anew.

    Args:
        memories: modules of a model, not trained yet.
        indices: the index of each order that gets hot keys; the modules share them.

    Raises:
        ValueError: if an order is not hashed, or an index was made for other keys.
    """
    for memory in memories:
        orders = range(2, memory.config.max_ngram_size + 1)
        sizes = [indices[order].size if order in indices else 0 for order in orders]
        memory.hash = HotHash(memory.hash, indices).to(memory.table.weight.device)
        table = HotTable(memory.config, memory.layer_id, sizes)
        memory.table = table.to(memory.table.weight.device)


def share_rows(memories: Iterable[Engram]) -> None:
    """Let several memories read one table by one hash, the first one's; each keeps its gate.

    Args:
        memories: modules of one model with one config.
    """
    first, *others = memories
    for memory in others:
        memory.hash, memory.table = first.hash, first.table


def _place(distinct: Tensor, values: Tensor) -> Tensor:
    """Place of each value among sorted distinct ones, -1 where it is none of them."""
    place = torch.searchsorted(distinct, values.contiguous()).clamp_(max=len(distinct) - 1)
    return torch.where(distinct[place] == values, place, -1)
