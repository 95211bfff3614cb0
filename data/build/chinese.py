"""Chinese text: classical verse and prose, and a modern manual."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from cleaning import CJK, closed_up, html_blocks, without_repeats

TANG_BYTES, SONG_BYTES = 3_200_000, 1_800_000
"""How much of the two large collections is taken, in bytes of UTF-8."""


def poetry(files: Path) -> Iterator[str]:
    """One document a poem or chapter: title, author where there is one, then the lines.

    Only the old texts are read; the notes, lives and comments of the collection are modern.
    """
    dist = files / "package" / "dist"
    for folder in ("shijing", "chuci", "lunyu", "sishuwujing", "caocaoshiji", "yuanqu"):
        for path in sorted((dist / folder).glob("*.json")):
            yield from _poems(path)
    yield from _slice(dist / "quantangshi", "poet.tang.*.json", TANG_BYTES)
    yield from _slice(dist / "songci", "ci.song.*.json", SONG_BYTES)


def _slice(folder: Path, pattern: str, size: int) -> Iterator[str]:
    """Poems from every file of a collection, the first ones of each, `size` bytes in all."""
    paths = sorted(folder.glob(pattern), key=lambda path: (len(path.name), path.name))
    for path in paths:
        left = size // len(paths)
        for poem in _poems(path):
            if left <= 0:
                break
            left -= len(poem.encode())
            yield poem


def _poems(path: Path) -> Iterator[str]:
    """Poems of one file that have no lost characters."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for poem in content if isinstance(content, list) else [content]:
        lines = [line.strip() for line in poem.get("paragraphs") or poem.get("content") or []]
        title = poem.get("title") or poem.get("rhythmic") or poem.get("chapter") or ""
        text = "\n".join(part for part in (title, poem.get("author") or "", *lines) if part)
        if lines and not re.search(r"[？?]{2}|[□■（）〖〗{}<>A-Za-z\[\]]", text):
            yield text


def office_help(files: Path) -> Iterator[str]:
    """One document a page of the LibreOffice help.

    A paragraph that comes again is kept once, and one that nobody translated is left out.
    """
    seen: set[str] = set()
    pages = files / "usr/share/libreoffice/help/zh-CN/text"
    for path in sorted(pages.rglob("*.html"), key=lambda path: path.as_posix()):
        html = path.read_text(encoding="utf-8")
        blocks = html_blocks(html, '<div id="DisplayArea"', '<div id="SearchFrame"')
        chinese = [closed_up(block) for block in blocks if _mostly_chinese(block)]
        yield from _page(without_repeats(chinese, seen))


def _mostly_chinese(block: str) -> bool:
    """Whether the characters of a block outnumber its words in Latin letters."""
    return len(re.findall(f"[{CJK}]", block)) > len(re.findall(r"[A-Za-z]+", block))


def _page(blocks: list[str]) -> Iterator[str]:
    """A page as a document, unless little more than its heading is left."""
    text = "\n".join(blocks)
    if len(text) >= 80 and len(blocks) > 1:
        yield text
