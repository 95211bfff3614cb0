"""A minimal perfect hash: numbers for chosen keys in a few bits each, without keeping the keys.

Keys are thrown into bit arrays, level by level. A key that lands alone sets its bit; those that
collide go on to the next, smaller array. The number of a key is the count of set bits before its
own. A key that was not chosen meets a set bit as well, so each number also keeps a check: some bits
of another hash of its key (which lets a foreign key through now and then), or the whole key.

Source: Limasset, Rizk, Chikhi, Peterlongo, "Fast and scalable minimal perfect hashing for massive
    key sets" (the cascade of bit arrays).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from engram_lab.memory.hot import KeyIndex
from engram_lab.memory.keys import KeyCounts

CHECKS = {8: torch.uint8, 16: torch.int16, 32: torch.int32}
_SPREAD = 2  # bits of a level per key that enters it: more bits, fewer levels
_DEEPEST = 60  # a level leaves two keys in five, so far fewer serve any number of keys
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # constants of 64 bits as the signed numbers torch takes
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
_PAIRS, _NIBBLES, _BYTES = 0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F
_ONES = 0x0101010101010101


class MinimalPerfectHash(KeyIndex):
    """The small index: about five bits a key, and the check.

    Attributes:
        check_bits: bits of the check, or None where it is the whole key and the index exact.
    """

    def __init__(self, keys: KeyCounts, *, check_bits: int | None = None, seed: int = 0):
        """Index `keys`.

        Args:
            check_bits: 8, 16 or 32: a foreign key is taken for a chosen one with probability
                2^-bits; None keeps the keys and makes no mistake.
            seed: of the hash.

        Raises:
            ValueError: if there is no key, or `check_bits` is another number.
        """
        if check_bits not in (None, *CHECKS):
            raise ValueError(f"check_bits must be None, 8, 16 or 32; got {check_bits}")
        super().__init__(keys, false_hits=0.0 if check_bits is None else 2.0**-check_bits)
        self.check_bits, self.seed = check_bits, seed
        words = [torch.from_numpy(word) for word in keys.words]
        bits, self._sizes = _levels(self._hashed(words))
        self.register_buffer("bits", bits)
        below = torch.cumsum(_set_bits(bits), 0) - _set_bits(bits)
        self.register_buffer("below", below.to(torch.int32))
        number = self._number(self._hashed(words))
        checks = []
        for place, check in enumerate(self._checks(words)):
            self.register_buffer(f"check_{place}", torch.empty_like(check))
            checks.append(getattr(self, f"check_{place}"))
            checks[-1][number] = check

    def find(self, words: Sequence[Int64[Tensor, "*axes"]]) -> Int64[Tensor, "*axes"]:
        """Number of every key, -1 where it was not chosen or fails the check."""
        flat = [word.reshape(-1) for word in words]
        number = self._number(self._hashed(flat))
        chosen = number >= 0
        for place, check in enumerate(self._checks(flat)):
            chosen &= getattr(self, f"check_{place}")[number.clamp(min=0)] == check
        return torch.where(chosen, number, -1).view(words[0].shape)

    def _hashed(self, words: Sequence[Tensor]) -> Tensor:
        """One number for every key, as even as chance."""
        number = torch.full_like(words[0], self.seed)
        for word in words:
            number = _mixed(number ^ word)
        return number

    def _checks(self, words: Sequence[Tensor]) -> list[Tensor]:
        """What is compared: the key, or some bits of a hash of it."""
        if self.check_bits is None:
            return list(words)
        bits = _mixed(self._hashed(words) ^ _GOLDEN) & (2**self.check_bits - 1)
        return [bits.to(CHECKS[self.check_bits])]

    def _number(self, hashed: Tensor) -> Tensor:
        """Set bits before the first set bit that each key meets; -1 where it meets none."""
        number = torch.full_like(hashed, -1)
        left, first = torch.arange(len(hashed), device=hashed.device), 0
        for level, size in enumerate(self._sizes):
            place = first + _place(hashed[left], level, size)
            word, bit = self.bits[place >> 6], place & 63
            met = (word >> bit) & 1 == 1
            before = word[met] & ((1 << bit[met]) - 1)
            number[left[met]] = self.below[place[met] >> 6].long() + _set_bits(before)
            left, first = left[~met], first + size
            if not len(left):
                break
        return number


def _levels(hashed: Tensor) -> tuple[Tensor, list[int]]:
    """The bit arrays of all levels end to end, 64 bits a number, and their sizes in bits."""
    words, sizes, left = [], [], hashed
    while len(left):
        if len(sizes) == _DEEPEST:
            raise ValueError(
                f"{len(left)} keys of {len(hashed)} stay together in every bit array; the keys "
                "must be distinct, and where they are, another seed parts them"
            )
        size = 64 * -(-_SPREAD * len(left) // 64)
        place = _place(left, len(sizes), size)
        alone = torch.bincount(place, minlength=size)[place] == 1
        bits = torch.zeros(size, dtype=torch.int64)
        bits[place[alone]] = 1
        weights = 1 << torch.arange(64)
        words.append((bits.view(-1, 64) * weights).sum(1))
        sizes.append(size)
        left = left[~alone]
    return torch.cat(words), sizes


def _place(hashed: Tensor, level: int, size: int) -> Tensor:
    """Bit of each key in one level."""
    return (_mixed(hashed + level) & (2**63 - 1)) % size


def _mixed(number: Tensor) -> Tensor:
    """Every bit of the result depends on every bit of the number; products wrap around."""
    number = (number ^ _shifted(number, 30)) * _FIRST
    number = (number ^ _shifted(number, 27)) * _SECOND
    return number ^ _shifted(number, 31)


def _shifted(number: Tensor, bits: int) -> Tensor:
    """Shift to the right that fills with zeros."""
    return (number >> bits) & ((1 << (64 - bits)) - 1)


def _set_bits(words: Tensor) -> Tensor:
    """Set bits of every 64-bit number."""
    pairs = words - ((words >> 1) & _PAIRS)
    nibbles = (pairs & _NIBBLES) + ((pairs >> 2) & _NIBBLES)
    return ((((nibbles + (nibbles >> 4)) & _BYTES) * _ONES) >> 56) & 0x7F
