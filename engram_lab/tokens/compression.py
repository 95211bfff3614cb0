"""VocabCompression: many tokenizer ids to one canonical id.

Case, width, accents and spacing are folded: two tokens share a canonical id when their normalised
texts are equal. The map is data: multipliers depend on its size, so one token more or less rehashes
every row without an error. It is stored with a checkpoint, beside its checksum.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from engram_lab.tokens.normaliser import token_keys

if TYPE_CHECKING:
    import tokenizers
    from pandas import DataFrame


class VocabCompression(nn.Module):
    """Surjection from tokenizer ids to canonical ids: case, width, accents and spacing folded.

    Attributes:
        table: canonical id of every tokenizer id.
        tokens: text of every tokenizer id, or None where the map came without a tokenizer.
    """

    def __init__(self, table: Int64[Tensor, "vocab"], *, tokens: Sequence[str] | None = None):
        """Use `from_tokenizer`, `identity`, `from_table` or `load`.

        Raises:
            ValueError: if canonical ids are not 0..n-1 in order of first use, or `tokens` has
                another length.
        """
        super().__init__()
        table = torch.as_tensor(table, dtype=torch.int64)
        if not table.is_meta:
            _check_surjection(table)
        if tokens is not None and len(tokens) != len(table):
            raise ValueError(f"tokens must have one text per id ({len(table)}); got {len(tokens)}")
        self.register_buffer("table", table)
        self.tokens = None if tokens is None else tuple(tokens)

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> "VocabCompression":
        """Map of a tokenizer: ours, one of `tokenizers`, or a fast one of `transformers`.

        Raises:
            TypeError: if the tokenizer has no `tokenizers` backend.

        Source: Engram paper, section 2.2; DeepSeek-V4.1-Flash inference/engram.py.
        """
        backend = _backend(tokenizer)
        size = 1 + max(backend.get_vocab(with_added_tokens=True).values())
        texts = backend.decode_batch([[i] for i in range(size)], skip_special_tokens=False)
        names = [backend.id_to_token(token_id) for token_id in range(size)]
        first: dict[object, int] = {}
        table = [first.setdefault(key, len(first)) for key in _keys(names, texts)]
        return cls(torch.tensor(table, dtype=torch.int64), tokens=texts)

    @classmethod
    def identity(cls, vocab_size: int) -> "VocabCompression":
        """The map that merges nothing.

        Raises:
            ValueError: if `vocab_size` is not positive.
        """
        return cls(torch.arange(vocab_size))

    @classmethod
    def from_table(cls, table: Sequence[int] | Int64[Tensor, "vocab"]) -> "VocabCompression":
        """Map given as data: canonical id of every tokenizer id, in order.

        Raises:
            ValueError: if canonical ids are not 0..n-1 in order of first use.
        """
        return cls(torch.as_tensor(table, dtype=torch.int64))

    @property
    def vocab_size(self) -> int:
        """Tokenizer ids, added tokens included."""
        return self.table.shape[0]

    @property
    def canonical_vocab_size(self) -> int:
        """Canonical ids."""
        return int(self.table.max()) + 1

    @property
    def sha256(self) -> str:
        """Checksum of the map as little-endian int32 numbers."""
        return hashlib.sha256(self.table.cpu().numpy().astype("<i4").tobytes()).hexdigest()

    def forward(self, token_ids: Int64[Tensor, "*axes"]) -> Int64[Tensor, "*axes"]:
        """Canonical ids.

        Raises:
            ValueError: if an id is negative or not below `vocab_size` (rows that pad an embedding
                have no entry).
        """
        if token_ids.numel() and not token_ids.is_meta:
            low, high = torch.aminmax(token_ids)
            if low < 0 or high >= self.vocab_size:
                wrong = int(low) if low < 0 else int(high)
                raise ValueError(
                    f"token ids must lie in 0..{self.vocab_size - 1} "
                    f"(vocab_size={self.vocab_size}); got {wrong}"
                )
        return self.table[token_ids]

    def groups(self) -> "DataFrame":
        """One row per tokenizer id: `canonical_id size token_id token`.

        `size` counts the tokenizer ids that share the canonical id.
        """
        import pandas

        frame = pandas.DataFrame(
            {"canonical_id": self.table.cpu().numpy(), "token_id": range(self.vocab_size)}
        )
        frame.insert(1, "size", frame.groupby("canonical_id")["token_id"].transform("size"))
        frame["token"] = list(self.tokens) if self.tokens is not None else None
        return frame.sort_values(["canonical_id", "token_id"], ignore_index=True)

    def save(self, path: str | Path) -> None:
        """Write the map, its sizes and its checksum as JSON."""
        content = {
            "vocab_size": self.vocab_size,
            "canonical_vocab_size": self.canonical_vocab_size,
            "sha256": self.sha256,
            "table": self.table.tolist(),
            "tokens": None if self.tokens is None else list(self.tokens),
        }
        Path(path).write_text(json.dumps(content, ensure_ascii=True), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "VocabCompression":
        """Map written by `save`.

        Raises:
            ValueError: if sizes or checksum do not belong to the map in the file.
        """
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        compression = cls(
            torch.tensor(content["table"], dtype=torch.int64), tokens=content["tokens"]
        )
        for name in ("vocab_size", "canonical_vocab_size", "sha256"):
            if getattr(compression, name) != content[name]:
                raise ValueError(
                    f"{name} of the token map in {path} must be {content[name]}; the map in the "
                    f"file has {getattr(compression, name)}. The file was changed; build it again."
                )
        return compression


def _check_surjection(table: Tensor) -> None:
    """Refuse a map whose canonical ids are not numbered by first use."""
    if table.dim() != 1 or not len(table):
        raise ValueError(
            f"a token map needs one canonical id per token id; got shape {tuple(table.shape)}"
        )
    highest = torch.cummax(table, 0).values
    before = torch.cat([table.new_tensor([-1]), highest[:-1]])
    wrong = (table < 0) | (table > before + 1)
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise ValueError(
            "canonical ids must be numbered 0, 1, 2, ... in order of first use; "
            f"token id {at} has {int(table[at])}"
        )


def _keys(names: list[str | None], texts: list[str]) -> list[str | int]:
    """What two tokens share: the normalised text, or the raw token where that is no text alone.

    An id without a token shares with nothing.
    """
    keys: list[str | int] = token_keys(texts)
    for token_id, (name, text) in enumerate(zip(names, texts, strict=True)):
        if name is None:
            keys[token_id] = token_id
        elif "\ufffd" in text:
            keys[token_id] = name
    return keys


def _backend(tokenizer: Any) -> "tokenizers.Tokenizer":
    import tokenizers

    for candidate in (
        tokenizer,
        getattr(tokenizer, "backend", None),
        getattr(tokenizer, "backend_tokenizer", None),
    ):
        if isinstance(candidate, tokenizers.Tokenizer):
            return candidate
    raise TypeError(
        "VocabCompression.from_tokenizer needs a tokenizer with a `tokenizers` backend (ours, "
        "tokenizers.Tokenizer, or a fast tokenizer of transformers); got "
        f"{type(tokenizer).__name__}. Use from_table for a finished map."
    )
