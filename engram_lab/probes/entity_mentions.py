"""Mentions of entities: where in some documents a name ends, and whose name it is."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from engram_lab.probes.intervals import RESAMPLES, draws, middle
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.factbook import FactBook, FactbookConfig, fact_book
from engram_lab.tokens.tokenizer import EOS_ID

TRAIN_SHARE = 0.6
TRIES = 1_000  # rounds of exchanging words until every name is new


@dataclass(frozen=True, kw_only=True, eq=False)
class Mentions:
    """Last tokens of names in documents, and a split into mentions to fit and to test on.

    Attributes:
        documents: what the model reads.
        document: number of each mention's document.
        position: place of the name's last token in it.
        entity: whose name it is, counted from 0.
        train: whether a probe is fitted on the mention; it is tested on the others.
    """

    documents: Documents
    document: Int64[np.ndarray, "mention"]
    position: Int64[np.ndarray, "mention"]
    entity: Int64[np.ndarray, "mention"]
    train: Bool[np.ndarray, "mention"]

    def __post_init__(self) -> None:
        """Refuse places outside the documents, and tests of entities that were never fitted."""
        inside = (self.document >= 0) & (self.document < len(self.documents))
        lengths = self.documents.lengths[np.where(inside, self.document, 0)]
        inside &= (self.position >= 0) & (self.position < lengths)
        if not len(inside) or not inside.all():
            raise ValueError(
                f"mentions must lie inside the {len(self.documents)} documents; "
                f"{(~inside).sum()} of {len(inside)} do not"
            )
        fitted, tested = np.unique(self.entity[self.train]), np.unique(self.entity[~self.train])
        if not np.array_equal(fitted, tested) or len(fitted) < 2:
            raise ValueError(
                f"at least two entities need mentions of both kinds, to fit and to test; got "
                f"{len(fitted)} entities to fit on, {len(tested)} to test on and "
                f"{len(np.intersect1d(fitted, tested))} in both"
            )

    @property
    def last_tokens(self) -> Int64[np.ndarray, "mention"]:
        """Token that each mention's name ends with."""
        return self.documents.ids[self.documents.offsets[self.document] + self.position].astype(
            np.int64
        )


@dataclass(frozen=True, kw_only=True)
class Interval:
    """How an interval over entities is made: whole entities are drawn anew.

    Attributes:
        resamples: bootstrap samples.
        seed: of the draws.
    """

    resamples: int = RESAMPLES
    seed: int = 0

    def of_hits(
        self, hits: Float[np.ndarray, "mention"], entity: Int64[np.ndarray, "mention"]
    ) -> dict[str, float | int]:
        """Share of hits with its interval.

        Args:
            hits: 1 or 0.
            entity: whose mention each is.

        Returns:
            entities, mentions, accuracy, low and high.
        """
        _, own = np.unique(entity, return_inverse=True)
        right, asked = np.bincount(own, weights=hits), np.bincount(own)
        counts = draws(len(asked), resamples=self.resamples, seed=self.seed)
        low, high = middle((counts @ right) / (counts @ asked))
        return {
            "entities": len(asked),
            "mentions": len(hits),
            "accuracy": float(hits.mean()),
            "low": low,
            "high": high,
        }


def entity_mentions(
    config: FactbookConfig,
    *,
    entities: int | None = None,
    per_entity: int = 8,
    strangers: bool = False,
    seed: int = 0,
) -> Mentions:
    """Every entity of D3, mentioned several times in statements and questions about its facts.

    Documents hold facts alone, in random order, each entity at most once, so that no mention can be
    known from an earlier one. Entities are mentioned equally often, whatever their frequency.

    Args:
        config: the language; documents are no longer than its own.
        entities: how many, drawn at random; None takes all.
        per_entity: mentions of each, of which three in five are to fit a probe on.
        strangers: put names of nobody in their places: the last word stays, the words before it
            change hands, so that the last two are nobody's. Nothing was ever learnt about them.
        seed: of the choice and of the sentences.

    Raises:
        ValueError: if there are fewer than two entities or mentions of each, or strangers' names
            cannot be made.
    """
    book = fact_book(config)
    wanted = config.entities if entities is None else entities
    if not 2 <= wanted <= config.entities:
        raise ValueError(f"entities must lie in 2..{config.entities}; got {wanted}")
    if per_entity < 2:
        raise ValueError(f"per_entity must be at least 2, to fit and to test; got {per_entity}")
    rng = np.random.default_rng([seed, config.seed])
    chosen = rng.permutation(config.entities)[:wanted]
    names = _names(book, chosen)
    if strangers:
        names = stranger_names(book, chosen, rng)
    train_rounds = min(per_entity - 1, max(1, round(TRAIN_SHARE * per_entity)))
    texts, found = _texts(config, chosen, names, per_entity, rng)
    document, position, entity, turn = found.T
    documents = Documents.from_lists(
        [[*text, EOS_ID] for text in texts], vocab_size=config.vocab_size, name="d3/mentions"
    )
    return Mentions(
        documents=documents,
        document=document,
        position=position,
        entity=entity,
        train=turn < train_rounds,
    )


