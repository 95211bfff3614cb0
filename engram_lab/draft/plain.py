"""`SmallModelDrafter`: an independent small language model that drafts token by token."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from engram_lab.draft.proposer import Committed, check_length, joined, pick
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from engram_lab.draft.target_cache import TargetCache
from engram_lab.draft.verify import Proposal

CHUNK = 512
"""Positions that the small model reads in one pass."""


@dataclass(eq=False)
class SmallModelState:
    """What a small model remembers of a batch.

    Attributes:
        cache: its own keys and values, of committed tokens; after a proposal also of the drafts
            before the last.
        pending: committed tokens of every sequence that the model has not read.
        fed: tokens of the last proposal that the model read, the anchor included.
        anchor: newest token of every sequence.
    """

    cache: TargetCache
    pending: list[Tensor]
    fed: int = 0
    anchor: Int64[Tensor, "batch"] | None = None


class SmallModelDrafter:
    """Drafts by decoding another, smaller model with the target's tokenizer.

    A round of K drafts takes K passes: the anchor and the drafts before the last are read, the last
    is drawn and never read. If all were accepted it is read first in the next round, in one pass
    with the new anchor. Where its own context has no room, it proposes nothing.

    Attributes:
        model: the small model, seen as a target without taps.
        block_size: most tokens of a proposal.
        layer_ids: empty; it reads nothing of the target.

    Source: DSpark paper, section 2.1.
    """

    layer_ids: tuple[int, ...] = ()

    def __init__(self, model: nn.Module, target: Target, *, block_size: int = 4):
        """Take a small model.

        Args:
            model: a causal language model with a head; ours or one of `transformers`.
            target: the model it drafts for.
            block_size: most tokens of a proposal.

        Raises:
            ValueError: if the vocabularies differ, naming both sizes, or `block_size` is below 1.
        """
        self.model = Target(model)
        self.block_size = block_size
        if self.model.vocab_size != target.vocab_size:
            raise ValueError(
                "a small model drafts only for a target of the same vocabulary; the small model "
                f"knows {self.model.vocab_size} ids, the target {target.vocab_size}. Train one "
                "with the target's tokenizer."
            )
        if block_size < 1:
            raise ValueError(f"SmallModelDrafter.block_size must be at least 1; got {block_size}")

    def begin(self, batch: int) -> SmallModelState:
        """State of a fresh batch."""
        return SmallModelState(cache=self._start(batch), pending=[])

    def absorb(self, state: SmallModelState, committed: Committed) -> None:
        """Forget the drafts that were rejected; note what the model has not read."""
        counts = committed.counts.cpu()
        known = counts.clamp_max(state.fed)
        if state.fed > 1:
            state.cache.rewind(state.fed - 1, known - 1)
        fresh = [
            row[start:end]
            for row, start, end in zip(
                committed.token_ids, known.tolist(), counts.tolist(), strict=True
            )
        ]
        waiting = state.pending or [row[:0] for row in fresh]
        state.pending = [torch.cat(pair) for pair in zip(waiting, fresh, strict=True)]
        state.anchor, state.fed = committed.anchor, 0

    @torch.no_grad()
    def propose(
        self, state: SmallModelState, length: int, sampling: Sampling, noise: Noise
    ) -> Proposal:
        """Draft up to `length` tokens, one pass each.

        Raises:
            ValueError: if `length` is above the block, naming both.
        """
        check_length(length, self.block_size)
        unread = [torch.cat([row, state.anchor[i : i + 1]]) for i, row in enumerate(state.pending)]
        length = min(length, self._room(state, unread))
        if length < 1:
            return Proposal(tokens=state.anchor.new_zeros(len(state.anchor), 0))
        logits = self._read(state.cache, unread)
        state.pending, state.fed = [row[:0] for row in unread], length
        uniform = noise.uniform("draft", length)
        tokens, probs = [], []
        for slot in range(length):
            if slot:
                logits = self._read(state.cache, list(tokens[-1][:, None]))
            token, drawn = pick(logits, sampling, uniform[:, slot])
            tokens.append(token)
            probs.append(drawn)
        return Proposal(tokens=torch.stack(tokens, dim=1), probs=joined(probs))

    def select(self, state: SmallModelState, rows: list[int]) -> None:
        """Keep only these sequences."""
        if state.cache.total:
            state.cache.select(rows)
        else:
            state.cache = self._start(len(rows))
        state.pending = [state.pending[row] for row in rows]
        state.anchor = state.anchor[rows]

    def _start(self, batch: int) -> TargetCache:
        return self.model.start(batch, rewind=max(CHUNK, self.block_size))

    def _room(self, state: SmallModelState, unread: list[Tensor]) -> int:
        """Drafts for which the small model's context has room; the last needs none."""
        if self.model.context is None:
            return self.block_size
        counts = torch.tensor([len(row) for row in unread])
        if state.cache.total + int(counts.max()) > self.model.context:
            return 0
        return self.model.context - int((state.cache.lengths + counts).max()) + 1

    def _read(self, cache: TargetCache, rows: list[Tensor]) -> Float[Tensor, "batch vocab"]:
        """Logits behind rows of unequal length, which are put into the cache."""
        counts = torch.tensor([len(row) for row in rows])
        ids = pad_sequence(rows, batch_first=True)
        newest = None
        for start in range(0, ids.shape[1], CHUNK):
            chunk = ids[:, start : start + CHUNK]
            inside = (counts - start).clamp(0, chunk.shape[1])
            logits = self.model.forward(chunk, cache).logits
            cache.keep(inside)
            inside = inside.to(logits.device)
            last = logits[torch.arange(len(rows)), (inside - 1).clamp_min(0)]
            newest = last if newest is None else torch.where(inside[:, None] > 0, last, newest)
        return newest
