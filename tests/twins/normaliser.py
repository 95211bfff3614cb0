"""The text normaliser with `unicodedata` alone; only recent scripts differ from `tokenizers`."""

import re
import unicodedata

WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    chr(code) for code in range(0x2000, 0x200B)
)


def normalise(text: str) -> str:
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(c for c in text if not unicodedata.category(c).startswith("M"))
    text = "".join(c.lower() for c in text)
    text = re.sub(r"[ \t\r\n]+", " ", text)
    if text == " ":
        text = "\ue000"
    return text.strip(WHITE_SPACE).replace("\ue000", " ")


def token_map(texts: list[str], names: list[str]) -> list[int]:
    """Canonical id per token id, from decoded texts and raw tokens."""
    first: dict[str, int] = {}
    table = []
    for text, name in zip(texts, names, strict=True):
        key = name if "\ufffd" in text else normalise(text) or text
        table.append(first.setdefault(key, len(first)))
    return table