def stranger_names(
    book: FactBook, chosen: Int64[np.ndarray, "entity"], rng: np.random.Generator
) -> list[list[int]]:
    """Names of nobody, one for each of some entities, with the same last word.

    Args:
        book: who is known.
        chosen: entities.
        rng: draws who gets whose words.

    Raises:
        ValueError: if a thousand rounds of exchanging words leave a known or a double pair.
    """
    names = _names(book, chosen)
    known = {tuple(name[-2:]) for name in _names(book, np.arange(len(book.names)))}
    openings = rng.permutation(len(names)).tolist()  # whose words stand before the last one

    def pair(place: int, opening: int) -> tuple[int, int]:
        return names[opening][-2], names[place][-1]

    counts = Counter(pair(place, opening) for place, opening in enumerate(openings))

    def faults(*pairs: tuple[int, int]) -> int:
        return sum(found in known or counts[found] > 1 for found in pairs)

    for _ in range(TRIES):
        bad = [place for place, opening in enumerate(openings) if faults(pair(place, opening))]
        if not bad:
            return [
                [*names[other][:-1], name[-1]] for name, other in zip(names, openings, strict=True)
            ]
        for place in bad:
            other = int(rng.integers(len(names)))
            one, two = openings[place], openings[other]
            old, new = (pair(place, one), pair(other, two)), (pair(place, two), pair(other, one))
            before = faults(*old)
            counts.subtract(old)
            counts.update(new)
            if faults(*new) <= before:
                openings[place], openings[other] = two, one
            else:
                counts.subtract(new)
                counts.update(old)
    raise ValueError(
        f"no {len(names)} names of nobody were found among the words of as many entities; ask for "
        "more entities, or for a language with more words"
    )


def _names(book: FactBook, chosen: np.ndarray) -> list[list[int]]:
    return [book.names[entity, : book.lengths[entity]].tolist() for entity in chosen]


def _texts(
    config: FactbookConfig,
    chosen: np.ndarray,
    names: list[list[int]],
    per_entity: int,
    rng: np.random.Generator,
) -> tuple[list[list[int]], np.ndarray]:
    """Texts without their eos, and of every mention its document, position, label and turn."""
    texts: list[list[int]] = []
    found = []
    for turn in range(per_entity):
        text: list[int] = []
        for label in rng.permutation(len(chosen)).tolist():
            sentence, end = _sentence(config, int(chosen[label]), names[label], rng)
            if len(text) + len(sentence) >= config.document_length:
                texts.append(text)
                text = []
            found.append((len(texts), len(text) + end, label, turn))
            text += sentence
        texts.append(text)
    return texts, np.array(found, dtype=np.int64)


def _sentence(
    config: FactbookConfig, entity: int, name: list[int], rng: np.random.Generator
) -> tuple[list[int], int]:
    """A statement or a question about a fact that documents ask about, and where its name ends."""
    book, ranges = fact_book(config), config.token_ranges
    asks = rng.random() < 0.5
    relation = int(rng.choice(np.flatnonzero(book.asked[entity])))
    opening = [ranges["?"].start] if asks else []
    fact = [ranges["r"].start + relation, int(book.values[entity, relation])]
    return [*opening, *name, *fact], len(opening) + len(name) - 1
