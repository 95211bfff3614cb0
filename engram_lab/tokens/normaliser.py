"""The text normaliser under the token map: case, width, accents and spacing folded.

A lone space is set aside as U+E000 while white space is stripped; otherwise it would merge with
every token that normalises to nothing, the map would change its size and every multiplier with it.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

_LONE_SPACE = "\ue000"


def normalise(text: str) -> str:
    """Text with compatibility forms, accents, case and runs of white space folded, ends stripped.

    Source: deepseek-ai/Engram engram_demo_v1.py; DeepSeek-V4.1-Flash inference/engram.py.
    """
    return _pipeline().normalize_str(text)


def token_keys(texts: Sequence[str]) -> list[str]:
    """What identifies canonical ids: the normalised texts, or the texts where those are empty."""
    fold = _pipeline().normalize_str
    return [fold(text) or text for text in texts]


@cache
def _pipeline() -> "Normalizer":
    from tokenizers import Regex, normalizers

    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), _LONE_SPACE),
            normalizers.Strip(),
            normalizers.Replace(_LONE_SPACE, " "),
        ]
    )
