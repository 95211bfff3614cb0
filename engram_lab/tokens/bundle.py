"""The bundle of real text in `data/corpora`: what it holds, and its documents, checked by sum.

Each part is one source under one licence, stored as one or more files of JSON strings, one document
a line, compressed with xz. `manifest.json` names package, version, licence, sizes and SHA-256 sums
of every file.
"""

import hashlib
import json
import lzma
from collections.abc import Sequence

import pandas as pd
from pandas import DataFrame

from engram_lab import paths


def corpus_manifest() -> DataFrame:
    """One row per file of the bundle.

    Returns:
        Columns `part file package version licence licence_file language kind raw_bytes xz_bytes
        documents sha256_xz sha256_raw`; `raw_bytes` counts the UTF-8 text of the documents.

    Raises:
        FileNotFoundError: if the bundle is not where `paths.corpora_dir()` looks for it.
    """
    path = paths.corpora_dir() / "manifest.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"the text bundle needs {path}, which does not exist. Restore it from version control, "
            "or build the bundle with data/build/build_corpora.py"
        )
    return pd.DataFrame(json.loads(path.read_text(encoding="utf-8")))


def chosen_files(parts: Sequence[str] | None = None) -> DataFrame:
    """The manifest rows of some parts (default: all), in the order of the manifest.

    Raises:
        ValueError: if a part is not in the manifest; the message lists those that are.
    """
    manifest = corpus_manifest()
    if parts is None:
        return manifest
    known = list(dict.fromkeys(manifest["part"]))
    unknown = [part for part in parts if part not in known]
    if unknown or not parts:
        raise ValueError(f"corpus parts must be among {', '.join(known)}; got {unknown or parts}")
    return manifest[manifest["part"].isin(parts)].reset_index(drop=True)


def load_corpus_texts(parts: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Documents of the bundle by part, as text.

    Args:
        parts: names from the manifest's `part` column; all of them by default.

    Raises:
        ValueError: if a part is unknown, or a file differs from its sum in the manifest.
        FileNotFoundError: if the bundle or one of its files is missing.
    """
    texts: dict[str, list[str]] = {}
    for row in chosen_files(parts).itertuples():
        packed = (paths.corpora_dir() / row.file).read_bytes()
        _check_sum(row.file, packed, row.sha256_xz)
        lines = lzma.decompress(packed).decode("utf-8").split("\n")[:-1]
        texts.setdefault(row.part, []).extend(json.loads(line) for line in lines)
    return texts


def _check_sum(file: str, packed: bytes, expected: str) -> None:
    """Refuse a file whose SHA-256 is not the manifest's."""
    found = hashlib.sha256(packed).hexdigest()
    if found != expected:
        raise ValueError(
            f"corpus file {file} must have the SHA-256 sum {expected} of the manifest, got {found};"
            " it is damaged or edited. Restore it from version control, or rebuild the bundle with "
            "data/build/build_corpora.py"
        )
