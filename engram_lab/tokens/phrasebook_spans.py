"""D1 span by span: how each kind is written, and what it costs a reader who knows the language.

Every kind has two functions that must tell the same story: `_..._profile` (or a line of
`_profiles`) holds the exact expectation, `_write_...` draws examples. Writers return ids [span
place], the class of each place, and lengths [span].
"""

import numpy as np
import pandas as pd

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.items import (
    CLASS_NAMES,
    COMPUTED,
    FILLER,
    STATIC,
    Block,
    ItemProfile,
    documents_from_blocks,
    draw,
    fixed_profile,
    floor_frame,
    item_probabilities,
    lay_out,
    mixed_profile,
)
from engram_lab.tokens.phrasebook import PhraseBook, PhrasebookConfig, phrase_book

Spans = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids [span place], classes [place], lengths


def phrasebook(config: PhrasebookConfig, n_tokens: int, seed: int) -> Documents:
    """Documents of the D1 language of `config`, with the class of every token.

    Static are the words of a phrase behind the first; computed are sums, the end of a bracket span
    behind its first `;`, and copied words; filler is the rest: first words, digits to add, brackets
    of the walk, marks, the opening, eos.

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
        name="d1",
    )


def phrasebook_floor(config: PhrasebookConfig, *, first_token: bool = False) -> pd.DataFrame:
    """Exact floor of D1; see `engram_lab.tokens.synthetic.entropy_floor`."""
    profiles = _profiles(config)
    item = mixed_profile(profiles, item_probabilities(profiles, config.token_shares))
    slot = [(FILLER, 0.0)] + [(FILLER, np.log(config.words))] * config.copy_length
    header = fixed_profile(*slot * (config.opening_length // len(slot)))
    return floor_frame(item, header, config.document_length, first_token=first_token)


def _profiles(config: PhrasebookConfig) -> dict[str, ItemProfile]:
    """What each kind of span is expected to hold and to cost, in the order of `KINDS`."""
    digits = [(FILLER, np.log(config.modulus))] * config.sum_digits
    copied = [(COMPUTED, 0.0)] * config.copy_length
    return {
        "phrase": _phrase_profile(phrase_book(config)),
        "sum": fixed_profile((FILLER, 0.0), *digits, (FILLER, 0.0), (COMPUTED, 0.0)),
        "bracket": _bracket_profile(config.bracket_steps),
        "copy": fixed_profile((FILLER, 0.0), (FILLER, np.log(config.copy_slots)), *copied),
    }


def _phrase_profile(book: PhraseBook) -> ItemProfile:
    """Costs along the prefix tree of the book: -log of a prefix given the one before it."""
    longest = book.phrases.shape[1]
    tokens, nats = np.zeros((2, longest, len(CLASS_NAMES)))
    shorter = np.ones(len(book.phrases))  # of each phrase: probability of its prefix so far
    for place in range(longest):
        token_class = STATIC if place else FILLER
        prefix = np.unique(book.phrases[:, : place + 1], axis=0, return_inverse=True)[1].reshape(-1)
        longer = np.bincount(prefix, weights=book.probability)[prefix]
        tokens[place, token_class] = book.probability[book.lengths > place].sum()
        # a phrase that is over costs nothing more: it opens no other, so its prefix has one way on
        nats[place, token_class] = book.probability @ np.log(shorter / longer)
        shorter = longer
    lengths = np.bincount(book.lengths, weights=book.probability)
    return ItemProfile(lengths=lengths, tokens=tokens, nats=nats)


def _bracket_profile(steps: int) -> ItemProfile:
    tokens, nats = np.zeros((2, 2 * steps + 2, len(CLASS_NAMES)))
    depth = np.eye(steps + 2)[0]  # probability of each depth; one more than can be reached
    for place in range(steps):
        tokens[place, FILLER] = 1
        nats[place, FILLER] = np.log(2) * depth[1:].sum()  # at depth 0 only opening is possible
        opened = np.concatenate([[0], depth[:1], depth[1:-1] / 2])
        closed = np.concatenate([depth[1:] / 2, [0]])
        depth = opened + closed
    tokens[steps, FILLER] = 1
    at_least = depth[::-1].cumsum()[::-1][: steps + 1]
    tokens[steps + 1 :, COMPUTED] = at_least
    lengths = np.concatenate([np.zeros(steps + 2), depth[: steps + 1]])
    return ItemProfile(lengths=lengths, tokens=tokens, nats=nats)


def _draw_block(config: PhrasebookConfig, rng: np.random.Generator, count: int) -> Block:
    """Ids and classes of `count` documents, [document place]."""
    profiles = _profiles(config)
    probabilities = item_probabilities(profiles, config.token_shares)
    room = config.document_length - config.opening_length - 1
    shortest = min(np.flatnonzero(profile.lengths)[0] for profile in profiles.values())
    shape = (count, -(-room // int(shortest)))  # enough if all spans were the shortest
    slots = config.token_ranges["w"].start + rng.integers(
        config.words, size=(count, config.copy_slots, config.copy_length)
    )
    kind = draw(probabilities, rng, shape)
    width = max(len(profile.tokens) for profile in profiles.values())
    ids = np.zeros((*shape, width), dtype=np.int32)
    classes = np.full((*shape, width), FILLER, dtype=np.uint8)
    lengths = np.zeros(shape, dtype=np.int64)
    for index, write in enumerate((_write_phrases, _write_sums, _write_brackets, _write_copies)):
        here = kind == index
        content, token_classes, lengths[here] = write(config, rng, slots[np.nonzero(here)[0]])
        ids[here, : content.shape[1]] = content
        classes[here, : content.shape[1]] = token_classes
    opening = np.zeros((count, 0), dtype=np.int32)
    if config.opening_length:
        names = np.broadcast_to(
            np.array(config.token_ranges["slot"])[:, None], (*slots.shape[:2], 1)
        )
        opening = np.concatenate([names, slots], axis=2).reshape(count, -1)
    header = (opening, np.full(opening.shape, FILLER))
    return lay_out(header, (ids, classes), lengths, config.document_length)


def _write_phrases(config: PhrasebookConfig, rng: np.random.Generator, slots: np.ndarray) -> Spans:
    book = phrase_book(config)
    chosen = draw(book.probability, rng, (len(slots),))
    classes = np.array([FILLER] + [STATIC] * (book.phrases.shape[1] - 1))
    return book.phrases[chosen], classes, book.lengths[chosen]


def _write_sums(config: PhrasebookConfig, rng: np.random.Generator, slots: np.ndarray) -> Spans:
    ranges = config.token_ranges
    digits = rng.integers(config.modulus, size=(len(slots), config.sum_digits))
    ids = np.empty((len(slots), config.sum_digits + 3), dtype=np.int64)
    ids[:, 0], ids[:, -2] = ranges["+"].start, ranges["="].start
    ids[:, 1:-2] = ranges["digit"].start + digits
    ids[:, -1] = ranges["digit"].start + digits.sum(axis=1) % config.modulus
    classes = np.array([FILLER] * (config.sum_digits + 2) + [COMPUTED])
    return ids, classes, np.full(len(slots), ids.shape[1])


def _write_brackets(config: PhrasebookConfig, rng: np.random.Generator, slots: np.ndarray) -> Spans:
    ranges, steps = config.token_ranges, config.bracket_steps
    opens = rng.random((len(slots), steps)) < 0.5
    depth = np.zeros(len(slots), dtype=np.int64)
    for step in range(steps):
        opens[:, step] |= depth == 0
        depth += np.where(opens[:, step], 1, -1)
    ids = np.full((len(slots), 2 * steps + 2), ranges[";"].start)
    ids[:, :steps] = np.where(opens, ranges["("].start, ranges[")"].start)
    closing = ids[:, steps + 1 :]
    closing[np.arange(steps + 1) < depth[:, None]] = ranges[")"].start
    classes = np.array([FILLER] * (steps + 1) + [COMPUTED] * (steps + 1))
    return ids, classes, steps + 2 + depth


def _write_copies(config: PhrasebookConfig, rng: np.random.Generator, slots: np.ndarray) -> Spans:
    ranges = config.token_ranges
    chosen = rng.integers(config.copy_slots, size=len(slots))
    mark = np.full(len(slots), ranges["@"].start)
    copied = slots[np.arange(len(slots)), chosen]
    ids = np.column_stack([mark, ranges["slot"].start + chosen, copied])
    classes = np.array([FILLER, FILLER] + [COMPUTED] * config.copy_length)
    return ids, classes, np.full(len(slots), ids.shape[1])
