"""D1, phrasebook: fixed phrases in between spans that need computation.

    slot0 w5 w71 w3 slot1 w9 ... | w17 w4 w230 | + 3 9 4 = 6 | ( ( ) ( ( ( ) ; ) ) ) ; | w8 w8 |
    @ slot0 w5 w71 w3 | ... <eos>

Phrases of 2 to 5 words come from a phrase book with Zipf frequencies. No phrase opens another, so a
reader who knows the book always sees where one ends; several share their first word. The computed
spans:

- sum: `+`, k digits, `=`, and their sum modulo the number of digits in use;
- brackets: a random walk of fixed length that never closes what is not open, `;`, then as many
  closing brackets as are still open, and `;` again;
- copy: `@` and the name of a slot, then the words which the opening of the document wrote behind
  that name.
"""

import dataclasses
from functools import lru_cache

import numpy as np
from jaxtyping import Float64, Int64

from engram_lab.tokens.items import LANGUAGE, check_positive, token_ranges, zipf

KINDS = ("phrase", "sum", "bracket", "copy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhrasebookConfig:
    """Rules of one D1 language, and the mixture its documents have.

    Attributes:
        static_share: share of the tokens between opening and eos that stand in phrases, 0 to 1;
            realised up to the effect of the cut last span, which `entropy_floor` counts.
        sum_weight: what part of the other tokens sums get, against the other two weights.
        bracket_weight: the same for bracket spans.
        copy_weight: the same for copies. At weight 0 documents have no opening with slots.
        phrases: how many phrases the book has.
        words: how many words phrases and slots are made of.
        phrase_lengths: shortest and longest phrase; every length in between is equally likely.
        zipf: exponent of the phrases' frequencies, by rank; 0 makes them equally frequent.
        sum_digits: digits added in a sum.
        modulus: how many digits there are, and the modulus of the sums.
        bracket_steps: brackets before the first `;`.
        copy_slots: named slots in the opening of a document.
        copy_length: words of a slot.
        document_length: tokens of every document, opening and eos included.
        seed: names the language, that is the phrase book. The documents have a seed of their own.
    """

    static_share: float = 0.5
    sum_weight: float = 1.0
    bracket_weight: float = 1.0
    copy_weight: float = 1.0
    phrases: int = 4_000
    words: int = 768
    phrase_lengths: tuple[int, int] = (2, 5)
    zipf: float = 1.0
    sum_digits: int = 3
    modulus: int = 10
    bracket_steps: int = 7
    copy_slots: int = 3
    copy_length: int = 3
    document_length: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a mixture, a size or a phrase book that has no documents."""
        if not 0 <= self.static_share <= 1:
            raise ValueError(f"static_share must lie in 0..1, got {self.static_share}")
        weights = (self.sum_weight, self.bracket_weight, self.copy_weight)
        idle = sum(weights) == 0 and self.static_share < 1
        if idle or not 0 <= min(weights) <= max(weights) < np.inf:
            raise ValueError(
                "sum_weight, bracket_weight and copy_weight must be 0 or more, and not all 0 while "
                f"static_share is below 1, got {weights}"
            )
        sizes = "phrases words sum_digits bracket_steps copy_slots copy_length"
        check_positive(self, sizes.split())
        if self.modulus < 2:
            raise ValueError(f"modulus must be at least 2, got {self.modulus}")
        shortest, longest = self.phrase_lengths
        if not 2 <= shortest <= longest:
            raise ValueError(f"phrase_lengths must rise from 2 or more, got {self.phrase_lengths}")
        if self.phrases > self.words**shortest / 2:
            raise ValueError(
                f"phrases must be at most half of words ** shortest length = "
                f"{self.words**shortest}, so that none opens another, got {self.phrases}. "
                "Ask for fewer phrases or for more words"
            )
        if self.zipf < 0 or self.seed < 0:
            raise ValueError(f"zipf and seed must be 0 or more, got {self.zipf} and {self.seed}")
        if self.document_length < self.opening_length + 2:
            raise ValueError(
                f"document_length must be at least {self.opening_length + 2} (opening of "
                f"{self.opening_length}, one token, eos), got {self.document_length}"
            )

    @property
    def token_shares(self) -> dict[str, float]:
        """Share of the tokens between opening and eos that each kind of span has."""
        weights = np.array([self.sum_weight, self.bracket_weight, self.copy_weight])
        dynamic = (1 - self.static_share) * weights / max(weights.sum(), np.finfo(float).tiny)
        return dict(zip(KINDS, (self.static_share, *dynamic.tolist()), strict=True))

    @property
    def opening_length(self) -> int:
        """Tokens of the opening, which names and fills the slots; 0 where nothing is copied."""
        return self.copy_slots * (1 + self.copy_length) if self.token_shares["copy"] > 0 else 0

    @property
    def token_ranges(self) -> dict[str, range]:
        """Ids of the marks, digits, slot names and words."""
        marks = dict.fromkeys(("+", "=", "(", ")", ";", "@"), 1)
        return token_ranges(**marks, digit=self.modulus, slot=self.copy_slots, w=self.words)

    @property
    def vocab_size(self) -> int:
        """Number of ids, the four reserved ones included."""
        return self.token_ranges["w"].stop


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PhraseBook:
    """The phrases that the seed of a config names, from the most to the least frequent.

    Attributes:
        phrases: token ids; pad ids behind the end of a phrase.
        lengths: tokens of each phrase.
        probability: how often each phrase is drawn among phrases.
    """

    phrases: Int64[np.ndarray, "phrase place"]
    lengths: Int64[np.ndarray, "phrase"]
    probability: Float64[np.ndarray, "phrase"]


@lru_cache(maxsize=8)
def phrase_book(config: PhrasebookConfig) -> PhraseBook:
    """The phrases of a config, none the opening of another; shares and weights change nothing."""
    rng = np.random.default_rng([LANGUAGE, config.seed])
    shortest, longest = config.phrase_lengths
    lengths = np.sort(rng.integers(shortest, longest + 1, size=config.phrases))
    taken: set[tuple[int, ...]] = set()
    phrases = np.zeros((config.phrases, longest), dtype=np.int64)
    start = config.token_ranges["w"].start
    for row, length in enumerate(lengths):  # short ones first: only they can open a later one
        phrase = None
        while phrase is None or any(phrase[:end] in taken for end in range(shortest, length + 1)):
            phrase = tuple((start + rng.integers(config.words, size=length)).tolist())
        taken.add(phrase)
        phrases[row, :length] = phrase
    order = rng.permutation(config.phrases)  # frequency and length are independent
    phrases, lengths = phrases[order], lengths[order]
    for rule in (phrases, lengths):
        rule.setflags(write=False)  # shared by the cache
    return PhraseBook(
        phrases=phrases, lengths=lengths, probability=zipf(config.phrases, config.zipf)
    )
