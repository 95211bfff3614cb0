"""Bigram counts of a corpus, as a drafter of their own and as a bias on a block drafter.

Counting takes the place of training: what a Markov head learns at low rank is here in full.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.draft.drafter import Drafter
from engram_lab.draft.proposer import Committed, check_length, joined, pick
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from engram_lab.draft.verify import Proposal

PAIR_BYTES = 8
"""Bytes of one distinct pair: the following token and a count."""
ID_BYTES = 12
"""Bytes of one id: where its pairs begin, and its chance on its own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BigramCounts:
    """How often each token followed each other, kept sparsely: only pairs that occurred.

    The chance of a token is `(count(previous, token) + smoothing * p(token)) / (count(previous) +
    smoothing)`, where `p` counts single tokens, each once more than it occurred. So no chance is
    0, and behind a token that was never seen it is `p`.

    Attributes:
        offsets: where the pairs of each previous token begin; one entry more than there are ids.
        following: second tokens of the pairs.
        counts: how often each pair occurred.
        single: chance of every token on its own.
        smoothing: weight of `single`, in tokens.
    """

    offsets: Int64[Tensor, "ids"]
    following: Tensor
    counts: Float[Tensor, "pairs"]
    single: Float[Tensor, "vocab"]
    smoothing: float

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Sequence[int] | Tensor],
        vocab_size: int,
        *,
        smoothing: float = 1.0,
        max_bytes: int = 2**28,
    ) -> "BigramCounts":
        """Count documents; no pair spans two of them.

        Args:
            documents: token ids of each.
            vocab_size: ids there are.
            smoothing: weight of single tokens against pairs, in tokens.
            max_bytes: most memory the counts may take.

        Raises:
            ValueError: if there is no token, an id is out of range, `smoothing` is not positive, or
                the counts could take more than `max_bytes`, naming both.
        """
        if not smoothing > 0:
            raise ValueError(f"BigramCounts.smoothing must be positive; got {smoothing}")
        texts = [torch.as_tensor(document, dtype=torch.int64).cpu() for document in documents]
        total = sum(len(text) for text in texts)
        _check(texts, total, vocab_size, max_bytes)
        pairs = torch.cat([text[:-1] * vocab_size + text[1:] for text in texts])
        pairs, counts = pairs.unique(return_counts=True)  # sorted, so rows lie side by side
        first = torch.bincount(pairs // vocab_size, minlength=vocab_size)
        singles = torch.bincount(torch.cat(texts), minlength=vocab_size)
        return cls(
            offsets=torch.cat([first.new_zeros(1), first.cumsum(0)]),
            following=(pairs % vocab_size).int(),
            counts=counts.float(),
            single=((singles + 1).double() / (total + vocab_size)).float(),
            smoothing=smoothing,
        )

    @property
    def vocab_size(self) -> int:
        """Ids there are."""
        return len(self.single)

    @property
    def nbytes(self) -> int:
        """Memory of the counts, in bytes."""
        kept = (self.offsets, self.following, self.counts, self.single)
        return sum(values.nbytes for values in kept)

    def log_probs(self, previous: Int64[Tensor, "*rest"]) -> Float[Tensor, "*rest vocab"]:
        """Log chances of every token behind `previous`, in nats, on its device."""
        rows = previous.cpu().flatten()
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        sizes = ends - starts
        row = torch.arange(len(rows)).repeat_interleave(sizes)
        within = torch.arange(len(row)) - (sizes.cumsum(0) - sizes)[row]
        pairs = starts[row] + within
        mass = (self.smoothing * self.single).expand(len(rows), -1).clone()
        mass[row, self.following[pairs].long()] += self.counts[pairs]
        logs = (mass / mass.sum(-1, keepdim=True)).log()
        return logs.view(*previous.shape, self.vocab_size).to(previous.device)

    def bias(self, previous: Int64[Tensor, "*rest"]) -> Float[Tensor, "*rest vocab"]:
        """How much more likely each token is behind `previous` than on its own, in nats.

        It is 0 everywhere behind a token that was never seen.
        """
        return self.log_probs(previous) - self.single.log().to(previous.device)


@dataclass(eq=False)
class BigramState:
    """What a chain of bigrams remembers of a batch: the newest token of every sequence."""

    anchor: Int64[Tensor, "batch"] | None = None


class BigramDrafter:
    """Drafts a chain of `p(token | token before)`, from counts alone.

    Attributes:
        counts: the counts.
        block_size: most tokens of a proposal.
        layer_ids: empty; it reads nothing of the target.
    """

    layer_ids: tuple[int, ...] = ()

    def __init__(self, counts: BigramCounts, target: Target, *, block_size: int = 4):
        """Take counts.

        Args:
            counts: of texts in the target's tokens.
            target: the model it drafts for.
            block_size: most tokens of a proposal.

        Raises:
            ValueError: if the vocabularies differ, naming both sizes, or `block_size` is below 1.
        """
        _check_vocabulary(counts, target)
        if block_size < 1:
            raise ValueError(f"BigramDrafter.block_size must be at least 1; got {block_size}")
        self.counts, self.block_size = counts, block_size

    def begin(self, batch: int) -> BigramState:
        """State of a fresh batch."""
        return BigramState()

    def absorb(self, state: BigramState, committed: Committed) -> None:
        """Take over the anchor."""
        state.anchor = committed.anchor

    def propose(
        self, state: BigramState, length: int, sampling: Sampling, noise: Noise
    ) -> Proposal:
        """Draft `length` tokens, each from the one before it.

        Raises:
            ValueError: if `length` is above the block, naming both.
        """
        check_length(length, self.block_size)
        uniform = noise.uniform("draft", length)
        token, tokens, probs = state.anchor, [], []
        for slot in range(length):
            token, drawn = pick(self.counts.log_probs(token), sampling, uniform[:, slot])
            tokens.append(token)
            probs.append(drawn)
        return Proposal(tokens=torch.stack(tokens, dim=1), probs=joined(probs))

    def select(self, state: BigramState, rows: list[int]) -> None:
        """Keep only these sequences."""
        state.anchor = state.anchor[rows]


class BigramHead(nn.Module):
    """A bias by counts, at the place of a Markov head; it has no parameters."""

    def __init__(self, counts: BigramCounts, weight: float):
        """Take counts, and how much they weigh."""
        super().__init__()
        self.counts, self.weight = counts, weight

    def embed(self, previous: Int64[Tensor, "*rest"]) -> None:
        """Nothing; a confidence head beside counts reads the slot's state alone."""

    def step(
        self, previous: Int64[Tensor, "*rest"], hidden: Float[Tensor, "*rest hidden"], state: None
    ) -> tuple[Float[Tensor, "*rest vocab"], None]:
        """Bias of one slot; there is no state to carry."""
        return self(previous, hidden), None

    def forward(
        self, previous: Int64[Tensor, "*rest"], hidden: Float[Tensor, "*rest hidden"]
    ) -> Float[Tensor, "*rest vocab"]:
        """Biases behind known tokens; the slots' states do not matter."""
        return self.weight * self.counts.bias(previous)


def with_bigram_bias(drafter: Drafter, counts: BigramCounts, weight: float = 1.0) -> Drafter:
    """A block drafter whose slots are drawn with a bias by bigram counts, without training.

    At every slot `weight * (log p(token | token before) - log p(token))` joins the logits. The
    parameters are shared with the drafter given, which stays as it is.

    Args:
        drafter: a block drafter without a sequential head (DFlash).
        counts: of texts in the target's tokens.
        weight: 0 changes nothing, 1 multiplies chances by the full ratio.

    Raises:
        ValueError: if the drafter has a sequential head, the vocabularies differ, or `weight` is
            negative.
    """
    if drafter.markov_head is not None:
        raise ValueError(
            "counts stand in the place of a sequential head, and this drafter has one of rank "
            f"{drafter.config.markov_rank}; take a drafter with markov_rank=0"
        )
    if not weight >= 0:
        raise ValueError(f"weight must be at least 0; got {weight}")
    _check_vocabulary(counts, drafter.target)
    biased = copy.copy(drafter)
    biased._modules = dict(drafter._modules)  # the copy shares its parts, not the list of them
    biased.markov_head = BigramHead(counts, weight)
    return biased


def _check(texts: list[Tensor], total: int, vocab_size: int, max_bytes: int) -> None:
    if not total:
        raise ValueError("BigramCounts needs at least one token; the documents hold none")
    low = min(int(text.min()) for text in texts if len(text))
    high = max(int(text.max()) for text in texts if len(text))
    if low < 0 or high >= vocab_size:
        raise ValueError(
            f"ids must lie in 0..{vocab_size - 1} (vocab_size={vocab_size}); got {low}..{high}"
        )
    needed = PAIR_BYTES * min(total, vocab_size**2) + ID_BYTES * (vocab_size + 1)
    if needed > max_bytes:
        raise ValueError(
            f"counting {total} tokens of a vocabulary of {vocab_size} may take {needed:,} bytes, "
            f"above max_bytes={max_bytes:,}. Count fewer documents, use a smaller vocabulary, or "
            "raise max_bytes."
        )


def _check_vocabulary(counts: BigramCounts, target: Target) -> None:
    if counts.vocab_size != target.vocab_size:
        raise ValueError(
            f"counts and target must share a vocabulary; the counts know {counts.vocab_size} ids, "
            f"the target {target.vocab_size}"
        )
