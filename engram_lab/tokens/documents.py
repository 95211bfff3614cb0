"""Documents of token ids, end to end in one array, and their split into training and validation.

A document is a run of ids that ends with the eos id; no bos is put before it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int32, Int64, UInt8


@dataclass(frozen=True, kw_only=True, eq=False)
class Documents:
    """Token ids of many documents, laid end to end.

    Attributes:
        ids: token ids of all documents.
        offsets: document i is `ids[offsets[i]:offsets[i + 1]]`; one more entry than documents.
        vocab_size: ids lie below it.
        classes: class of every token, an index into `class_names`; None where no classes are known.
        class_names: e.g. "static" and "computed" for generated text, the parts of the bundle for
            real text.
        sources: number of the text that each document is a piece of; None where every document is
            a text of its own.
        name: for messages and frames.
    """

    ids: Int32[np.ndarray, "token"]
    offsets: Int64[np.ndarray, "bound"]
    vocab_size: int
    classes: UInt8[np.ndarray, "token"] | None = None
    class_names: tuple[str, ...] = ()
    sources: Int64[np.ndarray, "document"] | None = None
    name: str = "documents"

    def __post_init__(self) -> None:
        """Refuse empty documents, offsets that do not fit `ids`, ids or classes out of range."""
        bounds = self.offsets
        if (
            len(bounds) == 0
            or bounds[0] != 0
            or bounds[-1] != len(self.ids)
            or np.any(np.diff(bounds) <= 0)
        ):
            raise ValueError(
                f"Documents.offsets must rise from 0 to the number of ids ({len(self.ids)}) without"
                f" empty documents, got {bounds[:5]}...{bounds[-1:]}"
            )
        if len(self.ids) and not 0 <= self.ids.min() <= self.ids.max() < self.vocab_size:
            raise ValueError(
                f"Documents.ids must lie in 0..{self.vocab_size - 1}, "
                f"got {self.ids.min()}..{self.ids.max()}"
            )
        if (
            self.classes is not None
            and len(self.ids)
            and self.classes.max() >= len(self.class_names)
        ):
            raise ValueError(
                f"Documents.classes must index class_names {self.class_names}, "
                f"got {self.classes.max()}"
            )
        if self.sources is not None and len(self.sources) != len(bounds) - 1:
            raise ValueError(
                f"Documents.sources needs one number per document ({len(bounds) - 1}), "
                f"got {len(self.sources)}"
            )

    @classmethod
    def from_lists(
        cls,
        documents: Sequence[Sequence[int] | np.ndarray],
        *,
        vocab_size: int,
        classes: Sequence[Sequence[int] | np.ndarray] | None = None,
        class_names: tuple[str, ...] = (),
        sources: Sequence[int] | None = None,
        name: str = "documents",
    ) -> "Documents":
        """Documents from one sequence of ids each, and one of classes each where there are any."""
        lengths = [len(document) for document in documents]
        return cls(
            ids=_concatenate(documents, np.int32),
            offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            vocab_size=vocab_size,
            classes=None if classes is None else _concatenate(classes, np.uint8),
            class_names=class_names,
            sources=None if sources is None else np.asarray(sources, np.int64),
            name=name,
        )

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int32[np.ndarray, "token"]:
        """Ids of one document; negative indices count from the end."""
        index = range(len(self))[index]
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def token_count(self) -> int:
        """Number of ids in all documents."""
        return len(self.ids)

    @property
    def lengths(self) -> Int64[np.ndarray, "document"]:
        """Number of ids of each document."""
        return np.diff(self.offsets)

    def select(
        self,
        indices: Sequence[int] | np.ndarray,
        *,
        longest: int | None = None,
        name: str | None = None,
    ) -> "Documents":
        """The documents at some indices, in the order given, each cut to `longest` ids."""
        indices = np.asarray(indices, dtype=np.int64)
        lengths = self.lengths[indices]
        if longest is not None:
            lengths = np.minimum(lengths, longest)
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        source = np.repeat(self.offsets[indices] - bounds[:-1], lengths) + np.arange(bounds[-1])
        return Documents(
            ids=self.ids[source],
            offsets=bounds,
            vocab_size=self.vocab_size,
            classes=None if self.classes is None else self.classes[source],
            class_names=self.class_names,
            sources=None if self.sources is None else self.sources[indices],
            name=name or self.name,
        )


def split_documents(
    documents: Documents, validation_share: float, seed: int = 0
) -> tuple[Documents, Documents]:
    """Training and validation documents: disjoint, complete, and the same on every machine.

    Documents are ranked by a hash of their ids and the seed, and the lowest ranks validate.
    Documents of equal ids stay together, so none of the validation documents is in the training set
    word for word. Pieces of one text stay together too, with the lowest rank among them, so no text
    is in both.

    Args:
        documents: what to split.
        validation_share: share of documents that validate, in (0, 1); at least one document goes to
            each side.
        seed: another seed gives another split.

    Raises:
        ValueError: if the share is out of range, or fewer than two different documents are at hand.
    """
    if not 0 < validation_share < 1:
        raise ValueError(f"validation_share must lie between 0 and 1, got {validation_share}")
    salt = int(seed).to_bytes(8, "little", signed=True)
    digests = [
        hashlib.blake2b(documents.ids[begin:end].tobytes(), digest_size=8, key=salt).digest()
        for begin, end in pairwise(documents.offsets.tolist())
    ]
    keys = _by_source(np.frombuffer(b"".join(digests), dtype="<u8"), documents.sources)
    if len(np.unique(keys)) < 2:
        raise ValueError(
            f"split_documents needs two different documents, got {len(keys)} of one kind"
        )
    wanted = min(max(round(len(keys) * validation_share), 1), len(keys) - 1)
    validates = keys <= np.sort(keys)[wanted - 1]
    if validates.all():  # one text repeated so often that it reaches past the share
        validates = keys < keys.max()
    train, validation = np.flatnonzero(~validates), np.flatnonzero(validates)
    return (
        documents.select(train, name=f"{documents.name}/train"),
        documents.select(validation, name=f"{documents.name}/validation"),
    )


def sample_texts(
    documents: Documents, tokens: int, *, longest: int, like: Documents, seed: int = 0
) -> Documents:
    """Pieces of as many texts as possible: one piece of each, and second ones only after that.

    For evaluation, where pieces of one text say little more than one of them.

    Args:
        documents: pieces and their `sources`; without sources every document is a text.
        tokens: stop when there are this many ids, or all pieces are taken.
        longest: ids kept of a piece.
        like: documents, of the same classes, whose shares of tokens by class the sample takes.
        seed: of the choice of pieces and the order of texts.
    """
    generator = np.random.default_rng(seed)
    sources = np.arange(len(documents)) if documents.sources is None else documents.sources
    shuffled = generator.permutation(len(documents))
    order = shuffled[np.argsort(_count_before(sources[shuffled]), kind="stable")]
    lengths = np.minimum(documents.lengths, longest)
    part = _first_class(documents)
    share = np.bincount(_first_class(like), weights=like.lengths, minlength=part.max() + 1)
    # a piece is due when its class, taken evenly, has reached the piece's middle
    due = np.full(len(documents), np.inf)
    for one in np.flatnonzero(share):
        own = order[part[order] == one]
        due[own] = (np.cumsum(lengths[own]) - lengths[own] / 2) / share[one]
    chosen = order[np.argsort(due[order], kind="stable")]
    enough = np.searchsorted(np.cumsum(lengths[chosen]), tokens) + 1
    return documents.select(chosen[:enough], longest=longest)


def _first_class(documents: Documents) -> np.ndarray:
    """Class of the first token of every document, 0 where there are no classes."""
    if documents.classes is None:
        return np.zeros(len(documents), np.int64)
    return documents.classes[documents.offsets[:-1]].astype(np.int64)


def _count_before(values: np.ndarray) -> np.ndarray:
    """How often each value occurred before its place."""
    order = np.argsort(values, kind="stable")
    _, begins, counts = np.unique(values[order], return_index=True, return_counts=True)
    before = np.empty(len(values), np.int64)
    before[order] = np.arange(len(values)) - np.repeat(begins, counts)
    return before


def _by_source(keys: np.ndarray, sources: np.ndarray | None) -> np.ndarray:
    """The lowest key among the pieces of a text, for each of them."""
    if sources is None:
        return keys
    _, text = np.unique(sources, return_inverse=True)
    lowest = np.full(text.max() + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(lowest, text, keys)
    return lowest[text]


def _concatenate(pieces: Sequence[Sequence[int] | np.ndarray], dtype: type) -> np.ndarray:
    """All pieces in one array, empty if there are none."""
    return np.concatenate(
        [np.zeros(0, dtype), *(np.asarray(piece).astype(dtype) for piece in pieces)]
    )
