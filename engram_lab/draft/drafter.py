"""`Drafter`: the block drafter of DSpark; without heads it is DFlash.

One pass over a block of slots (the anchor and masks) that attend to the target's states, injected
as keys and values of every draft block; then a small sequential head from left to right.
"""

from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from engram_lab.draft.blocks import slot_positions, slot_tokens, training_bias
from engram_lab.draft.config import DraftConfig, Tap
from engram_lab.draft.context import ContextCache
from engram_lab.draft.heads import ConfidenceHead, markov_head
from engram_lab.draft.layers import DraftBlock
from engram_lab.draft.proposer import Committed, check_length, joined, pick
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from engram_lab.draft.verify import Proposal
from engram_lab.model.layers import RMSNorm, rotary_angles


@dataclass(frozen=True, kw_only=True, eq=False)
class Drafted:
    """What a drafter made of blocks whose tokens are known.

    Attributes:
        hidden: states of the predicting slots, after the final norm (of a `ReleasedDrafter` before
            it).
        base: logits of the target's head on them.
        logits: corrected by the sequential head.
        confidence: logits of surviving; None without that head.
    """

    hidden: Float[Tensor, "batch anchor block hidden"]
    base: Float[Tensor, "batch anchor block vocab"]
    logits: Float[Tensor, "batch anchor block vocab"]
    confidence: Float[Tensor, "batch anchor block"] | None


@dataclass(eq=False)
class DraftState:
    """What a drafter remembers of a batch: context rows, and each sequence's newest token."""

    context: ContextCache
    anchor: Int64[Tensor, "batch"] | None = None


