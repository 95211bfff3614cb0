"""D3, fact book: facts to know by heart, and passages that tell facts about strangers.

    n7 n90 r2 v14 | ? n31 n4 n66 r0 v51 |
    [ n8 n77 r1 v3 n40 n2 r0 v6 n5 n9 r3 v8 ? n40 n2 r0 v6 ? n5 n9 r3 v8 ? n8 n77 r1 v3 | ... <eos>

A fact is the name of an entity (2 or 3 words), a relation and a value. The book holds one value for
every entity and relation. Documents mix statements of the book's facts, closed-book questions about
them, and passages: facts about strangers, whose names are in no book and whose values are drawn
anew every time, each for another relation, then a question about every one of them. Statements and
closed-book questions are recall: the last two words of a name belong to one entity alone, so the
three tokens before a value fix it. Passages are reading; they ask for all they tell, since small
models learn to read late and from many answers. Part of the book's facts is only ever stated:
asking for those tests whether what was read as a statement is known when it is asked.
"""

import dataclasses
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float64, Int64

from engram_lab.tokens.items import LANGUAGE, check_positive, token_ranges, zipf

KINDS = ("statement", "question", "passage")
NAME_LENGTHS = (2, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactbookConfig:
    """Rules of one D3 language, and the mixture its documents have.

    Attributes:
        static_share: share of the tokens before eos that stand in statements and closed-book
            questions, 0 to 1; the others stand in passages. Realised up to the effect of the cut
            last item, which `entropy_floor` counts.
        question_share: share of those tokens that stand in closed-book questions, 0 to 1.
        asked_share: share of the relations of every entity that documents ask about, rounded to at
            least one; the others are only stated.
        entities: how many entities the book has.
        zipf: exponent of the entities' frequencies, by rank; 0 makes them equally frequent.
        relations: how many relations; every entity has a value for each.
        values: how many values; all relations share them, and each has them equally often.
        words: how many words names are made of.
        passage_facts: facts that a passage states before it asks for all of them, in any order; at
            most as many as there are relations.
        document_length: tokens of every document, eos included.
        seed: names the language: names, values, and which facts are asked. The documents have a
            seed of their own.
    """

    static_share: float = 0.5
    question_share: float = 0.25
    asked_share: float = 0.5
    entities: int = 200
    zipf: float = 0.7
    relations: int = 4
    values: int = 64
    words: int = 320
    passage_facts: int = 3
    document_length: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a mixture, a size or a set of names that has no documents."""
        for name in ("static_share", "question_share", "asked_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in 0..1, got {getattr(self, name)}")
        check_positive(self, ["entities", "relations", "values", "words", "passage_facts"])
        if self.entities > self.words**2 / 4:
            raise ValueError(
                f"entities must be at most a quarter of the pairs of words ({self.words**2}), so "
                f"that strangers have names too, got {self.entities}. Ask for more words"
            )
        most = min(self.words, self.relations)
        if self.passage_facts > most:
            raise ValueError(
                f"passage_facts must be at most {most}, since the facts of a passage have "
                f"different relations ({self.relations}) and their names open with different "
                f"words ({self.words}), got {self.passage_facts}"
            )
        if self.zipf < 0 or self.seed < 0:
            raise ValueError(f"zipf and seed must be 0 or more, got {self.zipf} and {self.seed}")
        if self.document_length < 1 + self.passage_length:
            raise ValueError(
                f"document_length must be at least {1 + self.passage_length} (one passage, eos), "
                f"got {self.document_length}"
            )

    @property
    def passage_length(self) -> int:
        """Tokens of a passage with its questions; strangers have names of two words."""
        return 1 + (4 + 5) * self.passage_facts

    @property
    def asked_relations(self) -> int:
        """Relations of every entity that documents ask about."""
        return max(1, round(self.asked_share * self.relations))

    @property
    def token_shares(self) -> dict[str, float]:
        """Share of the tokens before eos that each kind of item has."""
        asked = self.static_share * self.question_share
        return dict(
            zip(KINDS, (self.static_share - asked, asked, 1 - self.static_share), strict=True)
        )

    @property
    def token_ranges(self) -> dict[str, range]:
        """Ids of the marks, the words of names, relations and values."""
        marks = dict.fromkeys(("?", "["), 1)
        return token_ranges(**marks, n=self.words, r=self.relations, v=self.values)

    @property
    def vocab_size(self) -> int:
        """Number of ids, the four reserved ones included."""
        return self.token_ranges["v"].stop


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FactBook:
    """The facts that the seed of a config names, entities from the most to the least frequent.

    Attributes:
        names: token ids; pad ids behind the end of a name. No name opens another, and the last two
            words of a name belong to it alone.
        lengths: words of each name.
        probability: how often each entity is drawn.
        values: token id of the value of every fact.
        asked: which facts documents ask about; the others are only stated.
        known_seconds: for every first word, the words with which it makes a name's last two, as
            numbers in rising order; filled up with a number too large to be a word.
    """

    names: Int64[np.ndarray, "entity place"]
    lengths: Int64[np.ndarray, "entity"]
    probability: Float64[np.ndarray, "entity"]
    values: Int64[np.ndarray, "entity relation"]
    asked: Bool[np.ndarray, "entity relation"]
    known_seconds: Int64[np.ndarray, "word known"]


@lru_cache(maxsize=8)
def fact_book(config: FactbookConfig) -> FactBook:
    """Names and facts of a config; shares and lengths of documents change none of them."""
    rng = np.random.default_rng([LANGUAGE, config.seed])
    ranges, count = config.token_ranges, config.entities
    words, lengths = _names(config, rng)
    names = np.where(words >= 0, ranges["n"].start + words, 0)
    balanced = np.tile(np.arange(count) % config.values, (config.relations, 1))
    values = ranges["v"].start + rng.permuted(balanced, axis=1).T
    order = rng.permuted(np.tile(np.arange(config.relations), (count, 1)), axis=1)
    asked = order < config.asked_relations
    last_two = words[np.arange(count)[:, None], lengths[:, None] + [-2, -1]]
    known_seconds = _seconds_by_first(last_two, config.words)
    for rule in (names, lengths, values, asked, known_seconds):
        rule.setflags(write=False)  # shared by the cache
    return FactBook(
        names=names,
        lengths=lengths,
        probability=zipf(count, config.zipf),
        values=values,
        asked=asked,
        known_seconds=known_seconds,
    )


def _names(config: FactbookConfig, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Words of every name as numbers, -1 behind its end, and the names' lengths."""
    lengths = rng.permutation(np.arange(config.entities) % len(NAME_LENGTHS)) + NAME_LENGTHS[0]
    words = np.full((config.entities, NAME_LENGTHS[-1]), -1)
    whole: set[tuple[int, ...]] = set()  # names of two words: they must not open a longer one
    endings: set[tuple[int, ...]] = set()
    for row in np.argsort(lengths, kind="stable"):
        name: tuple[int, ...] = ()
        while not name or name[:2] in whole or name[-2:] in endings:
            name = tuple(rng.integers(config.words, size=lengths[row]).tolist())
        endings.add(name[-2:])
        if len(name) == NAME_LENGTHS[0]:
            whole.add(name)
        words[row, : len(name)] = name
    return words, lengths


def _seconds_by_first(pairs: np.ndarray, words: int) -> np.ndarray:
    """Second words of the pairs by first word, in rising order, filled up with 2 x `words`."""
    known = [np.sort(pairs[pairs[:, 0] == word, 1]) for word in range(words)]
    table = np.full((words, max(map(len, known))), 2 * words)
    for word, seconds in enumerate(known):
        table[word, : len(seconds)] = seconds
    return table
