"""`ChainDrafter`: one block that reads its own output, step by step; what EAGLE-3 and MTP share.

A row is a pair, the state at position t and the token at t + 1, and stands at rotary position t;
its output predicts the token at t + 2 and is the state of the next step. Rows of committed tokens
are made of the target's states and kept; rows of drafts are made of outputs and forgotten.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from engram_lab.draft.blocks import UNSEEN
from engram_lab.draft.chain_config import ChainConfig
from engram_lab.draft.context import ContextCache, KeysValues
from engram_lab.draft.layers import DraftAttention, GatedFeedForward
from engram_lab.draft.proposer import Committed, check_length, joined, pick
from engram_lab.draft.sampling import Noise, Sampling
from engram_lab.draft.target import Target
from engram_lab.draft.verify import Proposal
from engram_lab.model.layers import RMSNorm, rotary_angles


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """What the block makes of a pair of state and token, before attention.

    Attributes:
        stream: what its updates are added to.
        inputs: what queries, keys and values are projected from.
    """

    stream: Float[Tensor, "batch seq hidden"]
    inputs: Float[Tensor, "batch seq inputs"]

    def at(self, index: Int64[Tensor, "batch"]) -> "Row":
        """One row of every sequence."""
        rows = torch.arange(len(index), device=index.device)
        return Row(
            stream=self.stream[rows, index][:, None], inputs=self.inputs[rows, index][:, None]
        )

    def select(self, rows: list[int]) -> "Row":
        """Only these sequences."""
        return Row(stream=self.stream[rows], inputs=self.inputs[rows])


@dataclass(eq=False)
class ChainState:
    """What a chain remembers of a batch.

    Attributes:
        context: keys and values of committed pairs.
        newest: the pair of every sequence whose token is the anchor; its keys are in `context`.
    """

    context: ContextCache
    newest: Row | None = None


class ChainDrafter(nn.Module):
    """A drafter of one block that drafts a token a pass, each from the output before it.

    The target's embedding and head are shared and frozen; they are not part of its state. One block
    alone: keys of committed pairs need no attention, so many are appended at once without a mask.

    Args:
        config: its shape.
        target: the model it drafts for.
        inputs: numbers a row that queries, keys and values are projected from.

    Raises:
        ValueError: if vocabulary, width, depth or read blocks differ, naming both.
    """

    layer_ids: tuple[int, ...] = ()

    def __init__(self, config: ChainConfig, target: Target, *, inputs: int):
        super().__init__()
        self.config = config
        block = config.block_config()
        self.self_attn = DraftAttention(block, inputs=inputs)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedFeedForward(block)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.retarget(target)

    @property
    def block_size(self) -> int:
        """Most tokens of one proposal."""
        return self.config.block_size

    @abstractmethod
    def states(
        self, features: Float[Tensor, "batch seq taps"] | None, final: Float[Tensor, "batch seq _"]
    ) -> Float[Tensor, "batch seq hidden"]:
        """The target's states as the first step reads them."""

    @abstractmethod
    def row(
        self,
        embedded: Float[Tensor, "batch seq hidden"],
        states: Float[Tensor, "batch seq hidden"],
    ) -> Row:
        """Pairs of states and the embeddings of the tokens behind them."""

    @abstractmethod
    def carried(
        self, output: Float[Tensor, "batch seq hidden"], normed: Float[Tensor, "batch seq hidden"]
    ) -> Float[Tensor, "batch seq hidden"]:
        """State of the next step, out of the block's output before and after the final norm."""

    def retarget(self, target: Target) -> None:
        """Draft for another target of the same shape, as when the target trains on.

        Raises:
            ValueError: if it has another shape, naming both numbers.
        """
        for name, ours, theirs in (
            ("vocabulary", self.config.vocab_size, target.vocab_size),
            ("width", self.config.hidden_size, target.hidden_size),
            ("number of blocks", self.config.target_depth, target.depth),
            ("tapped blocks", self.layer_ids, target.layer_ids),
        ):
            if ours != theirs:
                raise ValueError(
                    f"drafter and target must agree in their {name}; the drafter's config says "
                    f"{ours}, the target has {theirs}"
                )
        self.target = target

    def unroll(
        self,
        states: Float[Tensor, "batch seq hidden"],
        embedded: Float[Tensor, "batch seq hidden"],
        document_ids: Int64[Tensor, "batch seq"] | None = None,
    ) -> Iterator[Float[Tensor, "batch seq hidden"]]:
        """Normed outputs of every step over whole texts, as decoding would come to them.

        Step s at t reads the token at t + 1 + s and its own output of the step before, and predicts
        the token at t + 2 + s. It sees the pairs of the target's states up to t, and its own later
        ones. The last s + 1 positions of step s have no meaning.

        Args:
            states: what `states` made of the target's.
            embedded: embeddings of the texts' tokens.
            document_ids: packed documents; a pair sees its own.

        Source: EAGLE-3 (arXiv:2503.01840), training-time test; DeepSpec modeling/eagle3.
        """
        seq, device = states.shape[1], states.device
        pairs: list[KeysValues] = []
        for step in range(self.block_size):
            row = self.row(F.pad(embedded[:, 1 + step :], (0, 0, 0, min(1 + step, seq))), states)
            rotary = self._rotary(torch.arange(seq, device=device)[None] + step)
            pairs.append(self.self_attn.keys_values(row.inputs, rotary))
            seen = unroll_mask(seq, step, device)[None]
            if document_ids is not None:
                same = document_ids[:, :, None] == document_ids[:, None]
                seen = seen & same.repeat(1, 1, step + 1)
            output = self._output(row, rotary, pairs, (~seen[:, None]).float() * UNSEEN)
            normed = self.norm(output)
            yield normed
            states = self.carried(output, normed)

    def begin(self, batch: int) -> ChainState:
        """State of a fresh batch."""
        return ChainState(context=ContextCache(1, batch))

    @torch.no_grad()
    def absorb(self, state: ChainState, committed: Committed) -> None:
        """Pair the target's new states with the tokens behind them; the last with the anchor.

        Raises:
            ValueError: if the target was read without the blocks this drafter taps.
        """
        counts = committed.counts.to(committed.anchor.device)
        behind = F.pad(committed.token_ids[:, 1:], (0, 1))
        behind = behind.scatter(1, counts[:, None] - 1, committed.anchor[:, None])
        states = self.states(committed.features, committed.final)
        row = self.row(self.target.embed(behind), states)
        positions = state.context.positions(behind.shape[1]).to(behind.device)
        pairs = self.self_attn.keys_values(row.inputs, self._rotary(positions))
        state.context.write(0, *pairs)
        state.context.extend(committed.counts)
        state.newest = row.at(counts - 1)

    @torch.no_grad()
    def propose(self, state: ChainState, length: int, sampling: Sampling, noise: Noise) -> Proposal:
        """Draft `length` tokens, one pass each.

        Raises:
            ValueError: if `length` is above the block, naming both.
        """
        check_length(length, self.block_size)
        cache, row = state.context, state.newest
        positions = (cache.lengths[:, None] - 1).to(row.stream.device)
        seen = torch.arange(cache.total) < cache.lengths[:, None]
        uniform = noise.uniform("draft", length)
        pairs = [cache.read(0)]
        tokens, probs = [], []
        for step in range(length):
            rotary = self._rotary(positions + step)
            if step:
                pairs.append(self.self_attn.keys_values(row.inputs, rotary))
            bias = None if cache.even else F.pad((~seen).float() * UNSEEN, (0, step))
            bias = None if bias is None else bias[:, None, None].to(row.stream.device)
            output = self._output(row, rotary, pairs, bias)
            normed = self.norm(output)
            token, drawn = pick(self.target.head(normed)[:, 0], sampling, uniform[:, step])
            tokens.append(token)
            probs.append(drawn)
            row = self.row(self.target.embed(token[:, None]), self.carried(output, normed))
        return Proposal(tokens=torch.stack(tokens, dim=1), probs=joined(probs))

    def select(self, state: ChainState, rows: list[int]) -> None:
        """Keep only these sequences."""
        state.context.select(rows)
        state.newest = state.newest.select(rows)

    def _output(
        self, row: Row, rotary: tuple[Tensor, Tensor], pairs: list[KeysValues], bias: Tensor | None
    ) -> Tensor:
        key, value = (torch.cat(part, dim=2) for part in zip(*pairs, strict=True))
        hidden = row.stream + self.self_attn(row.inputs, rotary, (key, value), bias)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))

    def _rotary(self, positions: Int64[Tensor, "rows seq"]) -> tuple[Tensor, Tensor]:
        return rotary_angles(positions, self.config.head_size, self.config.rope_theta)


def unroll_mask(
    seq: int, step: int, device: torch.device | str = "cpu"
) -> Bool[Tensor, "seq keys"]:
    """What position t sees at a step: pairs up to t of the first, and its own of each later one.

    Keys stand step after step, `seq` of each. The last `step` positions see nothing: their tokens
    lie behind the text.

    Source: DeepSpec modeling/eagle3.
    """
    first = torch.ones(seq, seq, dtype=torch.bool, device=device).tril()
    own = torch.eye(seq, dtype=torch.bool, device=device)
    seen = torch.cat([first, *[own] * step], dim=1)
    seen[max(seq - step, 0) :] = False
    return seen
