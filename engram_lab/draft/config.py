"""`DraftConfig`: shape of a block drafter (DSpark, or DFlash where it has no heads)."""

from dataclasses import dataclass
from typing import Literal

MarkovHeadType = Literal["vanilla", "gated", "rnn"]
MARKOV_HEADS = ("vanilla", "gated", "rnn")
Tap = Literal["output", "raw_output", "entering"]
TAPS = ("output", "raw_output", "entering")
_POSITIVE = (
    "vocab_size",
    "hidden_size",
    "target_depth",
    "block_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_size",
    "intermediate_size",
)


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """Shape of a block drafter, and what it expects of its target.

    Attributes:
        vocab_size: ids of the target; its embedding and head are shared.
        hidden_size: width of the target's stream, which is also the drafter's.
        target_depth: blocks of the target.
        target_layer_ids: blocks whose outputs the drafter reads, counted from 0 and rising; -1 is
            the embedding. The last block is not among them, since frameworks disagree on whether
            its output is normalised.
        tap: what is read of these blocks: their "output"; "raw_output", which allows the last
            block, too, and is what it leaves before any norm; or the stream "entering" their
            attention, with what a memory of the block has added to it.
        mask_token_id: id that stands at the slots to be filled.
        block_size: tokens drafted in one round (gamma in the paper).
        num_hidden_layers: blocks of the drafter.
        num_attention_heads: query heads.
        num_key_value_heads: key heads, which query heads share.
        head_size: width of one head.
        intermediate_size: width of the feed-forward.
        markov_rank: rank of the sequential head; 0 leaves it out, which makes the drafter a DFlash.
        markov_head_type: what the sequential head knows beside the previous token: nothing
            ("vanilla"), the slot's hidden state ("gated"), or also all earlier slots ("rnn").
        confidence: whether there is a head that estimates how likely each draft survives.
        confidence_detach: whether that head's gradient stops before the backbone.
        sample_from_anchor: whether the anchor's own slot predicts the first draft. If not, the
            block has one slot more, and that of the anchor predicts nothing (DFlash's first form).
        causal_block: whether a slot sees only earlier slots of its block.
        sliding_window: context positions before the anchor that a block sees; None for all.
        rms_norm_eps: added to mean squares.
        rope_theta: base of the rotary angles.

    Raises:
        ValueError: if a rule is broken, naming both numbers.

    Source: DSpark paper, section 3; deepseek-ai/DeepSpec, modeling/dspark.
    """

    vocab_size: int
    hidden_size: int
    target_depth: int
    target_layer_ids: tuple[int, ...]
    tap: Tap = "output"
    mask_token_id: int
    block_size: int = 7
    num_hidden_layers: int = 1
    num_attention_heads: int = 4
    num_key_value_heads: int = 4
    head_size: int = 32
    intermediate_size: int = 256
    markov_rank: int = 0
    markov_head_type: MarkovHeadType = "vanilla"
    confidence: bool = False
    confidence_detach: bool = False
    sample_from_anchor: bool = True
    causal_block: bool = False
    sliding_window: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        """Check every rule."""
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise ValueError(
                    f"DraftConfig.{name} must be at least 1; got {getattr(self, name)}"
                )
        if self.markov_rank < 0:
            raise ValueError(f"DraftConfig.markov_rank must be at least 0; got {self.markov_rank}")
        if self.markov_head_type not in MARKOV_HEADS:
            raise ValueError(
                f"DraftConfig.markov_head_type must be one of {', '.join(MARKOV_HEADS)}; got "
                f"{self.markov_head_type!r}"
            )
        if self.head_size % 2:
            raise ValueError(f"DraftConfig.head_size must be even; got {self.head_size}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                "DraftConfig.num_key_value_heads must divide num_attention_heads "
                f"({self.num_attention_heads}); got {self.num_key_value_heads}"
            )
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ValueError(
                f"DraftConfig.sliding_window must be at least 1 or None; got {self.sliding_window}"
            )
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise ValueError(
                f"DraftConfig.mask_token_id must lie in 0..{self.vocab_size - 1} "
                f"(vocab_size={self.vocab_size}); got {self.mask_token_id}"
            )
        check_taps(self.target_layer_ids, self.target_depth, self.tap)

    @property
    def slots(self) -> int:
        """Slots of a block: one a draft, and one more where the anchor's predicts nothing."""
        return self.block_size + (0 if self.sample_from_anchor else 1)


def check_taps(layer_ids: tuple[int, ...], depth: int, tap: Tap = "output") -> None:
    """Check the target blocks that a drafter reads, and what it reads of them.

    Raises:
        ValueError: if there is none, they do not rise, one is out of range, or the output of the
            last block is read without saying that it is the raw one.
    """
    if tap not in TAPS:
        raise ValueError(f"tap must be one of {', '.join(TAPS)}; got {tap!r}")
    if not layer_ids or list(layer_ids) != sorted(set(layer_ids)):
        raise ValueError(
            f"target_layer_ids must be at least one block, strictly rising; got {layer_ids}"
        )
    if tap == "entering" and layer_ids[0] < 0:
        raise ValueError(
            f"with tap='entering' target_layer_ids must lie in 0..{depth - 1}; got {layer_ids}. "
            "What enters block 0 is the embedding, with what a memory there has added."
        )
    if layer_ids[0] < -1 or layer_ids[-1] >= depth:
        raise ValueError(
            f"target_layer_ids must lie in -1..{depth - 2} (the target has {depth} blocks, -1 is "
            f"its embedding); got {layer_ids}"
        )
    if tap == "output" and layer_ids[-1] == depth - 1:
        raise ValueError(
            f"target_layer_ids must leave out the last block, {depth - 1} of {depth}: its output "
            f"is normalised in one framework and raw in another; got {layer_ids}. Take "
            f"{default_taps(depth)}, or say tap='raw_output', which is read before any norm."
        )


def default_taps(depth: int) -> tuple[int, ...]:
    """Blocks to read where none are named: near both ends and in the middle.

    Args:
        depth: blocks of the target; at least 2.

    Raises:
        ValueError: if there are fewer.
    """
    if depth < 2:
        raise ValueError(f"a drafter reads a target of at least 2 blocks; got {depth}")
    wanted = {1, depth // 2, depth - 2} if depth >= 5 else set(range(depth - 1))
    return tuple(sorted(wanted))
