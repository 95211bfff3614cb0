"""The heads of DSpark: a sequential bias from the previous token, and a confidence."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.draft.config import DraftConfig


class MarkovHead(nn.Module):
    """Bias of a slot's logits by the token before it: `W2 W1[previous]`, of low rank.

    A step's bias is an exact shift of logits, so the corrected distribution stays a softmax.

    Source: DSpark paper, equations 4 to 6; DeepSpec modeling/dspark/markov_head.py.
    """

    def __init__(self, config: DraftConfig):
        super().__init__()
        self.rank = config.markov_rank
        self.markov_w1 = nn.Embedding(config.vocab_size, self.rank)
        self.markov_w2 = nn.Linear(self.rank, config.vocab_size, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=self.rank**-0.5)
        nn.init.zeros_(self.markov_w2.weight)  # a fresh head leaves the base logits alone

    def embed(self, previous: Int64[Tensor, "*rest"]) -> Float[Tensor, "*rest rank"]:
        """What the head keeps of the previous token; the confidence head reads it as well."""
        return self.markov_w1(previous)

    def step(
        self, previous: Int64[Tensor, "*rest"], hidden: Float[Tensor, "*rest hidden"], state: Any
    ) -> tuple[Float[Tensor, "*rest vocab"], Any]:
        """Bias of one slot, and the state for the next.

        Args:
            previous: the token before the slot; the anchor before the first.
            hidden: state of the slot, after the drafter's final norm.
            state: what the step before returned; None at the first slot.
        """
        latent, state = self.latent(self.embed(previous), hidden, state)
        return self.markov_w2(latent), state

    def latent(
        self,
        embedded: Float[Tensor, "*rest rank"],
        hidden: Float[Tensor, "*rest hidden"],
        state: Any,
    ) -> tuple[Float[Tensor, "*rest rank"], Any]:
        """What `W2` turns into the bias; here the previous token alone."""
        return embedded, state

    def forward(
        self,
        previous: Int64[Tensor, "*rest block"],
        hidden: Float[Tensor, "*rest block hidden"],
    ) -> Float[Tensor, "*rest block vocab"]:
        """Biases of whole blocks whose tokens are known, as in training."""
        embedded = self.embed(previous)
        return self.markov_w2(torch.stack(list(self._latents(embedded, hidden)), dim=-2))

    def _latents(self, embedded: Tensor, hidden: Tensor) -> Iterator[Tensor]:
        state = None
        for slot in range(hidden.shape[-2]):
            latent, state = self.latent(embedded[..., slot, :], hidden[..., slot, :], state)
            yield latent


class GatedMarkovHead(MarkovHead):
    """A Markov head whose rank dimensions are opened by the slot's hidden state.

    Source: DeepSpec modeling/dspark/markov_head.py (the paper does not describe it).
    """

    def __init__(self, config: DraftConfig):
        super().__init__(config)
        self.gate_proj = nn.Linear(config.hidden_size + self.rank, self.rank)

    def latent(
        self,
        embedded: Float[Tensor, "*rest rank"],
        hidden: Float[Tensor, "*rest hidden"],
        state: Any,
    ) -> tuple[Float[Tensor, "*rest rank"], Any]:
        """The previous token, gated."""
        gate = torch.sigmoid(self.gate_proj(torch.cat([hidden, embedded], dim=-1)))
        return gate * embedded, state


class RecurrentMarkovHead(MarkovHead):
    """A head that carries a state through the block; a slot is biased by the state before it.

    Source: DSpark paper, section 3.1.2; DeepSpec modeling/dspark/markov_head.py.
    """

    def __init__(self, config: DraftConfig):
        super().__init__(config)
        self.joint_proj = nn.Linear(2 * self.rank + config.hidden_size, 3 * self.rank)

    def latent(
        self,
        embedded: Float[Tensor, "*rest rank"],
        hidden: Float[Tensor, "*rest hidden"],
        state: Any,
    ) -> tuple[Float[Tensor, "*rest rank"], Any]:
        """Output of the recurrence, and its next state."""
        state = torch.zeros_like(embedded) if state is None else state
        joint = self.joint_proj(torch.cat([state, embedded, hidden], dim=-1))
        gate, candidate, output = joint.chunk(3, dim=-1)
        gate = torch.sigmoid(gate)
        return torch.tanh(output), gate * state + (1 - gate) * torch.tanh(candidate)


HEADS = {"vanilla": MarkovHead, "gated": GatedMarkovHead, "rnn": RecurrentMarkovHead}


def markov_head(config: DraftConfig) -> MarkovHead | None:
    """The sequential head of a config; None at rank 0."""
    return HEADS[config.markov_head_type](config) if config.markov_rank else None


class ConfidenceHead(nn.Module):
    """Logit of the chance that a slot's draft survives, given that all before it did.

    It reads the slot's state and the token before the slot, never the token it speaks of, so a
    length chosen by it cannot depend on what it decides about.

    Source: DSpark paper, equation 7.
    """

    biased = True

    def __init__(self, config: DraftConfig):
        super().__init__()
        self.detached = config.confidence_detach
        self.proj = nn.Linear(config.hidden_size + config.markov_rank, 1, bias=self.biased)

    def forward(
        self,
        hidden: Float[Tensor, "*rest hidden"],
        embedded: Float[Tensor, "*rest rank"] | None,
    ) -> Float[Tensor, "*rest"]:
        """Logits.

        Args:
            hidden: slot states after the final norm.
            embedded: `MarkovHead.embed` of the token before each slot; None at rank 0.
        """
        features = hidden if embedded is None else torch.cat([hidden, embedded], dim=-1)
        return self.score(features.detach() if self.detached else features)

    def score(self, features: Float[Tensor, "*rest width"]) -> Float[Tensor, "*rest"]:
        """Logits of states with the token's latent behind them."""
        return self.proj(features).squeeze(-1)
