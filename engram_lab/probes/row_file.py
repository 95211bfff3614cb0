"""A row index as one small file: sorted keys as differences, byte by byte, and their counts."""

import zipfile
from pathlib import Path

import numpy as np
from torch import nn

from engram_lab.memory.keys import KeyCodec, KeyCounts
from engram_lab.probes.row_keys import Reader, RowIndex

FORMAT = 1


def save_index(index: RowIndex, path: Path | str) -> None:
    """Write an index; its hashes are not in the file, they come from the model on loading.

    Keys are sorted, so that their differences are small numbers; the bytes of equal weight stand
    together, where they compress best. Equal indices give equal files.

    Args:
        index: of one model.
        path: where to write, `.npz`.
    """
    vocab_size = next(iter(index.counts.values())).codec.vocab_size
    arrays = {
        "format": np.array(FORMAT),
        "passes": np.array(index.passes),
        "vocab_size": np.array(vocab_size),
        "spellings": _planes(np.array(index.spelling(range(vocab_size)))),
    }
    for order, keys in index.counts.items():
        first, *others = keys.words
        arrays[f"order_{order}_word_0"] = _planes(np.diff(first, prepend=0))
        for place, word in enumerate(others, 1):
            arrays[f"order_{order}_word_{place}"] = _planes(word)
        arrays[f"order_{order}_counts"] = _planes(keys.counts)
    with Path(path).open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_index(path: Path | str, model: nn.Module, tokenizer: Reader | None = None) -> RowIndex:
    """Read an index for the model it was made of.

    Args:
        path: what `save_index` wrote.
        model: gives the hashes.
        tokenizer: gives the texts; None where ids stand for themselves.

    Raises:
        ValueError: if the file is damaged or of another format, or the model hashes another
            vocabulary or other orders.
    """
    hashes = {layer: memory.hash for layer, memory in model.memories.items()}
    try:
        with np.load(path) as stored:
            if int(stored["format"]) != FORMAT:
                raise ValueError(f"its format is {int(stored['format'])}, not {FORMAT}")
            vocab_size, passes = int(stored["vocab_size"]), float(stored["passes"])
            spellings = _numbers(stored["spellings"])
            found = [name for name in stored.files if name.endswith("_counts")]
            orders = [int(name.split("_")[1]) for name in found]
            counts = {order: _keys(stored, order, vocab_size) for order in orders}
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError) as error:
        raise ValueError(f"row index {path} cannot be read: {error}") from error
    for memory_hash in hashes.values():
        wanted = set(range(2, memory_hash.config.max_ngram_size + 1))
        if memory_hash.canonical_vocab_size != vocab_size or set(counts) != wanted:
            raise ValueError(
                f"row index {path} is of {vocab_size} canonical ids and orders {sorted(counts)}; "
                f"this model hashes {memory_hash.canonical_vocab_size} and orders {sorted(wanted)}"
            )
    return RowIndex(hashes, counts, spellings, tokenizer=tokenizer, passes=passes)


def _keys(stored: np.lib.npyio.NpzFile, order: int, vocab_size: int) -> KeyCounts:
    codec = KeyCodec(order=order, vocab_size=vocab_size)
    words = [_numbers(stored[f"order_{order}_word_{place}"]) for place in range(codec.word_count)]
    words[0] = np.cumsum(words[0])
    counts = _numbers(stored[f"order_{order}_counts"])
    return KeyCounts(codec=codec, words=tuple(words), counts=counts)


def _planes(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 on as bytes, `[weight, number]`, without the highest zeros."""
    planes = numbers.astype("<u8").view(np.uint8).reshape(-1, 8).T
    used = np.flatnonzero(planes.any(axis=1))
    return np.ascontiguousarray(planes[: int(used[-1]) + 1 if len(used) else 1])


def _numbers(planes: np.ndarray) -> np.ndarray:
    """The inverse of `_planes`."""
    full = np.zeros((planes.shape[1], 8), np.uint8)
    full[:, : len(planes)] = planes.T
    return full.view("<i8").reshape(-1).astype(np.int64)
