"""The words a lens looks at: their ids, texts, positions and next tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int64
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from engram_lab.probes.gates import Encoder

Reader = Encoder | PreTrainedTokenizerBase
"""A tokenizer: ours, or one from `transformers`."""
UNKNOWN = -1  # stands for the next token where the text ends


@dataclass(frozen=True, kw_only=True)
class LensText:
    """Sequences of ids with the texts that a reader wants to see.

    Attributes:
        token_ids: sequences, padded on either side where the mask says so.
        tokens: readable text of every id, padding included, row by row.
        attention_mask: 0 at padding; None for no padding.
        decode: gives the texts of ids, so that predicted tokens can be read; without it a token
            that does not occur in the text is shown by its id, as `#1234`.

    Raises:
        ValueError: if there is no id, not one text per id, or a mask of another shape.
    """

    token_ids: Int64[Tensor, "batch seq"]
    tokens: Sequence[str]
    attention_mask: Tensor | None = None
    decode: Callable[[Sequence[int]], list[str]] | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.token_ids.shape)
        if not len(self.tokens) or len(self.tokens) != self.token_ids.numel():
            raise ValueError(
                f"a lens needs one text per id and at least one; got ids of shape {shape} and "
                f"{len(self.tokens)} texts"
            )
        if self.attention_mask is not None and tuple(self.attention_mask.shape) != shape:
            raise ValueError(
                f"attention_mask must have the shape of the ids, {shape}; got "
                f"{tuple(self.attention_mask.shape)}"
            )

    @property
    def real(self) -> Bool[Tensor, "batch seq"]:
        """Where a token stands, and no padding."""
        if self.attention_mask is None:
            return torch.ones_like(self.token_ids, dtype=torch.bool)
        return self.attention_mask.bool().to(self.token_ids.device)

    @property
    def targets(self) -> Int64[Tensor, " position"]:
        """The next id of every real position, row by row; -1 where the text ends."""
        targets = torch.full_like(self.token_ids, UNKNOWN)
        following = self.token_ids[:, 1:].masked_fill(~self.real[:, 1:], UNKNOWN)
        targets[:, :-1] = following
        return targets[self.real]

    def frame(self, measured: Mapping[str, np.ndarray]) -> pd.DataFrame:
        """Measurements with the columns that say where they were made.

        Args:
            measured: arrays of layers by real positions.

        Returns:
            Columns sequence (only where there are several), layer, position (counted from the first
            real token), token and the measured ones, sorted by layer.
        """
        real = self.real.cpu()
        layers = len(next(iter(measured.values())))
        rows = real.nonzero()[:, 0].numpy()
        index = {
            "layer": np.repeat(np.arange(layers), len(rows)),
            "position": np.tile((real.long().cumsum(-1) - 1)[real].numpy(), layers),
            "token": [self.tokens[place] for place in np.flatnonzero(real.numpy())] * layers,
        }
        if len(self.token_ids) > 1:
            index = {"sequence": np.tile(rows, layers)} | index
        return pd.DataFrame(
            index | {name: np.asarray(values).reshape(-1) for name, values in measured.items()}
        )

    def texts(self, ids: np.ndarray) -> np.ndarray:
        """Readable texts of an array of ids, in its shape."""
        distinct, places = np.unique(ids, return_inverse=True)
        if self.decode is not None:
            names = self.decode([int(token_id) for token_id in distinct])
        else:
            known = dict(zip(self.token_ids.flatten().tolist(), self.tokens, strict=True))
            names = [known.get(int(token_id), f"#{token_id}") for token_id in distinct]
        return np.array(names, dtype=object)[places].reshape(ids.shape)


def row_by_row(tokens: Sequence[str] | Sequence[Sequence[str]]) -> list[str]:
    """Texts of a batch as one list; nested lists are one row each."""
    return [text for row in tokens for text in ([row] if isinstance(row, str) else row)]


def lens_text(text: str, tokenizer: Reader) -> LensText:
    """One text, encoded for a lens.

    Args:
        text: what the model reads, from the beginning of a document.
        tokenizer: ours, or one from `transformers`, which then sets its own special tokens.

    Raises:
        ValueError: if the text has no token.
    """
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        token_ids = torch.tensor([tokenizer(text)["input_ids"]], dtype=torch.int64).reshape(1, -1)

        def decode(ids: Sequence[int]) -> list[str]:
            return [tokenizer.decode([token_id]) for token_id in ids]
    else:
        token_ids, decode = tokenizer.encode(text), tokenizer.tokens
    if token_ids.numel() == 0:
        raise ValueError(f"a lens needs a text of at least one token; got {text!r}")
    tokens = decode(token_ids.flatten().tolist())
    return LensText(token_ids=token_ids, tokens=tokens, decode=decode)
