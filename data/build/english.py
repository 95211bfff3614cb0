"""English prose and facts: novels, the King James Bible, country profiles, WordNet glosses."""

import gzip
import json
import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

from cleaning import grouped, unwrapped

TITLES = {
    "emma": "Emma",
    "mansfieldpark": "Mansfield Park",
    "northangerabbey": "Northanger Abbey",
    "persuasion": "Persuasion",
    "prideprejudice": "Pride and Prejudice",
    "sensesensibility": "Sense and Sensibility",
}
REGIONS = [
    "africa",
    "antarctica",
    "australia-oceania",
    "central-america-n-caribbean",
    "central-asia",
    "east-n-southeast-asia",
    "europe",
    "middle-east",
    "north-america",
    "oceans",
    "south-america",
    "south-asia",
    "world",
]
LEFT_OUT = {"telephone", "FAX", "population pyramid", "Area comparison map"}


def novels(files: Path) -> Iterator[str]:
    """One document a chapter of Jane Austen's six novels, paragraphs parted by empty lines.

    The package is an R lazy-load database: `.rdx` says where each object lies in `.rdb`, and an
    object is a big-endian length, then a zlib stream.
    """
    import rdata

    stem = files / "usr/lib/R/site-library/janeaustenr/data/Rdata"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata remarks that a bare object has no file header
        index = rdata.conversion.convert(
            rdata.parser.parse_data(gzip.decompress(stem.with_suffix(".rdx").read_bytes()))
        )
        database = stem.with_suffix(".rdb").read_bytes()
        places = {str(name): place for name, place in index["variables"].items()}
        for name in sorted(places):
            begin, length = (int(number) for number in places[name])
            raw = zlib.decompress(database[begin + 4 : begin + length])
            lines = rdata.conversion.convert(rdata.parser.parse_data(raw))
            yield from _chapters(TITLES[name], [str(line) for line in lines])


def _chapters(title: str, lines: list[str]) -> Iterator[str]:
    """Cut a novel at its chapter headings and unwrap the paragraphs."""
    heading = re.compile(r"^\s*chapter\s+([ivxlc]+|\d+)\.?\s*$", re.IGNORECASE)
    starts = [number for number, line in enumerate(lines) if heading.match(line)]
    for count, (begin, end) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True), 1):
        paragraphs = [
            re.sub(r"_([^_]+)_", r"\1", paragraph)
            for paragraph in unwrapped(lines[begin + 1 : end])
            if not re.match(r"^(VOLUME|THE END|FINIS|Finis|END OF)\b", paragraph)
        ]
        yield "\n\n".join([f"{title}, chapter {count}", *paragraphs])


def bible(files: Path) -> Iterator[str]:
    """One document a chapter of the King James Bible, one verse a line."""
    (path,) = files.glob("*/bible/data/kjv.jsonl")
    verses = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    chapters: dict[str, list[str]] = {}
    for verse in verses:
        heading = f"{verse['book']}, chapter {verse['chapter']}"
        chapters.setdefault(heading, [heading]).append(" ".join(verse["text"].split()))
    yield from ("\n".join(lines) for lines in chapters.values())


def countries(files: Path) -> Iterator[str]:
    """One document a section of a country profile, one line a field: "Austria. Capital: Vienna"."""
    for region in REGIONS:
        for path in sorted((files / "package" / region).glob("*.json")):
            profile = json.loads(path.read_text(encoding="utf-8"))
            name = _country(profile, files, path.stem)
            for section, fields in profile.items():
                lines = [f"{name}. {field}: {text}" for field, text in _fields(fields, "")]
                if lines:
                    yield "\n".join([f"{name}: {section}", *lines])


def _country(profile: dict, files: Path, code: str) -> str:
    """Name of a country, as the package's summary lists it under its two-letter code."""
    summary = (files / "package" / "SUMMARY.md").read_text(encoding="utf-8")
    listed = re.search(rf"^`{code}` (.+)$", summary, re.MULTILINE)
    if listed:
        return listed.group(1).strip()
    return profile["Government"]["Country name"]["Dutch short form"]["text"]  # two islands


def _fields(fields: dict, prefix: str) -> Iterator[tuple[str, str]]:
    """Every field that has a text, with the names of the fields around it."""
    for field, value in fields.items():
        if field == "text" or field in LEFT_OUT or not isinstance(value, dict):
            continue
        name = f"{prefix}, {field}" if prefix else field
        parts = [part.strip(" ;") for part in (value.get("text") or "").split("++")]
        text = " ".join("; ".join(part for part in parts if part).split())
        if text and text != "NA":
            yield name, text
        yield from _fields(value, name)


def glosses(files: Path) -> Iterator[str]:
    """WordNet's entries, "word, word: gloss", in its order, some 3,000 characters a document."""
    for kind in ("noun", "verb", "adj", "adv"):
        path = files / "usr/share/wordnet" / f"data.{kind}"
        yield from grouped(_entries(path.read_text(encoding="utf-8")), 3_000)


def _entries(data: str) -> Iterator[str]:
    """The words and the gloss of every entry; lines that begin with a space are the licence."""
    for line in data.splitlines():
        if line.startswith(" "):
            continue
        record, gloss = line.split("|", 1)
        fields = record.split(" ")
        count = int(fields[3], 16)  # the number of words is hexadecimal
        words = [re.sub(r"\((p|a|ip)\)$", "", word) for word in fields[4 : 4 + 2 * count : 2]]
        yield f"{', '.join(words).replace('_', ' ')}: {' '.join(gloss.split())}"
