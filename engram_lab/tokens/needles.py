"""D4, needles: keys and values hidden in filler, asked for at the end.

    w4 w90 ! k3 k7 v51 w12 w8 w77 ! k1 k1 v9 w3 ... w5 ? k3 k7 v51 <eos>

Keys are of several tokens and values of one. Kinds of documents:

- single: one pair, asked for.
- multikey: several pairs, one asked for.
- multivalue: one key given several values; all of them are asked for, in order.
- multiquery: several pairs, all asked for, in any order.
- tracking: chains of assignments, `! k3 k7 v51`, then `! k2 k9 k3 k7` (k2 k9 has what k3 k7 has)
  and so on, interleaved; the end of one chain is asked for.
- plain: filler alone.

Keys and values are drawn anew for every document, so that no table can hold them; half of all keys
are in no document and serve for questions, so that no key is a known n-gram. The filler is a random
chain of words, each with a few successors of its own, or running text (ids of any tokenizer).
"""

import dataclasses
from functools import lru_cache
from math import comb

import numpy as np
from jaxtyping import Bool, Float64, Int64

from engram_lab.tokens.items import LANGUAGE, check_positive, distinct, draw, token_ranges, zipf

NEEDLE_KINDS = ("single", "multikey", "multivalue", "multiquery", "tracking")
PLAIN = "plain"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeedlesConfig:
    """Rules of one D4 language, and the mixture its documents have.

    Attributes:
        kinds: kinds of documents with needles, all equally likely.
        plain_share: share of documents that are filler alone, 0 to below 1.
        pairs: pairs of a multikey or multiquery document, values of a multivalue one; at least 2.
        chains: chains of a tracking document.
        hops: assignments of each chain; at least 2.
        keys: tokens that keys are made of.
        key_length: tokens of a key.
        values: how many values.
        words: how many filler words; for filler of running text, the ids of its tokenizer behind
            the four reserved ones.
        successors: words that may follow each word.
        zipf: exponent of the successors' probabilities, by rank.
        document_length: tokens of every document, eos included.
        seed: names the language: the chain of words, and which keys are taught. The documents have
            a seed of their own.
    """

    kinds: tuple[str, ...] = NEEDLE_KINDS
    plain_share: float = 0.0
    pairs: int = 4
    chains: int = 2
    hops: int = 3
    keys: int = 32
    key_length: int = 2
    values: int = 64
    words: int = 256
    successors: int = 16
    zipf: float = 1.0
    document_length: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a mixture, a size or a number of keys that has no documents."""
        unknown = sorted(set(self.kinds) - set(NEEDLE_KINDS))
        if unknown or not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise ValueError(
                f"kinds must be some of {', '.join(NEEDLE_KINDS)}, each once, got {self.kinds}"
            )
        if not 0 <= self.plain_share < 1:
            raise ValueError(f"plain_share must lie in 0..1, without 1, got {self.plain_share}")
        check_positive(self, ["chains", "keys", "key_length", "values", "words", "successors"])
        for name in ("pairs", "hops"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} must be at least 2, got {getattr(self, name)}")
        if self.successors > self.words:
            raise ValueError(
                f"successors must be at most words ({self.words}), got {self.successors}"
            )
        needed = max(self.pairs, self.chains * self.hops)
        if self.taught_keys < needed or self.key_count - self.taught_keys < needed:
            raise ValueError(
                f"keys ** key_length ({self.key_count}) must be at least {2 * needed}: half of the "
                "keys are taught, and a document needs up to that many. Ask for more keys"
            )
        if self.zipf < 0 or self.seed < 0:
            raise ValueError(f"zipf and seed must be 0 or more, got {self.zipf} and {self.seed}")
        longest = max(sum(self.lengths(kind)) for kind in self.kinds)
        if self.document_length < longest + 2:
            raise ValueError(
                f"document_length must be at least {longest + 2} (needles and questions of "
                f"{longest}, a word, eos), got {self.document_length}"
            )

    @property
    def key_count(self) -> int:
        """How many keys there are, taught or not."""
        return self.keys**self.key_length

    @property
    def taught_keys(self) -> int:
        """How many keys documents use; the others are kept for questions."""
        return self.key_count // 2

    @property
    def kind_probabilities(self) -> dict[str, float]:
        """How often each kind of document is drawn, plain ones last."""
        each = (1 - self.plain_share) / len(self.kinds)
        return dict.fromkeys(self.kinds, each) | {PLAIN: self.plain_share}

    @property
    def token_ranges(self) -> dict[str, range]:
        """Ids of filler words, marks, key tokens and values; words first, as text has them."""
        marks = dict.fromkeys(("!", "?"), 1)
        return token_ranges(w=self.words, **marks, k=self.keys, v=self.values)

    @property
    def vocab_size(self) -> int:
        """Number of ids, the four reserved ones included."""
        return self.token_ranges["v"].stop

    def needle_count(self, kind: str) -> int:
        """Needles of a document."""
        several = {"single": 1, "tracking": self.chains * self.hops, PLAIN: 0}
        return several.get(kind, self.pairs)

    def lengths(self, kind: str) -> tuple[int, int]:
        """Tokens of the needles of a document, and of its questions with their answers."""
        pair = self.key_length + 2
        if kind == PLAIN:
            return 0, 0
        if kind == "tracking":
            link = 2 * self.key_length + 1
            return self.chains * (pair + (self.hops - 1) * link), pair
        needles = self.needle_count(kind) * pair
        values = self.pairs if kind == "multivalue" else 1
        return needles, self.pairs * pair if kind == "multiquery" else pair - 1 + values

    def filler_length(self, kind: str) -> int:
        """Filler words of a document."""
        return self.document_length - 1 - sum(self.lengths(kind))

    def places(self, kind: str) -> int:
        """In how many ways the needles of a document can lie in its filler."""
        needles = self.needle_count(kind)
        return comb(self.filler_length(kind) + needles, needles)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NeedlesLanguage:
    """The rules that the seed of a config names.

    Attributes:
        following: token ids of the words that may follow each word.
        probability: how often each of them does, the same for every word.
        taught: which keys documents use.
    """

    following: Int64[np.ndarray, "word successor"]
    probability: Float64[np.ndarray, "successor"]
    taught: Bool[np.ndarray, "key"]


@lru_cache(maxsize=8)
def needles_language(config: NeedlesConfig) -> NeedlesLanguage:
    """Chain of words and taught keys; the mixture and lengths change none of it."""
    rng = np.random.default_rng([LANGUAGE, config.seed])
    taught = rng.permutation(config.key_count) < config.taught_keys
    order = distinct(config.words, rng, (config.words, config.successors))
    following = config.token_ranges["w"].start + order
    for rule in (following, taught):
        rule.setflags(write=False)  # shared by the cache
    probability = zipf(config.successors, config.zipf)
    return NeedlesLanguage(following=following, probability=probability, taught=taught)


def filler_words(
    config: NeedlesConfig, rng: np.random.Generator, shape: tuple[int, int]
) -> Int64[np.ndarray, "document place"]:
    """Token ids of walks along the chain of words, the first word any."""
    language, start = needles_language(config), config.token_ranges["w"].start
    words = np.zeros(shape, dtype=np.int64)
    steps = draw(language.probability, rng, shape)
    word = start + rng.integers(config.words, size=shape[0])
    for place in range(shape[1]):
        words[:, place] = word
        word = language.following[word - start, steps[:, place]]
    return words
