"""The shipped tokenizers: text to ids and back, with pad, bos, eos and mask at ids 0 to 3.

All of them are byte-level: every text, in any script, comes back unchanged. The reserved ids never
come out of text: a user who types `<eos>` gets the ordinary tokens of those five characters.
Whoever wants a reserved id adds it by number.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import tokenizers
import torch
from jaxtyping import Int64
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from torch import Tensor

from engram_lab import paths

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD_ID, BOS_ID, EOS_ID, MASK_ID = range(4)
RESERVED = ("<pad>", "<bos>", "<eos>", "<mask>")
"""Texts of the reserved ids, in order of id."""
_PICTURES = {code: 0x2400 + code for code in range(0x20)} | {0x0A: "⏎", 0x09: "⇥", 0x7F: 0x2421}


class Tokenizer:
    """A byte-level tokenizer whose ids 0 to 3 are pad, bos, eos and mask.

    Attributes:
        name: what `load_tokenizer` calls it.
        backend: the wrapped `tokenizers.Tokenizer`.
        pad_id: fills rows behind the end of a document.
        bos_id: reserved for models that want a first token; our corpora do not use it.
        eos_id: closes every document of our corpora.
        mask_id: stands for a token still to be drafted.
    """

    pad_id = PAD_ID
    bos_id = BOS_ID
    eos_id = EOS_ID
    mask_id = MASK_ID

    def __init__(self, backend: tokenizers.Tokenizer, name: str) -> None:
        """Wrap a backend.

        Args:
            backend: byte-level tokenizer with `RESERVED` at ids 0 to 3.
            name: for messages, caches and frames.

        Raises:
            ValueError: if the reserved texts do not have ids 0 to 3.
        """
        found = tuple(backend.id_to_token(token_id) for token_id in range(len(RESERVED)))
        if found != RESERVED:
            raise ValueError(f"tokenizer {name!r} needs {RESERVED} at ids 0 to 3, got {found}")
        backend.encode_special_tokens = (
            True  # not stored in the JSON, so set whenever one is wrapped
        )
        self.backend = backend
        self.name = name

    def __repr__(self) -> str:
        """Name and size, as a reader would type them."""
        return f"Tokenizer({self.name!r}, vocab_size={self.vocab_size})"

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[tokenizers.Tokenizer, str]]:
        """Copy and pickle through the constructor, which sets what the backend forgets."""
        return (Tokenizer, (self.backend, self.name))

    @property
    def vocab_size(self) -> int:
        """Number of ids, the four reserved ones included."""
        return self.backend.get_vocab_size()

    @cached_property
    def fingerprint(self) -> str:
        """12 hex digits that change with any entry or merge; names caches."""
        import hashlib

        return hashlib.sha256(self.backend.to_str().encode()).hexdigest()[:12]

    def encode(self, text: str) -> Int64[Tensor, "batch seq"]:
        """Ids of one text as a batch of one, ready for a model; an empty text gives length 0."""
        return torch.tensor([self.encode_ids(text)], dtype=torch.int64).reshape(1, -1)

    def encode_ids(self, text: str) -> list[int]:
        """Ids of one text, without bos or eos."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, each as `encode_ids` would give them, on all permitted threads."""
        encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(
        self, ids: Sequence[int] | np.ndarray | Tensor, *, skip_reserved: bool = False
    ) -> str:
        """Text of one sequence of ids; the inverse of `encode_ids`.

        Args:
            ids: a list, an array, or a tensor of any shape that holds one sequence (as `encode`
                gives it).
            skip_reserved: leave pad, bos, eos and mask out instead of writing them as `<pad>` and
                so on.
        """
        return self.backend.decode(_flat(ids), skip_special_tokens=skip_reserved)

    def tokens(self, ids: Sequence[int] | np.ndarray | Tensor) -> list[str]:
        r"""Readable text of every id, for axes and hover text.

        Spaces stay, line ends and tabs show as `⏎` and `⇥`, and bytes that are only part of a
        character read `\xe4`: no two ids of the shipped tokenizers have the same text.
        """
        return [_readable(self.token_bytes(token_id)) for token_id in _flat(ids)]

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes one id stands for (for a reserved id, its name).

        Raises:
            ValueError: if the id is negative or not below `vocab_size`.
        """
        token = self.backend.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            raise ValueError(f"token id must lie in 0..{self.vocab_size - 1}, got {token_id}")
        bytes_of = _bytes_of_characters()
        return bytes(bytes_of[character] for character in token)

    def to_transformers(self) -> "PreTrainedTokenizerFast":
        """The same tokenizer for `transformers`: reserved tokens set, none added to text."""
        from transformers import PreTrainedTokenizerFast

        pad, bos, eos, mask = RESERVED
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.Tokenizer.from_str(self.backend.to_str()),
            pad_token=pad,
            bos_token=bos,
            eos_token=eos,
            mask_token=mask,
            padding_side="left",  # generation continues at the right end
            split_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )


def load_tokenizer(name: str) -> Tokenizer:
    """A tokenizer by name: "bpe4k" and "bpe16k" are shipped, "byte" (260 ids) is built in memory.

    Raises:
        ValueError: if no tokenizer has this name; the message lists those that exist.
    """
    if name == "byte":
        return byte_tokenizer()
    known = sorted(path.stem for path in paths.tokenizers_dir().glob("*.json"))
    if name not in known:
        raise ValueError(f"tokenizer must be one of {', '.join(['byte', *known])}; got {name!r}")
    return Tokenizer(
        tokenizers.Tokenizer.from_file(str(paths.tokenizers_dir() / f"{name}.json")), name
    )


def byte_tokenizer() -> Tokenizer:
    """One id per byte, behind the four reserved ids: byte `b` has id `b + 4`; for tests."""
    characters = {byte: character for character, byte in _bytes_of_characters().items()}
    vocab = {text: token_id for token_id, text in enumerate(RESERVED)}
    vocab |= {characters[byte]: len(RESERVED) + byte for byte in range(256)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in RESERVED])
    return Tokenizer(backend, "byte")


@lru_cache(maxsize=1)
def _bytes_of_characters() -> dict[str, int]:
    """The printable stand-in character of each byte in the vocabulary of a byte-level tokenizer.

    Printable Latin-1 bytes stand for themselves; the other 68 take the characters from U+0100 on,
    in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }


def _readable(raw: bytes) -> str:
    """Text of a token's bytes with everything unprintable replaced."""
    return raw.decode("utf-8", errors="backslashreplace").translate(_PICTURES)


def _flat(ids: Sequence[int] | np.ndarray | Tensor) -> list[int]:
    """Any holder of one sequence as a list of Python ints."""
    if isinstance(ids, Tensor):
        ids = ids.detach().cpu().numpy()
    return np.asarray(ids, dtype=np.int64).reshape(-1).tolist()
