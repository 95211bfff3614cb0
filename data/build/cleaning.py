"""Helpers that turn marked-up or hard-wrapped text into plain paragraphs."""

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

BLOCKS = set(
    [
        "p",
        "div",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "li",
        "dt",
        "dd",
        "tr",
        "pre",
        "table",
        "title",
        "blockquote",
        "caption",
    ]
)
SKIPPED = set(["script", "style", "nav", "header", "footer", "aside", "button", "noscript", "svg"])
CJK = r"\u3400-\u9fff\u3000-\u303f\uff00-\uffef"


class BlockReader(HTMLParser):
    """Collects the text of a page by block: one string a paragraph, heading, row or listing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._text: list[str] = []
        self._skip = self._row = self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, or text that is skipped."""
        self._skip += tag in SKIPPED
        if tag in BLOCKS:
            self._flush(tag)
        self._row += tag == "tr"
        self._pre += tag == "pre"
        if tag == "br":
            self._text.append("\n" if self._pre else " ")

    def handle_endtag(self, tag: str) -> None:
        """End a block, a cell, or text that is skipped."""
        if tag in ("td", "th"):
            self._text.append(" | ")
        if tag in BLOCKS:
            self._flush(tag)
        self._skip -= tag in SKIPPED
        self._row -= tag == "tr"
        self._pre -= tag == "pre"

    def handle_data(self, data: str) -> None:
        """Collect text."""
        if not self._skip:
            self._text.append(data)

    def close(self) -> None:
        """Give out what is left."""
        super().close()
        self._flush("p")

    def _flush(self, tag: str) -> None:
        if self._row and tag != "tr":  # a row is one block, whatever its cells hold
            self._text.append(" ")
            return
        text = "".join(self._text)
        self._text = []
        if self._pre:
            text = "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))
        else:
            text = " ".join(text.split()).strip("| ")
            text = re.sub(r"(\s*\|\s*)+", " | ", text)
        if text.strip():
            self.blocks.append(text)


def html_blocks(html: str, begin: str, end: str) -> list[str]:
    """Blocks of a page between two markers; where one is missing, from its start or to its end."""
    start = html.find(begin)
    stop = html.rfind(end)
    reader = BlockReader()
    reader.feed(html[max(start, 0) : stop if stop > start else len(html)])
    reader.close()
    return reader.blocks


def unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Paragraphs of hard-wrapped text, one string each; empty lines part them."""
    paragraph: list[str] = []
    for line in lines:
        if line.strip():
            paragraph.append(line.strip())
        elif paragraph:
            yield " ".join(paragraph)
            paragraph = []
    if paragraph:
        yield " ".join(paragraph)


def without_repeats(blocks: Iterable[str], seen: set[str], *, shortest: int = 12) -> list[str]:
    """Blocks that no earlier page had; blocks shorter than `shortest` characters may come again."""
    kept = []
    for block in blocks:
        if len(block) < shortest or block not in seen:
            kept.append(block)
        seen.add(block)
    return kept


def closed_up(text: str) -> str:
    """Chinese text without the spaces that line ends of the source left between characters."""
    return re.sub(rf"(?<=[{CJK}]) (?=[{CJK}])", "", text)


def grouped(entries: Iterable[str], size: int) -> Iterator[str]:
    """Entries joined to documents, one a line; each is closed once it has `size` characters."""
    group: list[str] = []
    length = 0
    for entry in entries:
        group.append(entry)
        length += len(entry) + 1
        if length >= size:
            yield "\n".join(group)
            group, length = [], 0
    if group:
        yield "\n".join(group)
