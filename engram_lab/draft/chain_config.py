"""`ChainConfig`: the shape that EAGLE-3 and MTP have in common, one block that reads its output."""

from dataclasses import dataclass

from engram_lab.draft.config import DraftConfig


@dataclass(frozen=True, kw_only=True)
class ChainConfig:
    """Shape of a drafter of one block, and what it expects of its target.

    Attributes:
        vocab_size: ids of the target; its embedding and head are shared.
        hidden_size: width of the target's stream, which is also the drafter's.
        target_depth: blocks of the target.
        block_size: steps unrolled in training, and most tokens of a proposal.
        num_attention_heads: query heads.
        num_key_value_heads: key heads, which query heads share.
        head_size: width of one head.
        intermediate_size: width of the feed-forward.
        rms_norm_eps: added to mean squares.
        rope_theta: base of the rotary angles.

    Raises:
        ValueError: if a rule is broken, naming both numbers.
    """

    vocab_size: int
    hidden_size: int
    target_depth: int
    block_size: int = 7
    num_attention_heads: int = 4
    num_key_value_heads: int = 4
    head_size: int = 32
    intermediate_size: int = 256
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        """Check every rule."""
        try:
            self.block_config()
        except ValueError as broken:
            named = str(broken).replace("DraftConfig", type(self).__name__)
            raise ValueError(named) from None

    def block_config(self) -> DraftConfig:
        """Shape of the block's parts."""
        return DraftConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            target_depth=self.target_depth,
            target_layer_ids=(-1,),
            mask_token_id=0,  # a chain has no masks
            block_size=self.block_size,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_size=self.head_size,
            intermediate_size=self.intermediate_size,
            rms_norm_eps=self.rms_norm_eps,
            rope_theta=self.rope_theta,
        )
