"""From logits to the distribution that is sampled, the same way for target and drafter."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

GREEDY = 1e-5  # temperatures below this take the most likely token


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: logits are divided by it; below 1e-5 the most likely token is taken.
        top_k: keep only the so many most likely tokens; None keeps all.
        top_p: keep the fewest most likely tokens whose mass reaches this, after `top_k`.

    Raises:
        ValueError: if a value is out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Check every rule."""
        if not self.temperature >= 0:
            raise ValueError(f"Sampling.temperature must be at least 0; got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"Sampling.top_k must be at least 1 or None; got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"Sampling.top_p must lie above 0 and up to 1; got {self.top_p}")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken, without any draw."""
        return self.temperature < GREEDY

    def probs(self, logits: Float[Tensor, "*rest vocab"]) -> Float[Tensor, "*rest vocab"]:
        """The distribution that is sampled, in at least float32; one-hot rows where greedy."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.greedy:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter_(-1, best, 1.0)
        probs = torch.softmax(logits / self.temperature, dim=-1)
        if self.top_k is None and self.top_p == 1:
            return probs
        ranked, order = probs.sort(dim=-1, descending=True, stable=True)
        kept = torch.ones_like(ranked, dtype=torch.bool)
        if self.top_k is not None:
            kept[..., self.top_k :] = False
            ranked = ranked / ranked[..., : self.top_k].sum(-1, keepdim=True)
        if self.top_p < 1:
            kept &= ranked.cumsum(-1) - ranked < self.top_p
            kept[..., 0] = True
        kept = torch.zeros_like(kept).scatter_(-1, order, kept)
        probs = probs * kept
        return probs / probs.sum(-1, keepdim=True)


def draw(
    probs: Float[Tensor, "*rest vocab"], uniform: Float[Tensor, "*rest"]
) -> Int64[Tensor, "*rest"]:
    """Tokens by inversion: the first whose cumulated mass exceeds `uniform` times the whole.

    A token of mass 0 is never drawn.

    Args:
        probs: not negative; need not add up to 1.
        uniform: in [0, 1).
    """
    mass = probs.double().cumsum(-1)
    wanted = uniform.double()[..., None] * mass[..., -1:]
    last = probs.shape[-1] - 1 - (probs > 0).flip(-1).int().argmax(-1)
    return torch.minimum(torch.searchsorted(mass, wanted, right=True)[..., 0], last)


class Noise:
    """Uniform numbers of a generation, apart for every sequence and every purpose.

    Drafts, acceptance and corrections must not share numbers, or the output is biased; and a
    sequence draws the same whatever is decoded beside it.
    """

    PURPOSES = ("draft", "accept", "correct")

    def __init__(self, batch: int, seed: int):
        """Fresh streams.

        Args:
            batch: sequences.
            seed: of all streams.
        """
        self._streams = {
            purpose: [
                torch.Generator().manual_seed(_mixed(seed, row, index)) for row in range(batch)
            ]
            for index, purpose in enumerate(self.PURPOSES)
        }

    def uniform(
        self, purpose: str, count: int, *, used: Int64[Tensor, "batch"] | None = None
    ) -> Float[Tensor, "batch count"]:
        """`count` numbers for every sequence, on the CPU.

        Args:
            purpose: one of `PURPOSES`.
            count: numbers of each.
            used: how many of them each sequence needs, if not all; the others are 0 and not drawn,
                so that what a sequence draws later does not hang on its neighbours.
        """
        streams = self._streams[purpose]
        counts = [count] * len(streams) if used is None else used.tolist()
        numbers = torch.zeros(len(streams), count)
        for row, (stream, needed) in enumerate(zip(streams, counts, strict=True)):
            numbers[row, :needed] = torch.rand(needed, generator=stream)
        return numbers

    def select(self, rows: list[int]) -> None:
        """Keep only these sequences."""
        self._streams = {p: [g[row] for row in rows] for p, g in self._streams.items()}


def _mixed(seed: int, row: int, purpose: int) -> int:
    """A seed of 63 bits, in which near inputs are far apart (multiply and fold)."""
    value = (seed * 1_000_003 + row * 8 + purpose) & (2**64 - 1)
    for multiplier in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        value = ((value ^ (value >> 30)) * multiplier) & (2**64 - 1)
    return (value ^ (value >> 31)) >> 1
