"""Code and its manual: the Python standard library, and the sources of the Python manual."""

import re
from collections.abc import Iterator
from pathlib import Path

TABLES = ("encodings/", "pydoc_data/", "unicodedata", "lib2to3/tests", "_sysconfigdata")
"""Paths of the standard library that hold tables rather than code."""
MANUAL = ("faq", "howto", "library", "reference", "tutorial")


def standard_library(*folders: Path) -> Iterator[str]:
    """One document a module, as it is, in the order of the module paths."""
    modules = {
        path.relative_to(folder / "usr/lib/python3.11").as_posix(): path
        for folder in folders
        for path in (folder / "usr/lib/python3.11").rglob("*.py")
    }
    for name in sorted(modules):
        if any(table in name for table in TABLES) or modules[name].is_symlink():
            continue
        text = _utf8(modules[name])
        if len(text) >= 200:
            yield text


def _utf8(path: Path) -> str:
    """Text of a file, or nothing if it is written in another encoding."""
    try:
        return path.read_text(encoding="utf-8").strip("\n\f")
    except UnicodeDecodeError:
        return ""


def python_manual(files: Path) -> Iterator[str]:
    """One document a page of the Python manual: its source, roles reduced to their text."""
    sources = files / "usr/share/doc/python3.11/html/_sources"
    for chapter in MANUAL:
        for path in sorted((sources / chapter).rglob("*.txt")):
            text = path.read_text(encoding="utf-8")
            text = re.sub(r":pep:`(\d+)[^`]*`", r"PEP \1", text)
            text = re.sub(r":[a-z:]+:`[!~]?([^`<]+?)( <[^`>]*>)?`", r"`\1`", text)
            text = re.sub(
                r"^\.\. (_[^\n]*:|[a-z]*author:: .*|index::.*|highlight.*)\n",
                "",
                text,
                flags=re.MULTILINE,
            )
            text = re.sub(r"\n{3,}", "\n\n", text).strip()
            if len(text) >= 200:
                yield text
