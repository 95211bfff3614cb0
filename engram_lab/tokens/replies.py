"""D9, replies: several ways to answer a cue, equally likely, that must not be mixed.

    ask3 | a6 b6 | tell1 | c5 d1 e5 | ask0 | a0 b0 | tell1 | c4 d1 e4 | ... <eos>

Every cue has some modes of reply ("of course", "no problem"). The first token of a reply chooses
the mode. Behind `ask` the second token follows from it. Behind `tell` there is a bridge, the same
in all modes, and the token behind the bridge follows from the one before it.

So it is known what an ideal drafter can do behind a cue (`acceptance_of`): one that draws each
token of a block by itself keeps the mode with chance 1/modes; one that knows the previous token
keeps it behind `ask`, not across the bridge; one that remembers the whole block always keeps it.
"""

import dataclasses
from functools import lru_cache

import numpy as np
import pandas as pd

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.items import (
    FILLER,
    STATIC,
    Block,
    ItemProfile,
    check_positive,
    documents_from_blocks,
    fixed_profile,
    floor_frame,
    item_probabilities,
    lay_out,
    mixed_profile,
    token_ranges,
)

KINDS = ("ask", "tell")
LENGTHS = {"ask": 3, "tell": 4}
"""Tokens of an item, the cue included."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepliesConfig:
    """Rules of one D9 language.

    Attributes:
        static_share: share of the tokens that stand in `ask` items, 0 to 1; the rest are `tell`.
        cues: cues of each kind, equally likely.
        modes: replies to each cue, equally likely; at least 2.
        document_length: tokens of every document, eos included.
        seed: not used by the rules, which are the same for all; the documents have their own.
    """

    static_share: float = 0.5
    cues: int = 16
    modes: int = 2
    document_length: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a mixture or a size that has no documents."""
        if not 0 <= self.static_share <= 1:
            raise ValueError(f"static_share must lie in 0..1, got {self.static_share}")
        check_positive(self, ["cues"])
        if self.modes < 2:
            raise ValueError(f"modes must be at least 2, or there is no choice, got {self.modes}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")
        if self.document_length < 1 + max(LENGTHS.values()):
            raise ValueError(
                f"document_length must be at least {1 + max(LENGTHS.values())} (one item, eos), "
                f"got {self.document_length}"
            )

    @property
    def token_ranges(self) -> dict[str, range]:
        """Ids of cues, and of the tokens of replies: `a b` behind `ask`, `c d e` behind `tell`."""
        replies = self.cues * self.modes
        return token_ranges(
            ask=self.cues, tell=self.cues, a=replies, b=replies, c=replies, d=self.cues, e=replies
        )

    @property
    def vocab_size(self) -> int:
        """Number of ids, the four reserved ones included."""
        return self.token_ranges["e"].stop


def replies(config: RepliesConfig, n_tokens: int, seed: int) -> Documents:
    """Documents of the D9 language of `config`, with the class of every token.

    Static are the tokens that follow from those before them; cues and first tokens are filler.

    Args:
        config: the language.
        n_tokens: tokens wished, rounded up to whole documents.
        seed: names the sample.

    Raises:
        ValueError: if `n_tokens` is below 1 or `seed` below 0.
    """
    room = config.document_length - 1
    count = -(-room // min(LENGTHS.values()))
    chances = _kind_chances(config)

    def block(rng: np.random.Generator, documents: int) -> Block:
        shape = (documents, count)
        kind = (rng.random(shape) >= chances[0]).astype(np.int64)
        cue = rng.integers(config.cues, size=shape)
        reply = cue * config.modes + rng.integers(config.modes, size=shape)
        items = _items(config, kind, cue, reply)
        lengths = np.where(kind == 0, LENGTHS["ask"], LENGTHS["tell"])
        header = np.zeros((2, documents, 0), dtype=np.int32)
        return lay_out((header[0], header[1].astype(np.uint8)), items, lengths, room + 1)

    return documents_from_blocks(
        block,
        n_tokens=n_tokens,
        document_length=config.document_length,
        seed=seed,
        vocab_size=config.vocab_size,
        name="d9",
    )


def replies_floor(config: RepliesConfig, *, first_token: bool = False) -> pd.DataFrame:
    """Exact floor of D9; see `synthetic.entropy_floor`."""
    profiles = _profiles(config)
    item = mixed_profile(profiles, _kind_chances(config))
    none = np.zeros((0, 3))
    header = ItemProfile(lengths=np.ones(1), tokens=none, nats=none)
    return floor_frame(item, header, config.document_length, first_token=first_token)


def acceptance_of(config: RepliesConfig) -> pd.DataFrame:
    """What ideal drafters keep behind a cue, given that all before was kept.

    Args:
        config: the language.

    Returns:
        One row per kind and position of the reply (from 1), with columns parallel (each token drawn
        by itself), first_order (knows the previous token) and recurrent (knows the whole block).
    """
    lost = 1 / config.modes
    rows = [
        ("ask", 1, 1.0, 1.0, 1.0),
        ("ask", 2, lost, 1.0, 1.0),
        ("tell", 1, 1.0, 1.0, 1.0),
        ("tell", 2, 1.0, 1.0, 1.0),
        ("tell", 3, lost, lost, 1.0),
    ]
    return pd.DataFrame(rows, columns=["kind", "position", "parallel", "first_order", "recurrent"])


def _items(
    config: RepliesConfig, kind: np.ndarray, cue: np.ndarray, reply: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and classes of items, document item place."""
    start = {name: ids.start for name, ids in config.token_ranges.items()}
    ask = [start["ask"] + cue, start["a"] + reply, start["b"] + reply, np.zeros_like(cue)]
    tell = [start["tell"] + cue, start["c"] + reply, start["d"] + cue, start["e"] + reply]
    ids = np.where((kind == 0)[..., None], np.stack(ask, -1), np.stack(tell, -1))
    classes = np.full(ids.shape, STATIC, np.uint8)
    classes[..., :2] = FILLER
    return ids.astype(np.int32), classes


@lru_cache(maxsize=8)
def _profiles(config: RepliesConfig) -> dict[str, ItemProfile]:
    opening = [(FILLER, float(np.log(config.cues))), (FILLER, float(np.log(config.modes)))]
    return {kind: fixed_profile(*opening, *[(STATIC, 0.0)] * (LENGTHS[kind] - 2)) for kind in KINDS}


def _kind_chances(config: RepliesConfig) -> np.ndarray:
    shares = {"ask": config.static_share, "tell": 1 - config.static_share}
    return item_probabilities(_profiles(config), shares)
