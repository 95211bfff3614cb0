"""Documents made of independent items: the frame that the generated corpora share.

A document has a fixed length: a header, items drawn independently of one another until the room is
full (the last item is cut), and eos. Everything an ideal predictor pays can therefore be added up
exactly: `boundary_probability` says how likely an item starts at a place, `ItemProfile` says what
one item costs at each of its places.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.tokenizer import EOS_ID, RESERVED

CLASS_NAMES = ("static", "computed", "filler")
STATIC, COMPUTED, FILLER = range(3)
BLOCK_DOCUMENTS = 512  # documents drawn at a time: bounds the memory, and part of what a seed means
LANGUAGE, SAMPLE = 0, 1  # random streams: the rules of a corpus, the documents drawn from it

Block = tuple[np.ndarray, np.ndarray]  # ids int32, classes uint8: both document place


@dataclasses.dataclass(frozen=True, kw_only=True)
class ItemProfile:
    """What one kind of item is expected to hold and to cost, place by place.

    Attributes:
        lengths: probability of each length, counted from 0.
        tokens: expected number of tokens, [place class]; below 1 where the item may already be
            over.
        nats: expected surprisal for a predictor that knows the language and the kind of item,
            [place class].
    """

    lengths: Float64[np.ndarray, "length"]
    tokens: Float64[np.ndarray, "place class"]
    nats: Float64[np.ndarray, "place class"]

    @property
    def mean_length(self) -> float:
        """Expected number of tokens of an uncut item."""
        return float(self.tokens.sum())


def fixed_profile(*places: tuple[int, float]) -> ItemProfile:
    """Profile of an item whose length is always the same, from the (class, nats) of each place."""
    tokens, nats = np.zeros((2, len(places), len(CLASS_NAMES)))
    for place, (token_class, cost) in enumerate(places):
        tokens[place, token_class] = 1
        nats[place, token_class] = cost
    return ItemProfile(lengths=np.eye(len(places) + 1)[-1], tokens=tokens, nats=nats)


def item_probabilities(
    profiles: Mapping[str, ItemProfile], token_shares: Mapping[str, float]
) -> Float64[np.ndarray, "kind"]:
    """How often to draw each kind of item, so that its tokens take the wanted share of tokens."""
    weights = np.array([token_shares[name] / profiles[name].mean_length for name in profiles])
    return weights / weights.sum()


def mixed_profile(
    profiles: Mapping[str, ItemProfile], probabilities: Float64[np.ndarray, "kind"]
) -> ItemProfile:
    """Profile of an item of unknown kind: its first token, a filler, also tells the kind."""
    places = max(len(profile.tokens) for profile in profiles.values())
    lengths = np.zeros(places + 1)
    tokens, nats = np.zeros((2, places, len(CLASS_NAMES)))
    for profile, probability in zip(profiles.values(), probabilities, strict=True):
        lengths[: len(profile.lengths)] += probability * profile.lengths
        tokens[: len(profile.tokens)] += probability * profile.tokens
        nats[: len(profile.nats)] += probability * profile.nats
    nats[0, FILLER] += entropy(probabilities)
    return ItemProfile(lengths=lengths, tokens=tokens, nats=nats)


def boundary_probability(
    lengths: Float64[np.ndarray, "length"], room: int
) -> Float64[np.ndarray, "place"]:
    """Probability that an item starts at each place of the room; at the first one always does."""
    starts = np.zeros(room)
    starts[:1] = 1
    for place in range(1, room):
        reach = min(place, len(lengths) - 1)
        starts[place] = starts[place - reach : place] @ lengths[reach:0:-1]
    return starts


def floor_frame(
    item: ItemProfile, header: ItemProfile, document_length: int, *, first_token: bool
) -> pd.DataFrame:
    """Expected surprisal of the ideal predictor by token class, over whole documents.

    The last item may be cut, so a place of an item counts as often as an item starts early enough
    for it.

    Args:
        item: one item of unknown kind, from `mixed_profile`.
        header: what every document opens with, perhaps nothing.
        document_length: tokens of a document, header and eos included.
        first_token: whether to count the first token of the document, a filler.

    Returns:
        One row per class that occurs, with columns token_class, floor_nats (per token of the
        class), share (of all tokens counted) and exact.
    """
    room = document_length - len(header.tokens) - 1
    starts_so_far = np.cumsum(boundary_probability(item.lengths, room))
    # place p of an item lies in the room if the item starts before room - p
    seen = starts_so_far[::-1][: len(item.tokens)]
    tokens = header.tokens.sum(0) + seen @ item.tokens[: len(seen)]
    nats = header.nats.sum(0) + seen @ item.nats[: len(seen)]
    tokens[FILLER] += 1  # eos, which stands at a place known beforehand
    if not first_token:
        opening = header if len(header.tokens) else item
        tokens[FILLER] -= 1
        nats[FILLER] -= opening.nats[0, FILLER]
    occurs = tokens > 0
    return pd.DataFrame(
        {
            "token_class": np.array(CLASS_NAMES)[occurs],
            "floor_nats": nats[occurs] / tokens[occurs],
            "share": tokens[occurs] / tokens.sum(),
            "exact": True,
        }
    )


def lay_out(
    header: Block,
    items: Block,
    lengths: Int64[np.ndarray, "document item"],
    document_length: int,
) -> Block:
    """Documents of items set end to end behind the header, cut where the room ends, then eos.

    Args:
        header: ids and classes, [document place].
        items: ids and classes, [document item place], padded to the longest item.
        lengths: tokens of each item, [document item]; together they must fill the room.
        document_length: tokens of a document, header and eos included.
    """
    documents, head = header[0].shape
    place = np.arange(items[0].shape[-1])
    ends = np.cumsum(lengths, axis=1)
    room_left = document_length - head - 1 - (ends - lengths)
    keep = place < np.minimum(lengths, room_left)[..., None]
    ids = np.full((documents, document_length), EOS_ID, dtype=np.int32)
    classes = np.full((documents, document_length), FILLER, dtype=np.uint8)
    for target, opening, content in zip((ids, classes), header, items, strict=True):
        target[:, :head] = opening
        target[:, head:-1] = content[keep].reshape(documents, -1)
    return ids, classes


def documents_from_blocks(
    draw_block: Callable[[np.random.Generator, int], Block],
    *,
    n_tokens: int,
    document_length: int,
    seed: int,
    vocab_size: int,
    name: str,
) -> Documents:
    """Whole documents of at least `n_tokens` tokens; a longer sample begins with the shorter one.

    Args:
        draw_block: makes ids and classes of a number of documents from a generator.
        n_tokens: tokens wished, rounded up to whole documents.
        document_length: tokens of every document.
        seed: names the sample; 0 or more.
        vocab_size: ids below this one may occur.
        name: what the corpus is called in figures.

    Raises:
        ValueError: if `n_tokens` is below 1 or `seed` below 0.
    """
    if n_tokens < 1:
        raise ValueError(f"n_tokens must be at least 1, got {n_tokens}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    count = -(-n_tokens // document_length)
    blocks = [
        draw_block(np.random.default_rng([SAMPLE, seed, block]), BLOCK_DOCUMENTS)
        for block in range(-(-count // BLOCK_DOCUMENTS))
    ]
    ids, classes = (np.concatenate(parts)[:count] for parts in zip(*blocks, strict=True))
    return Documents(
        ids=ids.reshape(-1),
        offsets=np.arange(count + 1, dtype=np.int64) * document_length,
        vocab_size=vocab_size,
        classes=classes.reshape(-1),
        class_names=CLASS_NAMES,
        name=name,
    )


def check_positive(config: object, names: Sequence[str]) -> None:
    """Refuse a config some of whose sizes are below 1.

    Raises:
        ValueError: naming the first such size.
    """
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")


def token_ranges(**counts: int) -> dict[str, range]:
    """Consecutive id ranges behind the reserved ids, one per named set of tokens."""
    ranges, start = {}, len(RESERVED)
    for name, count in counts.items():
        ranges[name] = range(start, start + count)
        start += count
    return ranges


def zipf(count: int, exponent: float) -> Float64[np.ndarray, "rank"]:
    """Probabilities falling with rank as rank^-exponent; 0 gives equal ones."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def draw(
    probabilities: Float64[np.ndarray, "outcome"], rng: np.random.Generator, shape: tuple[int, ...]
) -> Int64[np.ndarray, "..."]:
    """Indices drawn with the given probabilities."""
    cumulative = np.cumsum(probabilities)[:-1]  # without the last: rounding cannot lead outside
    return np.searchsorted(cumulative, rng.random(shape), side="right")


def distinct(among: int, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Numbers below `among`, those of one row all different, every order equally likely."""
    chosen = np.zeros(shape, dtype=np.int64)
    for place in range(shape[1]):
        number = rng.integers(among - place, size=shape[0])
        for taken in np.sort(chosen[:, :place], axis=1).T:
            number += number >= taken
        chosen[:, place] = number
    return chosen


def entropy(probabilities: Float64[np.ndarray, "outcome"]) -> float:
    """Shannon entropy in nats; outcomes of probability 0 count nothing."""
    held = probabilities[probabilities > 0]
    return float(-(held * np.log(held)).sum())
