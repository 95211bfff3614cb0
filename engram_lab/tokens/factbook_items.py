"""D3 item by item: statements, questions and passages, what they cost, and questions to score.

As for D1, every kind is told twice: `_profiles` holds the exact expectation of what an ideal reader
pays, the writers draw examples.
"""

from typing import Literal

import numpy as np
import pandas as pd

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.factbook import NAME_LENGTHS, FactBook, FactbookConfig, fact_book
from engram_lab.tokens.items import (
    CLASS_NAMES,
    COMPUTED,
    FILLER,
    STATIC,
    Block,
    ItemProfile,
    distinct,
    documents_from_blocks,
    draw,
    fixed_profile,
    floor_frame,
    item_probabilities,
    lay_out,
    mixed_profile,
)
from engram_lab.tokens.questions import check_questions, question_generator, questions

QuestionKind = Literal["closed_book", "asked_before", "passage", "passage_known"]
QUESTION_KINDS = ("closed_book", "asked_before", "passage", "passage_known")
FACT_LENGTH = NAME_LENGTHS[-1] + 2


def factbook(config: FactbookConfig, n_tokens: int, seed: int) -> Documents:
    """Documents of the D3 language of `config`, with the class of every token.

    Static are the values of the book's facts, computed is the answer to a passage's question;
    filler is the rest: names, relations, marks, what a passage says of strangers, eos.

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
        name="d3",
    )


def factbook_floor(config: FactbookConfig, *, first_token: bool = False) -> pd.DataFrame:
    """Exact floor of D3; see `engram_lab.tokens.synthetic.entropy_floor`."""
    profiles = _profiles(config)
    item = mixed_profile(profiles, item_probabilities(profiles, config.token_shares))
    return floor_frame(item, fixed_profile(), config.document_length, first_token=first_token)


def factbook_questions(
    config: FactbookConfig, kind: QuestionKind, items: int, seed: int = 0
) -> Documents:
    """Questions with their answers, one a document, each about another fact.

    Args:
        config: the language.
        kind: "closed_book" asks for facts of the book that documents only state; "asked_before"
            for those that documents ask too; "passage" for one of the facts about strangers that
            the document states first; "passage_known" likewise for entities of the book, of which
            the passage says what the book says.
        items: how many questions; fewer where the book has fewer such facts.
        seed: names the sample.

    Returns:
        Documents of the classes "context" and "answer"; the answer is the last token.

    Raises:
        ValueError: if the kind is unknown, `items` is below 1, or the book has no such fact.
    """
    check_questions(kind, QUESTION_KINDS, items)
    rng = question_generator(seed, QUESTION_KINDS.index(kind))
    if kind == "passage":
        first_question = 1 + 4 * config.passage_facts + 5
        asked = list(_write_passages(config, rng, items)[0][:, :first_question])
    elif kind == "passage_known":
        asked = [_known_passage(config, rng) for _ in range(items)]
    else:
        facts = np.argwhere(fact_book(config).asked == (kind == "asked_before"))
        if not len(facts):
            raise ValueError(
                f"kind {kind!r} finds no fact: documents ask about {config.asked_relations} of "
                f"{config.relations} relations. Lower asked_share"
            )
        mark = config.token_ranges["?"].start
        chosen = rng.permutation(facts)[:items].tolist()
        asked = [np.append(mark, _fact(config, *fact)) for fact in chosen]
    answers = [np.arange(len(ids)) == len(ids) - 1 for ids in asked]
    return questions(asked, answers, vocab_size=config.vocab_size, name=f"d3/{kind}")


def _profiles(config: FactbookConfig) -> dict[str, ItemProfile]:
    """What each kind of item is expected to hold and to cost, in the order of `KINDS`."""
    book = fact_book(config)
    known = (book.known_seconds < config.words).sum(axis=1)
    second = np.log(config.words - known).mean()  # first words are equally frequent
    strangers: list[tuple[int, float]] = []
    for place in range(config.passage_facts):
        costs = (np.log(config.words - place), second, np.log(config.relations - place))
        strangers += [(FILLER, cost) for cost in (*costs, np.log(config.values))]
    asked: list[tuple[int, float]] = []
    for left in range(config.passage_facts, 0, -1):
        which = (FILLER, float(np.log(left)))  # the first word tells which fact is meant
        asked += [(FILLER, 0.0), which, (FILLER, 0.0), (FILLER, 0.0), (COMPUTED, 0.0)]
    return {
        "statement": _fact_profile(book, np.log(config.relations), marks=0),
        "question": _fact_profile(book, np.log(config.asked_relations), marks=1),
        "passage": fixed_profile((FILLER, 0.0), *strangers, *asked),
    }


def _fact_profile(book: FactBook, relation_nats: float, *, marks: int) -> ItemProfile:
    """Costs of a fact of the book behind so many marks: name along its prefixes, then relation."""
    tokens, nats = np.zeros((2, FACT_LENGTH + marks, len(CLASS_NAMES)))
    tokens[:marks, FILLER] = 1
    shorter = np.ones(len(book.names))  # of each name: probability of its prefix so far
    for place in range(FACT_LENGTH):
        of_name = book.lengths > place
        of_relation = book.lengths == place
        of_value = book.lengths + 1 == place
        row = place + marks
        tokens[row, FILLER] = book.probability @ (of_name | of_relation)
        tokens[row, STATIC] = book.probability @ of_value
        nats[row, FILLER] = relation_nats * (book.probability @ of_relation)
        if place < book.names.shape[1]:
            prefixes = np.unique(book.names[:, : place + 1], axis=0, return_inverse=True)[1]
            longer = np.bincount(prefixes.ravel(), weights=book.probability)[prefixes.ravel()]
            nats[row, FILLER] += (book.probability * of_name) @ np.log(shorter / longer)
            shorter = longer
    lengths = np.bincount(book.lengths + 2 + marks, weights=book.probability)
    return ItemProfile(lengths=lengths, tokens=tokens, nats=nats)


def _draw_block(config: FactbookConfig, rng: np.random.Generator, count: int) -> Block:
    """Ids and classes of `count` documents, [document place]."""
    profiles = _profiles(config)
    probabilities = item_probabilities(profiles, config.token_shares)
    room = config.document_length - 1
    shape = (count, -(-room // (NAME_LENGTHS[0] + 2)))  # enough if all were short statements
    kind = draw(probabilities, rng, shape)
    width = max(len(profile.tokens) for profile in profiles.values())
    ids = np.zeros((*shape, width), dtype=np.int32)
    classes = np.full((*shape, width), FILLER, dtype=np.uint8)
    lengths = np.zeros(shape, dtype=np.int64)
    for index, write in enumerate((_write_statements, _write_questions, _write_passages)):
        here = kind == index
        content, token_classes, lengths[here] = write(config, rng, int(here.sum()))
        ids[here, : content.shape[1]] = content
        classes[here, : content.shape[1]] = token_classes
    empty = np.zeros((count, 0), dtype=np.int32)
    return lay_out((empty, empty), (ids, classes), lengths, config.document_length)


Items = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids and classes [item place], lengths [item]


def _write_statements(config: FactbookConfig, rng: np.random.Generator, count: int) -> Items:
    entity = draw(fact_book(config).probability, rng, (count,))
    return _write_facts(config, entity, rng.integers(config.relations, size=count), marks=0)


def _write_questions(config: FactbookConfig, rng: np.random.Generator, count: int) -> Items:
    book = fact_book(config)
    entity = draw(book.probability, rng, (count,))
    askable = np.argsort(~book.asked, axis=1, kind="stable")  # the asked relations come first
    chosen = rng.integers(config.asked_relations, size=count)
    return _write_facts(config, entity, askable[entity, chosen], marks=1)


def _write_facts(
    config: FactbookConfig, entity: np.ndarray, relation: np.ndarray, *, marks: int
) -> Items:
    book, item = fact_book(config), np.arange(len(entity))
    ids = np.zeros((len(entity), FACT_LENGTH + marks), dtype=np.int64)
    classes = np.full(ids.shape, FILLER)
    ids[:, :marks] = config.token_ranges["?"].start
    ids[:, marks : marks + book.names.shape[1]] = book.names[entity]
    end = marks + book.lengths[entity]
    ids[item, end] = config.token_ranges["r"].start + relation
    ids[item, end + 1] = book.values[entity, relation]
    classes[item, end + 1] = STATIC
    return ids, classes, end + 2


def _write_passages(config: FactbookConfig, rng: np.random.Generator, count: int) -> Items:
    ranges, facts = config.token_ranges, config.passage_facts
    first = distinct(config.words, rng, (count, facts))
    known = fact_book(config).known_seconds[first]
    second = rng.integers(config.words - (known < config.words).sum(axis=-1))
    for column in range(known.shape[-1]):  # step over every known ending, in rising order
        second += second >= known[..., column]
    relation = distinct(config.relations, rng, (count, facts))
    value = rng.integers(config.values, size=(count, facts))
    parts = zip((first, second, relation, value), "nnrv", strict=True)
    stated = np.stack([ranges[name].start + part for part, name in parts], axis=-1)
    order = distinct(facts, rng, (count, facts))[..., None]
    marks = np.full((count, facts, 1), ranges["?"].start)
    asked = np.concatenate([marks, np.take_along_axis(stated, order, axis=1)], axis=-1)
    opening = np.full((count, 1), ranges["["].start)
    parts = (opening, stated.reshape(count, 4 * facts), asked.reshape(count, 5 * facts))
    ids = np.concatenate(parts, axis=1)
    classes = np.array([FILLER] * (1 + 4 * facts) + [*[FILLER] * 4, COMPUTED] * facts)
    return ids, classes, np.full(count, ids.shape[1])


def _known_passage(config: FactbookConfig, rng: np.random.Generator) -> np.ndarray:
    """A passage about entities of the book, no two of which open with one word."""
    book, marks = fact_book(config), config.token_ranges
    order = rng.permutation(config.entities)
    opens = np.unique(book.names[order, 0], return_index=True)[1]
    entities = order[np.sort(opens)[: config.passage_facts]]
    relations = distinct(config.relations, rng, (1, len(entities)))[0]
    chosen = np.column_stack([entities, relations]).tolist()
    facts = [_fact(config, *fact) for fact in chosen]
    asked = facts[rng.integers(len(facts))]
    return np.concatenate([[marks["["].start], *facts, [marks["?"].start], asked])


def _fact(config: FactbookConfig, entity: int, relation: int) -> np.ndarray:
    """Ids of one fact of the book."""
    book = fact_book(config)
    name = book.names[entity, : book.lengths[entity]]
    relation_id = config.token_ranges["r"].start + relation
    return np.concatenate([name, [relation_id, book.values[entity, relation]]])
