"""`NgramLookup`: drafts copied from an earlier place in the text that ends in the same n-gram."""

from dataclasses import dataclass, field

import torch

from engram_lab.draft.proposer import Committed, check_length
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.verify import Proposal


@dataclass(eq=False)
class TextIndex:
    """One sequence: its tokens, and where each n-gram was last followed by something.

    Attributes:
        tokens: committed tokens and the anchor.
        after: from an n-gram to the position behind its latest occurrence that has one.
    """

    tokens: list[int] = field(default_factory=list)
    after: dict[tuple[int, ...], int] = field(default_factory=dict)


@dataclass(eq=False)
class LookupState:
    """What a look-up remembers of a batch."""

    texts: list[TextIndex]
    device: torch.device | None = None


class NgramLookup:
    """Proposes what followed the longest suffix of the text when it last occurred.

    It has no parameters and no cost to speak of. The copy may run on into the drafts themselves,
    so a text that repeats is continued without end. Drafts are certain (`Proposal.probs` is None).
    A sequence whose suffixes are all new proposes nothing: `Proposal.lengths` says 0.

    Attributes:
        block_size: most tokens of a proposal.
        max_ngram: longest suffix that is looked up.
        min_ngram: shortest.
        layer_ids: empty; it reads nothing of the target.
    """

    layer_ids: tuple[int, ...] = ()

    def __init__(self, *, block_size: int = 4, max_ngram: int = 3, min_ngram: int = 1):
        """Choose lengths.

        Raises:
            ValueError: if a length is below 1, or the shortest suffix longer than the longest.
        """
        if block_size < 1:
            raise ValueError(f"NgramLookup.block_size must be at least 1; got {block_size}")
        if not 1 <= min_ngram <= max_ngram:
            raise ValueError(
                f"NgramLookup.min_ngram must lie in 1..{max_ngram} (max_ngram={max_ngram}); got "
                f"{min_ngram}"
            )
        self.block_size = block_size
        self.max_ngram, self.min_ngram = max_ngram, min_ngram

    def begin(self, batch: int) -> LookupState:
        """State of a fresh batch."""
        return LookupState(texts=[TextIndex() for _ in range(batch)])

    def absorb(self, state: LookupState, committed: Committed) -> None:
        """Append what was committed, and index what the new tokens follow."""
        state.device = committed.anchor.device
        rows = zip(
            state.texts,
            committed.token_ids.tolist(),
            committed.counts.tolist(),
            committed.anchor.tolist(),
            strict=True,
        )
        for text, tokens, count, anchor in rows:
            known = len(text.tokens)
            text.tokens[max(known - 1, 0) :] = [*tokens[:count], anchor]
            for position in range(max(known, 1), len(text.tokens)):
                for size in range(self.min_ngram, min(self.max_ngram, position) + 1):
                    text.after[tuple(text.tokens[position - size : position])] = position

    def propose(
        self, state: LookupState, length: int, sampling: Sampling, noise: Noise
    ) -> Proposal:
        """Copy up to `length` tokens; neither `sampling` nor `noise` matters.

        Raises:
            ValueError: if `length` is above the block, naming both.
        """
        check_length(length, self.block_size)
        starts = [self._found(text) for text in state.texts]
        longest = length if any(start is not None for start in starts) else 0
        drafts = [
            [0] * longest if start is None else _copied(text.tokens, start, longest)
            for text, start in zip(state.texts, starts, strict=True)
        ]
        lengths = [0 if start is None else longest for start in starts]
        tokens = torch.tensor(drafts, dtype=torch.int64, device=state.device)
        return Proposal(
            tokens=tokens.view(len(drafts), longest),
            lengths=torch.tensor(lengths, device=state.device),
        )

    def select(self, state: LookupState, rows: list[int]) -> None:
        """Keep only these sequences."""
        state.texts = [state.texts[row] for row in rows]

    def _found(self, text: TextIndex) -> int | None:
        """Position behind the latest occurrence of the longest suffix that was seen before."""
        for size in range(min(self.max_ngram, len(text.tokens)), self.min_ngram - 1, -1):
            start = text.after.get(tuple(text.tokens[-size:]))
            if start is not None:
                return start
        return None


def _copied(tokens: list[int], start: int, length: int) -> list[int]:
    """`length` tokens from `start` on; behind the end the copy reads itself."""
    period = len(tokens) - start
    return [tokens[start + step % period] for step in range(length)]
