"""Prompts for row probes: a text up to one of its tokens, a target that is one token."""

from typing import NamedTuple

from jaxtyping import Int64
from torch import Tensor

from engram_lab.probes.gates import Encoder


class Read(NamedTuple):
    """A text up to the token at which it is looked at.

    Attributes:
        ids: its token ids.
        position: place of the last one in the whole text.
    """

    ids: Int64[Tensor, "one seq"]
    position: int


def prefix(tokenizer: Encoder, text: str, position: int = -1) -> Read:
    """The text up to one of its tokens.

    Raises:
        ValueError: if the text is empty or the position lies outside it.
    """
    ids = tokenizer.encode(text)
    length = ids.shape[1]
    if length == 0:
        raise ValueError(f"rows are read from a text of at least one token; got {text!r}")
    if not -length <= position < length:
        raise ValueError(
            f"position must lie in {-length}..{length - 1}, the {length} tokens of this text; got "
            f"{position}"
        )
    position %= length
    return Read(ids[:, : position + 1], position)


def one_token(tokenizer: Encoder, text: str) -> int:
    """Id of a text that is exactly one token.

    Raises:
        ValueError: if it is none or several.
    """
    ids = tokenizer.encode(text).flatten().tolist()
    if len(ids) != 1:
        pieces = " | ".join(tokenizer.tokens(ids)) or "none"
        raise ValueError(
            f"a target must be one token; {text!r} is {len(ids)}: {pieces}. Most words are one "
            "token with the space before them."
        )
    return ids[0]
