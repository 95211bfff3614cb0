"""D8, two capacities: phrases that need rows and chains that need context, both scarce at once.

    topic3 | a17 b201 c5 c88 | k9 k140 k31 | k77 k2 k19 | a4 b4 c190 c7 | ... <eos>

A document opens with a topic. Phrases `a b c c`: the pair `a b` is drawn from a Zipf law over
pairs, and fixes both `c`. Knowing 20,000 pairs takes rows, no context. Chains `k, f(k), f(f(k))`: f
is one random permutation of the keys per topic, so a key is answered differently under every topic;
knowing the maps takes context and experts. One trap when reading losses: the first two keys of a
chain all but name the topic, so its last key can also be looked up by them, without any context.
"""

import dataclasses
from functools import lru_cache

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.items import (
    COMPUTED,
    FILLER,
    LANGUAGE,
    STATIC,
    Block,
    ItemProfile,
    check_positive,
    documents_from_blocks,
    draw,
    entropy,
    fixed_profile,
    floor_frame,
    item_probabilities,
    lay_out,
    mixed_profile,
    token_ranges,
    zipf,
)

PHRASE_LENGTH, CHAIN_LENGTH = 4, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoCapacitiesConfig:
    """Rules of one D8 language, and the mixture its documents have.

    Attributes:
        static_share: share of the tokens between topic and eos that stand in phrases, 0 to 1. The
            start and the cut last item move the expected share a little, by at most 0.001 at 128
            tokens; `entropy_floor` counts exactly.
        topics: how many topics, each with a map of its own.
        topic_zipf: exponent of the topics' frequencies, by rank; 0 makes them equally frequent. A
            few frequent topics teach a model early that topics matter at all.
        pairs: how many pairs `a b` are in use.
        zipf: exponent of the pairs' frequencies, by rank; 0 makes them equally frequent.
        first_tokens: how many `a`.
        second_tokens: how many `b`.
        completion_tokens: how many `c`.
        keys: how many keys `k`; the maps go from keys to keys.
        document_length: tokens of every document, topic and eos included.
        seed: names the language: which pairs, completions and maps. The documents have a seed of
            their own.
    """

    static_share: float = 0.5
    topics: int = 32
    topic_zipf: float = 0.0
    pairs: int = 20_000
    zipf: float = 0.7
    first_tokens: int = 240
    second_tokens: int = 240
    completion_tokens: int = 240
    keys: int = 256
    document_length: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a mixture, a size or a frequency law that has no documents."""
        if not 0 <= self.static_share <= 1:
            raise ValueError(f"static_share must lie in 0..1, got {self.static_share}")
        sizes = "topics pairs first_tokens second_tokens completion_tokens keys"
        check_positive(self, sizes.split())
        possible = self.first_tokens * self.second_tokens
        if self.pairs > possible:
            raise ValueError(
                f"pairs must be at most first_tokens x second_tokens = {possible}, "
                f"got {self.pairs}. Ask for fewer pairs or for more tokens"
            )
        for name in ("topic_zipf", "zipf", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.document_length < 2 + PHRASE_LENGTH:
            raise ValueError(
                f"document_length must be at least {2 + PHRASE_LENGTH} (topic, one phrase, eos), "
                f"got {self.document_length}"
            )

    @property
    def token_ranges(self) -> dict[str, range]:
        """Ids of topics, `a`, `b`, `c` and keys `k`: disjoint, so that a token tells its part."""
        return token_ranges(
            topic=self.topics,
            a=self.first_tokens,
            b=self.second_tokens,
            c=self.completion_tokens,
            k=self.keys,
        )

    @property
    def vocab_size(self) -> int:
        """Number of ids, the four reserved ones included."""
        return self.token_ranges["k"].stop


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TwoCapacitiesLanguage:
    """The rules that the seed of a config names; all entries are token ids.

    Attributes:
        phrases: the phrases `a b c c` from the most to the least frequent.
        pair_probability: how often each phrase is drawn among phrases.
        key_map: f of every topic; entry (t, i) answers the i-th key under the t-th topic.
    """

    phrases: Int64[np.ndarray, "pair place"]
    pair_probability: Float64[np.ndarray, "pair"]
    key_map: Int64[np.ndarray, "topic key"]


@lru_cache(maxsize=8)
def two_capacities_language(config: TwoCapacitiesConfig) -> TwoCapacitiesLanguage:
    """Pairs with their completions, and one map per topic; shares and lengths change none of it."""
    rng = np.random.default_rng([LANGUAGE, config.seed])
    ranges = config.token_ranges
    chosen = rng.permutation(config.first_tokens * config.second_tokens)[: config.pairs]
    completions = rng.integers(config.completion_tokens, size=(config.pairs, 2))
    first, second = np.divmod(chosen, config.second_tokens)
    phrases = np.column_stack(
        [ranges["a"].start + first, ranges["b"].start + second, ranges["c"].start + completions]
    )
    identity = np.tile(np.arange(config.keys), (config.topics, 1))
    # permutations: every key is an equally likely answer, so that frequencies give nothing away
    key_map = ranges["k"].start + rng.permuted(identity, axis=1)
    for rule in (phrases, key_map):
        rule.setflags(write=False)  # shared by the cache
    return TwoCapacitiesLanguage(
        phrases=phrases, pair_probability=zipf(config.pairs, config.zipf), key_map=key_map
    )


def two_capacities(config: TwoCapacitiesConfig, n_tokens: int, seed: int) -> Documents:
    """Documents of the D8 language of `config`, with the class of every token.

    Static are both `c` of a phrase, computed are f(k) and f(f(k)); filler is what no rule fixes
    (topic, a, b, k), and eos.

    Args:
        config: the language and the mixture.
        n_tokens: tokens wished, rounded up to whole documents.
        seed: names the sample; another seed gives other documents of the same language.

    Raises:
        ValueError: if `n_tokens` is below 1 or `seed` below 0.
    """
    return documents_from_blocks(
        lambda rng, count: _draw_block(config, rng, count),
        n_tokens=n_tokens,
        document_length=config.document_length,
        seed=seed,
        vocab_size=config.vocab_size,
        name="d8",
    )


def two_capacities_floor(config: TwoCapacitiesConfig, *, first_token: bool = False) -> pd.DataFrame:
    """Exact floor of D8; see `engram_lab.tokens.synthetic.entropy_floor`."""
    profiles = _profiles(config)
    item = mixed_profile(profiles, _item_probabilities(config, profiles))
    header = fixed_profile((FILLER, entropy(zipf(config.topics, config.topic_zipf))))
    return floor_frame(item, header, config.document_length, first_token=first_token)


def _profiles(config: TwoCapacitiesConfig) -> dict[str, ItemProfile]:
    language = two_capacities_language(config)
    first = language.phrases[:, 0] - config.token_ranges["a"].start
    first_nats = entropy(np.bincount(first, weights=language.pair_probability))
    second_nats = entropy(language.pair_probability) - first_nats  # chain rule: b given a
    hops = [(COMPUTED, 0.0)] * (CHAIN_LENGTH - 1)
    return {
        "phrase": fixed_profile((FILLER, first_nats), (FILLER, second_nats), *[(STATIC, 0.0)] * 2),
        "chain": fixed_profile((FILLER, np.log(config.keys)), *hops),
    }


def _item_probabilities(
    config: TwoCapacitiesConfig, profiles: dict[str, ItemProfile]
) -> np.ndarray:
    shares = {"phrase": config.static_share, "chain": 1 - config.static_share}
    return item_probabilities(profiles, shares)


def _draw_block(config: TwoCapacitiesConfig, rng: np.random.Generator, count: int) -> Block:
    """Ids and classes of `count` documents, [document place]."""
    language, ranges = two_capacities_language(config), config.token_ranges
    chain_share = _item_probabilities(config, _profiles(config))[1]
    shape = (count, -(-(config.document_length - 2) // CHAIN_LENGTH))  # enough if all were chains
    topic = draw(zipf(config.topics, config.topic_zipf), rng, (count,))
    is_chain = rng.random(shape) < chain_share
    phrases = language.phrases[draw(language.pair_probability, rng, shape)]
    key = ranges["k"].start + rng.integers(config.keys, size=shape)
    chain = [key]
    for _ in range(CHAIN_LENGTH - 1):
        chain.append(language.key_map[topic[:, None], chain[-1] - ranges["k"].start])
    unused = np.zeros_like(key)
    ids = np.where(is_chain[..., None], np.stack([*chain, unused], axis=-1), phrases)
    classes = np.where(
        is_chain[..., None],
        np.array([FILLER, COMPUTED, COMPUTED, FILLER], dtype=np.uint8),
        np.array([FILLER, FILLER, STATIC, STATIC], dtype=np.uint8),
    )
    header = (ranges["topic"].start + topic[:, None], np.full((count, 1), FILLER))
    lengths = np.where(is_chain, CHAIN_LENGTH, PHRASE_LENGTH)
    return lay_out(header, (ids, classes), lengths, config.document_length)