class Drafter(nn.Module):
    """DSpark's drafter; with `markov_rank=0` and no confidence it is DFlash.

    The target's embedding and head are shared and frozen; they are not part of its state.

    Args:
        config: its shape.
        target: the model it drafts for, reading `config.target_layer_ids`.

    Raises:
        ValueError: if vocabulary, width, depth or read blocks differ, naming both.

    Source: DSpark paper, section 3.1; DeepSpec modeling/dspark.
    """

    block_type: type[nn.Module] = DraftBlock
    confidence_type: type[nn.Module] = ConfidenceHead

    def __init__(self, config: DraftConfig, target: Target):
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * width, width, bias=False)
        self.hidden_norm = RMSNorm(width, config.rms_norm_eps)
        self.layers = nn.ModuleList(
            self.block_type(config) for _ in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(width, config.rms_norm_eps)
        self.markov_head = markov_head(config)
        self.confidence_head = self.confidence_type(config) if config.confidence else None
        self.retarget(target)

    @property
    def block_size(self) -> int:
        """Most tokens of one proposal."""
        return self.config.block_size

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """Blocks of the target that are read."""
        return self.config.target_layer_ids

    @property
    def tap(self) -> Tap:
        """What is read of them."""
        return self.config.tap

    def retarget(self, target: Target) -> None:
        """Draft for another target of the same shape, as when the target trains on.

        Raises:
            ValueError: if it has another shape, naming both numbers.
        """
        for name, ours, theirs in (
            ("vocabulary", self.config.vocab_size, target.vocab_size),
            ("width", self.config.hidden_size, target.hidden_size),
            ("number of blocks", self.config.target_depth, target.depth),
            ("tapped blocks", self.config.target_layer_ids, target.layer_ids),
            ("tap", self.config.tap, target.tap),
        ):
            if ours != theirs:
                raise ValueError(
                    f"drafter and target must agree in their {name}; the drafter's config says "
                    f"{ours}, the target has {theirs}"
                )
        self.target = target

    def inject(
        self, features: Float[Tensor, "batch seq taps"]
    ) -> Float[Tensor, "batch seq hidden"]:
        """The target's states as context rows.

        Raises:
            ValueError: if their width is not that of the tapped blocks.
        """
        if features.shape[-1] != self.fc.in_features:
            raise ValueError(
                f"features of {len(self.layer_ids)} tapped blocks are {self.fc.in_features} wide; "
                f"got {features.shape[-1]}"
            )
        return self.hidden_norm(self.fc(features.to(self.fc.weight.dtype)))

    def forward(
        self,
        token_ids: Int64[Tensor, "batch seq"],
        features: Float[Tensor, "batch seq taps"],
        anchors: Int64[Tensor, "batch anchor"],
        keep: Bool[Tensor, "batch anchor"],
        document_ids: Int64[Tensor, "batch seq"] | None = None,
    ) -> Drafted:
        """Blocks at many anchors of known texts at once.

        Args:
            token_ids: the texts.
            features: the target's states at their tokens; a block sees those before its anchor.
            anchors: positions of the anchors.
            keep: False for blocks that only fill the tensor; their output has no meaning.
            document_ids: packed documents; a block sees its own.
        """
        config = self.config
        count = anchors.shape[1]
        positions = torch.arange(token_ids.shape[1], device=token_ids.device)[None]
        hidden = self._enter(self._embed(slot_tokens(token_ids, anchors, config)))
        context = self.inject(features)
        rows = self._rotary(positions)
        slots = self._rotary(slot_positions(anchors, config))
        bias = training_bias(anchors, keep, config, token_ids.shape[1], document_ids)
        for layer in self.layers:
            pairs = layer.self_attn.keys_values(context, rows)
            hidden = layer(hidden, slots, pairs, bias)
        hidden = rearrange(
            self._leave(hidden),
            "batch (anchor slot) hidden -> batch anchor slot hidden",
            anchor=count,
        )[:, :, config.slots - config.block_size :]
        base = self._head(hidden)
        ahead = anchors[..., None] + torch.arange(config.block_size, device=anchors.device)
        ahead = ahead.clamp_max(token_ids.shape[1] - 1)
        before = self._known(token_ids, ahead, document_ids)
        logits = base if self.markov_head is None else base + self.markov_head(before, hidden)
        return Drafted(
            hidden=hidden, base=base, logits=logits, confidence=self._confidence(hidden, before)
        )

    def begin(self, batch: int) -> DraftState:
        """State of a fresh batch."""
        return DraftState(context=ContextCache(len(self.layers), batch))

    @torch.no_grad()
    def absorb(self, state: DraftState, committed: Committed) -> None:
        """Turn the target's new states into context rows.

        Raises:
            ValueError: if the target was read without the blocks this drafter taps.
        """
        if committed.features is None:
            raise ValueError(
                f"this drafter reads the target's blocks {self.layer_ids}; the target was read "
                "without any. Build it with Target(model, drafter.layer_ids)."
            )
        cache = state.context
        context = self.inject(committed.features[:, : int(committed.counts.max())])
        rotary = self._rotary(cache.positions(context.shape[1]).to(context.device))
        for index, layer in enumerate(self.layers):
            cache.write(index, *layer.self_attn.keys_values(context, rotary))
        cache.extend(committed.counts)
        state.anchor = committed.anchor

    @torch.no_grad()
    def block(
        self, state: DraftState
    ) -> tuple[Float[Tensor, "batch block hidden"], Float[Tensor, "batch block vocab"]]:
        """States and base logits of the predicting slots behind every anchor."""
        config, cache = self.config, state.context
        device = state.anchor.device
        masks = state.anchor.new_full((len(state.anchor), config.slots - 1), config.mask_token_id)
        hidden = self._enter(self._embed(torch.cat([state.anchor[:, None], masks], dim=1)))
        rotary = self._rotary(cache.positions(config.slots).to(device))
        window = config.sliding_window
        first = 0 if window is None else max(0, int(cache.lengths.min()) - window)
        bias = self._decoding_bias(cache, first, device)
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, rotary, cache.read(index, first), bias)
        hidden = self._leave(hidden)[:, config.slots - config.block_size :]
        return hidden, self._head(hidden)

    @torch.no_grad()
    def propose(self, state: DraftState, length: int, sampling: Sampling, noise: Noise) -> Proposal:
        """Draft `length` tokens: one pass over the block, then the head, left to right.

        Raises:
            ValueError: if `length` is above the block, naming both.
        """
        check_length(length, self.block_size)
        hidden, base = self.block(state)
        uniform = noise.uniform("draft", length)
        previous, carried = state.anchor, None
        before, tokens, probs = [], [], []
        for slot in range(length):
            logits = base[:, slot]
            before.append(self._seen(state, previous))
            if self.markov_head is not None:
                bias, carried = self.markov_head.step(before[slot], hidden[:, slot], carried)
                logits = logits + bias
            previous, drawn = pick(logits, sampling, uniform[:, slot])
            tokens.append(previous)
            probs.append(drawn)
        return Proposal(
            tokens=torch.stack(tokens, dim=1),
            probs=joined(probs),
            confidence=self._confidence(hidden[:, :length], torch.stack(before, dim=1)),
        )

    def select(self, state: DraftState, rows: list[int]) -> None:
        """Keep only these sequences."""
        state.context.select(rows)
        state.anchor = state.anchor[rows]

    def _known(self, token_ids: Tensor, ahead: Tensor, document_ids: Tensor | None) -> Tensor:
        """What the sequential head reads at positions of known texts: their tokens."""
        return token_ids.gather(1, ahead.flatten(1)).view_as(ahead)

    def _seen(self, state: DraftState, previous: Tensor) -> Tensor:
        """What it reads before a slot while decoding: the token there."""
        return previous

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_angles(positions, self.config.head_size, self.config.rope_theta)

    def _enter(self, embedded: Tensor) -> Tensor:
        """What the first block reads."""
        return embedded

    def _leave(self, hidden: Tensor) -> Tensor:
        """What head and confidence read of the last block's output."""
        return self.norm(hidden)

    def _embed(self, token_ids: Tensor) -> Tensor:
        """The target's embeddings in the drafter's own precision."""
        return self.target.embed(token_ids).to(self.fc.weight.dtype)

    def _head(self, hidden: Tensor) -> Tensor:
        """The target's head, which may be in half precision, on states of the drafter's own."""
        return self.target.head(hidden.to(self.target.embedding.weight.dtype)).to(hidden.dtype)

    def _confidence(self, hidden: Tensor, before: Tensor) -> Tensor | None:
        if self.confidence_head is None:
            return None
        embedded = None if self.markov_head is None else self.markov_head.embed(before)
        return self.confidence_head(hidden, embedded)

    def _decoding_bias(self, cache: ContextCache, first: int, device: Any) -> Tensor | None:
        """Bias over context rows from `first` and slots; None where every slot sees everything."""
        config = self.config
        window, slots = config.sliding_window, config.slots
        if cache.even and not config.causal_block and window is None:
            return None
        rows = torch.arange(first, cache.total)
        lengths = cache.lengths[:, None]
        seen = rows < lengths
        if window is not None:
            seen &= rows >= lengths - window
        seen = seen[:, None].expand(-1, slots, -1)
        inside = torch.ones(slots, slots, dtype=torch.bool)
        inside = inside.tril() if config.causal_block else inside
        allowed = torch.cat([seen, inside.expand(len(lengths), -1, -1)], dim=-1)
        bias = torch.zeros(allowed.shape).masked_fill_(~allowed, -torch.inf)
        return bias[:, None].to(device)
