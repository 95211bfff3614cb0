"""D5, polysemy: a phrase goes on in its own way at home, and in the topic's way elsewhere.

    topic1 | a4 b17 c88 c3 | a9 b2 c5 c60 | a4 b17 c88 c3 | a31 b8 c5 c60 | ... <eos>

A document opens with a topic. Every phrase `a b c c` has one topic as its home. There, its two `c`
are its own, fixed by `a b`: what a memory can hold. Under any other topic the phrase is a guest,
and its `c` are those that this topic gives to all its guests (`c5 c60` above). A memory reads the
same row both times, and under the wrong topic the row is wrong: what resolves it is a gate that
compares the topic in the context with the home in the row.
"""

import dataclasses
from functools import lru_cache

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.items import (
    CLASS_NAMES,
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
    lay_out,
    token_ranges,
    zipf,
)
from engram_lab.tokens.questions import question_generator

PHRASE_LENGTH = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolysemyConfig:
    """Rules of one D5 language, and the mixture its documents have.

    Attributes:
        static_share: share of the phrases that stand under the topic that is their home, 0 to 1.
        topics: how many topics, equally frequent; at least 2.
        phrases: how many phrases; every topic is home to as many, give or take one.
        zipf: exponent of the phrases' frequencies, by rank, at home and elsewhere; 0 makes them
            equally frequent.
        first_tokens: how many `a`.
        second_tokens: how many `b`.
        completion_tokens: how many `c`.
        document_length: tokens of every document, topic and eos included.
        seed: names the language: which phrases, homes and completions. The documents have a seed of
            their own.
    """

    static_share: float = 0.5
    topics: int = 2
    phrases: int = 2_000
    zipf: float = 0.7
    first_tokens: int = 64
    second_tokens: int = 64
    completion_tokens: int = 128
    document_length: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a mixture, a size or a frequency law that has no documents."""
        if not 0 <= self.static_share <= 1:
            raise ValueError(f"static_share must lie in 0..1, got {self.static_share}")
        check_positive(self, ["first_tokens", "second_tokens", "completion_tokens"])
        if not 2 <= self.topics <= self.phrases:
            raise ValueError(
                f"topics must lie in 2..phrases ({self.phrases}), so that a phrase can be at home "
                f"and elsewhere, got {self.topics}"
            )
        possible = self.first_tokens * self.second_tokens
        if self.phrases > possible:
            raise ValueError(
                f"phrases must be at most first_tokens x second_tokens = {possible}, "
                f"got {self.phrases}. Ask for fewer phrases or for more tokens"
            )
        if self.zipf < 0 or self.seed < 0:
            raise ValueError(f"zipf and seed must be 0 or more, got {self.zipf} and {self.seed}")
        if self.document_length < 2 + PHRASE_LENGTH:
            raise ValueError(
                f"document_length must be at least {2 + PHRASE_LENGTH} (topic, one phrase, eos), "
                f"got {self.document_length}"
            )

    @property
    def token_ranges(self) -> dict[str, range]:
        """Ids of topics, `a`, `b` and `c`."""
        return token_ranges(
            topic=self.topics,
            a=self.first_tokens,
            b=self.second_tokens,
            c=self.completion_tokens,
        )

    @property
    def vocab_size(self) -> int:
        """Number of ids, the four reserved ones included."""
        return self.token_ranges["c"].stop


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PolysemyLanguage:
    """The rules that the seed of a config names; all entries but `home` are token ids.

    Attributes:
        openings: `a b` of every phrase, from the most to the least frequent.
        home: number of the topic that each phrase is at home in.
        own: the two `c` of each phrase at home.
        guest: the two `c` of every guest, by topic.
    """

    openings: Int64[np.ndarray, "phrase two"]
    home: Int64[np.ndarray, "phrase"]
    own: Int64[np.ndarray, "phrase two"]
    guest: Int64[np.ndarray, "topic two"]


@lru_cache(maxsize=8)
def polysemy_language(config: PolysemyConfig) -> PolysemyLanguage:
    """Phrases, homes and completions; shares and lengths change none of it."""
    rng = np.random.default_rng([LANGUAGE, config.seed])
    ranges = config.token_ranges
    chosen = rng.permutation(config.first_tokens * config.second_tokens)[: config.phrases]
    first, second = np.divmod(chosen, config.second_tokens)
    openings = np.column_stack([ranges["a"].start + first, ranges["b"].start + second])
    completions = rng.integers(config.completion_tokens, size=(config.phrases + config.topics, 2))
    own, guest = np.split(ranges["c"].start + completions, [config.phrases])
    home = np.arange(config.phrases) % config.topics  # neighbours in rank have different homes
    for rule in (openings, home, own, guest):
        rule.setflags(write=False)  # shared by the cache
    return PolysemyLanguage(openings=openings, home=home, own=own, guest=guest)


def phrase_probabilities(config: PolysemyConfig) -> Float64[np.ndarray, "topic phrase"]:
    """How often each phrase is drawn under each topic."""
    weight = zipf(config.phrases, config.zipf)
    at_home = polysemy_language(config).home == np.arange(config.topics)[:, None]
    share = np.where(at_home, config.static_share, 1 - config.static_share)
    mass = np.where(at_home, (at_home @ weight)[:, None], (~at_home @ weight)[:, None])
    return share * weight / mass


def polysemy(config: PolysemyConfig, n_tokens: int, seed: int) -> Documents:
    """Documents of the D5 language of `config`, with the class of every token.

    Static are both `c` of a phrase at home, computed those of a guest; filler is what no rule fixes
    (topic, a, b), and eos.

    Args:
        config: the language and the mixture.
        n_tokens: tokens wished, rounded up to whole documents.
        seed: names the sample; another seed gives other documents of the same language.

    Raises:
        ValueError: if `n_tokens` is below 1 or `seed` below 0.
    """
    return documents_from_blocks(
        lambda rng, count: _write(config, *_draw(config, rng, count)),
        n_tokens=n_tokens,
        document_length=config.document_length,
        seed=seed,
        vocab_size=config.vocab_size,
        name="d5",
    )


def polysemy_floor(config: PolysemyConfig, *, first_token: bool = False) -> pd.DataFrame:
    """Exact floor of D5; see `engram_lab.tokens.synthetic.entropy_floor`."""
    first = polysemy_language(config).openings[:, 0]
    probabilities = phrase_probabilities(config)
    whole = np.mean([entropy(row) for row in probabilities])
    head = np.mean([entropy(np.bincount(first, weights=row)) for row in probabilities])
    tokens, nats = np.zeros((2, PHRASE_LENGTH, len(CLASS_NAMES)))
    tokens[:2, FILLER] = 1
    tokens[2:, STATIC], tokens[2:, COMPUTED] = config.static_share, 1 - config.static_share
    nats[:2, FILLER] = head, whole - head  # chain rule: b given a
    item = ItemProfile(lengths=np.eye(PHRASE_LENGTH + 1)[-1], tokens=tokens, nats=nats)
    header = fixed_profile((FILLER, float(np.log(config.topics))))
    return floor_frame(item, header, config.document_length, first_token=first_token)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Twins:
    """Documents in pairs that hold the same phrases under two topics.

    Attributes:
        first: one document of each pair.
        second: the other one: the next topic, the same phrases, gone on with as it asks.
        places: where a phrase is at home in one document of the pair alone. Columns document,
            position (of its `b`, where memory has read `a b`), phrase (its rank) and home ("first"
            or "second"). The first phrase is left out: its longer n-grams hold the topic.
    """

    first: Documents
    second: Documents
    places: pd.DataFrame


def polysemy_twins(config: PolysemyConfig, pairs: int, seed: int = 0) -> Twins:
    """So many pairs of documents, for comparing a gate under the right and the wrong topic.

    Raises:
        ValueError: if `pairs` is below 1.
    """
    if pairs < 1:
        raise ValueError(f"pairs must be at least 1, got {pairs}")
    topic, phrases = _draw(config, question_generator(seed, 0), pairs)
    topics = (topic, (topic + 1) % config.topics)
    sides = [_documents(config, _write(config, topic, phrases)) for topic in topics]
    home = polysemy_language(config).home[phrases]
    at_home = [home == topic[:, None] for topic in topics]
    whole = (config.document_length - 2) // PHRASE_LENGTH  # a phrase that is cut is left out
    document, place = np.nonzero((at_home[0] != at_home[1])[:, 1:whole])
    places = pd.DataFrame(
        {
            "document": document,
            "position": 2 + PHRASE_LENGTH * (place + 1),
            "phrase": phrases[document, place + 1],
            "home": np.where(at_home[0][document, place + 1], "first", "second"),
        }
    )
    return Twins(first=sides[0], second=sides[1], places=places)


def _draw(
    config: PolysemyConfig, rng: np.random.Generator, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Topic of each document, and its phrases by rank, [document place]."""
    places = -(-(config.document_length - 2) // PHRASE_LENGTH)
    topic = rng.integers(config.topics, size=count)
    phrases = np.zeros((count, places), dtype=np.int64)
    for number, probability in enumerate(phrase_probabilities(config)):
        here = topic == number
        phrases[here] = draw(probability, rng, (int(here.sum()), places))
    return topic, phrases


def _write(config: PolysemyConfig, topic: np.ndarray, phrases: np.ndarray) -> Block:
    """Ids and classes of documents with these topics and phrases, [document place]."""
    language = polysemy_language(config)
    at_home = (language.home[phrases] == topic[:, None])[..., None]
    guest = language.guest[topic][:, None]
    completions = np.where(at_home, language.own[phrases], guest)
    ids = np.concatenate([language.openings[phrases], completions], axis=-1)
    own, other = ([FILLER, FILLER, kind, kind] for kind in (STATIC, COMPUTED))
    classes = np.where(at_home, own, other)
    header = (config.token_ranges["topic"].start + topic[:, None], np.full((len(topic), 1), FILLER))
    lengths = np.full(phrases.shape, PHRASE_LENGTH)
    return lay_out(header, (ids, classes), lengths, config.document_length)


def _documents(config: PolysemyConfig, block: Block) -> Documents:
    ids, classes = block
    return Documents.from_lists(
        list(ids),
        vocab_size=config.vocab_size,
        classes=list(classes),
        class_names=CLASS_NAMES,
        name="d5/twins",
    )
