"""The text bundle as documents of token ids: `load_text_corpus`.

What else one needs to train on text can be imported from here too: the documents and their split
(`documents`), the batches (`batches`), the texts themselves (`bundle`).
"""

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from engram_lab import paths
from engram_lab.tokens.batches import Batch, PackedDataset, padded_batches
from engram_lab.tokens.bundle import chosen_files, corpus_manifest, load_corpus_texts
from engram_lab.tokens.documents import Documents, sample_texts, split_documents
from engram_lab.tokens.tokenizer import EOS_ID, Tokenizer

__all__ = [
    "Batch",
    "Documents",
    "PackedDataset",
    "corpus_manifest",
    "load_corpus_texts",
    "load_text_corpus",
    "padded_batches",
    "sample_texts",
    "split_documents",
]
CORPUS_FORMAT = 2
"""Raised when the same texts would give other ids; part of the name of every cached file."""


def load_text_corpus(
    tokenizer: Tokenizer,
    *,
    parts: Sequence[str] | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    max_document_tokens: int = 1024,
) -> Documents:
    """Documents of the bundle as token ids, parts interleaved, each document closed by eos.

    Every part is shuffled by itself; then the parts take turns so that any stretch holds them in
    the proportion of their sizes, and a smaller `max_tokens` gives the beginning of what a larger
    one gives. A text is tokenised as a whole and then cut between tokens, where a line ends if
    possible, so no pair of tokens arises that the whole text does not have. The class of a token is
    the part it comes from, its source the text. Ids are kept in `paths.cache_dir()`.

    Args:
        tokenizer: gives the ids.
        parts: names from the `part` column of `corpus_manifest()`; all of them by default.
        max_tokens: stop at this many ids, eos included; by default everything is read.
        seed: of the shuffle.
        max_document_tokens: longest document, eos included; a longer text becomes several.

    Raises:
        ValueError: if a part is unknown or damaged, or a number is too small.
        FileNotFoundError: if the bundle is not at hand.
    """
    if max_document_tokens < 2 or (max_tokens is not None and max_tokens < 2):
        raise ValueError(
            "load_text_corpus needs max_tokens and max_document_tokens of at least 2 (a token and "
            f"eos), got {max_tokens} and {max_document_tokens}"
        )
    files = chosen_files(parts)
    sums = list(files["sha256_xz"])
    request = [CORPUS_FORMAT, tokenizer.fingerprint, sums, max_tokens, seed, max_document_tokens]
    key = hashlib.sha256(json.dumps(request).encode()).hexdigest()[:12]
    path = paths.cache_dir() / f"text_{tokenizer.name}_{key}.npz"
    if not path.is_file():
        texts = load_corpus_texts(list(dict.fromkeys(files["part"])))
        shares = files.groupby("part", sort=False)["raw_bytes"].sum().to_numpy(np.float64)
        streams = [
            _pieces(tokenizer, own, np.random.default_rng([seed, part]), max_document_tokens - 1)
            for part, own in enumerate(_numbered(texts))
        ]
        documents = _interleave(streams, shares, max_tokens, tokenizer, tuple(texts))
        _write_cache(path, documents)
        return documents
    return _read_cache(path, tokenizer)


def _numbered(texts: dict[str, list[str]]) -> Iterator[list[tuple[int, str]]]:
    """The texts of every part, numbered through all parts."""
    begin = 0
    for own in texts.values():
        yield list(enumerate(own, begin))
        begin += len(own)


def _pieces(
    tokenizer: Tokenizer,
    texts: list[tuple[int, str]],
    generator: np.random.Generator,
    longest: int,
) -> Iterator[tuple[int, np.ndarray]]:
    """Pieces of one part, each with its text's number, in shuffled order of the texts.

    Some hundred kB are tokenised at a time.
    """
    ends_line = np.array(
        [tokenizer.token_bytes(token).endswith(b"\n") for token in range(tokenizer.vocab_size)]
    )
    block, size = [], 0
    order = generator.permutation(len(texts))
    for count, index in enumerate(order, 1):
        block.append(texts[index])
        size += len(texts[index][1])
        if size >= 200_000 or count == len(order):
            encoded = tokenizer.encode_batch([text for _, text in block])
            for (source, _), ids in zip(block, encoded, strict=True):
                for piece in _cut(np.asarray(ids, np.int32), ends_line, longest):
                    yield source, piece
            block, size = [], 0


def _interleave(
    streams: list[Iterator[tuple[int, np.ndarray]]],
    shares: np.ndarray,
    max_tokens: int | None,
    tokenizer: Tokenizer,
    names: tuple[str, ...],
) -> Documents:
    """Take the next piece from the part furthest behind its share, until there is enough."""
    pieces, classes, sources = [], [], []
    taken, total = np.zeros(len(streams)), 0
    while (max_tokens is None or max_tokens - total >= 2) and np.isfinite(taken).any():
        part = int(np.argmin(taken / shares))
        source, piece = next(streams[part], (0, None))
        if piece is None:
            taken[part] = np.inf
            continue
        if max_tokens is not None:
            piece = piece[: max_tokens - total - 1]
        if len(piece):
            pieces.append(np.append(piece, np.int32(EOS_ID)))
            sources.append(source)
            classes.append(np.full(len(piece) + 1, part, np.uint8))
            taken[part] += len(piece) + 1
            total += len(piece) + 1
    return Documents.from_lists(
        pieces,
        vocab_size=tokenizer.vocab_size,
        classes=classes,
        class_names=names,
        sources=sources,
        name="text",
    )


def _cut(ids: np.ndarray, ends_line: np.ndarray, longest: int) -> Iterator[np.ndarray]:
    """Cut a tokenised text into pieces of at most `longest` ids, behind a line end if possible."""
    ends = np.flatnonzero(ends_line[ids]) + 1
    begin = 0
    while len(ids) - begin > longest:
        last = np.searchsorted(ends, begin + longest, side="right") - 1
        end = int(ends[last]) if last >= 0 and ends[last] > begin else begin + longest
        yield ids[begin:end]
        begin = end
    yield ids[begin:]


def _write_cache(path: Path, documents: Documents) -> None:
    """Write the arrays beside their place, then move them there: no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.uint16 if documents.vocab_size <= 1 << 16 else np.int32
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(
                file,
                ids=documents.ids.astype(small),
                offsets=documents.offsets,
                classes=documents.classes,
                class_names=np.array(documents.class_names),
                sources=documents.sources,
            )
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _read_cache(path: Path, tokenizer: Tokenizer) -> Documents:
    """The documents that `_write_cache` stored."""
    try:
        with np.load(path) as stored:
            return Documents(
                ids=stored["ids"].astype(np.int32),
                offsets=stored["offsets"],
                vocab_size=tokenizer.vocab_size,
                classes=stored["classes"],
                class_names=tuple(str(name) for name in stored["class_names"]),
                sources=stored["sources"],
                name="text",
            )
    except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
        raise ValueError(
            f"cached ids {path} cannot be read ({error}); delete the file and try again"
        ) from error
