"""`ReleasedConfig`: shape of DSpark's drafter as it is in production, in DeepSeek-V4 and V4.1.

What is known of it at second hand only is a field of its own, so that nothing is settled silently.
"""

from dataclasses import dataclass
from typing import Any, Literal

from engram_lab.draft.config import DraftConfig, Tap
from engram_lab.model.config import MoEConfig, Score

ConfidenceReads = Literal["collapsed", "normed"]
_POSITIVE = (
    "hc_mult",
    "hc_sinkhorn_iters",
    "rotary_size",
    "query_rank",
    "output_rank",
    "output_groups",
)


@dataclass(frozen=True, kw_only=True)
class ReleasedConfig(DraftConfig):
    """Shape of a drafter in production form: latent attention, experts, residual branches.

    Known at second hand only (from readings of the released files): `tap`, `intermediate_size`,
    `confidence_reads`, the number of experts and, for V4.1, that its attention is V4's:
    `query_rank`, `output_rank`, `output_groups`, `attention_sinks`, `undo_rotation`.

    Attributes:
        tap: V4.1 reads the stream "entering" its last three blocks, V4 the "raw_output" of its
            own. One for the other is off by a block, so target and drafter must name the same.
        block_size: tokens drafted in one round.
        num_hidden_layers: blocks of the drafter.
        num_key_value_heads: 1: all heads share one latent, which is key and value at once.
        head_size: width of that latent.
        intermediate_size: inner width of one expert, routed or shared.
        sliding_window: context positions before the anchor that a block sees.
        markov_rank: rank of the sequential head, which is a vanilla one.
        confidence: whether there is a confidence head; it computes in float32 and has no bias.
        hc_mult: residual branches of every slot.
        hc_sinkhorn_iters: rounds that make the mixture of branches doubly stochastic.
        rotary_size: last numbers of the latent and of a query that are rotated.
        query_rank: rank of the projection to queries.
        output_rank: numbers that every group of heads is projected to on the way out.
        output_groups: groups of heads.
        attention_sinks: whether every head has a learned score that no key competes away.
        undo_rotation: whether what a slot reads is turned back by the slot's own angle; values are
            rotated keys, so that without it they would speak of absolute positions.
        confidence_reads: the collapsed state before the final norm (V4.1), or behind it ("normed").
        n_routed_experts: experts the router chooses from.
        topk: experts that see a slot.
        n_shared_experts: experts' worth of width that sees every slot.
        score: function from router logits to scores.
        route_scale: factor on the routing weights.
        clamp: limit on an expert's inner values; None for none.
        bias_update_rate: step of the balancing bias after each update, the only balancing there is,
            as in the trunk; 0 leaves the bias as it is.

    Raises:
        ValueError: if a rule is broken, naming both numbers.

    Source: DSpark paper, section 5.1; DeepSeek-V4 as in transformers, models/deepseek_v4.
    """

    tap: Tap = "entering"
    block_size: int = 5
    num_hidden_layers: int = 3
    num_key_value_heads: int = 1
    sliding_window: int | None = 128
    markov_rank: int = 256
    confidence: bool = True
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    rotary_size: int = 16
    query_rank: int = 64
    output_rank: int = 64
    output_groups: int = 1
    attention_sinks: bool = True
    undo_rotation: bool = True
    confidence_reads: ConfidenceReads = "collapsed"
    n_routed_experts: int = 128
    topk: int = 3
    n_shared_experts: int = 1
    score: Score = "sqrtsoftplus"
    route_scale: float = 1.5
    clamp: float | None = 10.0
    bias_update_rate: float = 0.001

    def __post_init__(self) -> None:
        """Check every rule."""
        try:
            super().__post_init__()
            self.moe_config()
        except ValueError as broken:
            told = str(broken).replace("DraftConfig.", "ReleasedConfig.")
            raise ValueError(told.replace("MoEConfig.", "ReleasedConfig.")) from None
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise ValueError(
                    f"ReleasedConfig.{name} must be at least 1; got {getattr(self, name)}"
                )
        for name, holds, rule in self._rules():
            if not holds:
                raise ValueError(
                    f"ReleasedConfig.{name} must be {rule}; got {getattr(self, name)!r}"
                )

    def _rules(self) -> tuple[tuple[str, bool, str], ...]:
        """Field, whether its rule holds, and the rule in words."""
        heads, size, turned = self.num_attention_heads, self.head_size, self.rotary_size
        return (
            ("num_key_value_heads", self.num_key_value_heads == 1, "1, the latent all heads share"),
            ("markov_head_type", self.markov_head_type == "vanilla", "'vanilla', as released"),
            (
                "rotary_size",
                turned <= size and turned % 2 == 0,
                f"even and at most head_size ({size})",
            ),
            (
                "output_groups",
                heads % self.output_groups == 0,
                f"a divisor of num_attention_heads ({heads})",
            ),
            (
                "intermediate_size",
                self.intermediate_size % 8 == 0,
                "a multiple of 8, for the grouped product of the experts",
            ),
            (
                "hidden_size",
                self.hidden_size % 8 == 0,
                "a multiple of 8, for the grouped product of the experts",
            ),
            ("n_shared_experts", self.n_shared_experts >= 0, "at least 0"),
            (
                "confidence_reads",
                self.confidence_reads in ("collapsed", "normed"),
                "'collapsed' or 'normed'",
            ),
        )

    def moe_config(self) -> MoEConfig:
        """Shape of a block's experts."""
        return MoEConfig(
            n_routed_experts=self.n_routed_experts,
            topk=self.topk,
            expert_width=self.intermediate_size,
            shared_width=self.n_shared_experts * self.intermediate_size,
            score=self.score,
            route_scale=self.route_scale,
            clamp=self.clamp,
            bias_update_rate=self.bias_update_rate,
        )


def last_taps(depth: int, count: int = 3) -> tuple[int, ...]:
    """The last blocks of a target, fewer where it has fewer.

    V4 (43 blocks) reads what 40, 41 and 42 put out, V4.1 (40) what enters 37, 38 and 39.

    Raises:
        ValueError: if the target has no block.
    """
    if depth < 1:
        raise ValueError(f"a drafter reads a target of at least 1 block; got {depth}")
    return tuple(range(max(0, depth - count), depth))


def released(
    *, vocab_size: int, hidden_size: int, target_depth: int, mask_token_id: int, **changes: Any
) -> ReleasedConfig:
    """V4.1's drafter for a target of any width: widths shrink with it, all else is as released.

    Experts and Markov rank keep V4.1's share of its width of 5,120; attention keeps V4's share of
    its width of 4,096, since V4.1's own is not known.

    Args:
        vocab_size: ids of the target.
        hidden_size: width of its stream.
        target_depth: its blocks.
        mask_token_id: id that stands at the slots to be filled.
        changes: fields of `ReleasedConfig` that are to differ; `tap="raw_output"` is V4's.

    Raises:
        ValueError: if a rule is broken.
    """
    heads = max(4, hidden_size // 64)
    size = max(16, 2 * (hidden_size // 16))
    rank = max(8, hidden_size // 4)
    shape = {
        "target_layer_ids": last_taps(target_depth),
        "num_attention_heads": heads,
        "head_size": size,
        "rotary_size": max(8, 2 * (size // 16)),
        "query_rank": rank,
        "output_rank": rank,
        "output_groups": next(groups for groups in (8, 4, 2, 1) if heads % groups == 0),
        "intermediate_size": max(8, 8 * round(hidden_size * 2304 / 5120 / 8)),
        "markov_rank": max(8, hidden_size // 20),
    }
    return ReleasedConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        target_depth=target_depth,
        mask_token_id=mask_token_id,
        **shape | changes,
    )


def quick(
    *, vocab_size: int, hidden_size: int, target_depth: int, mask_token_id: int, **changes: Any
) -> ReleasedConfig:
    """The released form made small: window 32, two experts of eight, two branches.

    Args:
        vocab_size: ids of the target.
        hidden_size: width of its stream.
        target_depth: its blocks.
        mask_token_id: id that stands at the slots to be filled.
        changes: fields of `ReleasedConfig` that are to differ.

    Raises:
        ValueError: if a rule is broken.
    """
    small = {"sliding_window": 32, "n_routed_experts": 8, "topk": 2, "hc_mult": 2}
    return released(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        target_depth=target_depth,
        mask_token_id=mask_token_id,
        **small | changes,
    )


def parameter_counts(config: ReleasedConfig) -> dict[str, int]:
    """Trained numbers of a drafter by part; nothing is allocated.

    Returns:
        `experts` (routed ones alone), `shared` (experts), `router`, `attention`, `branches`,
        `norms`, `injection`, `markov`, `confidence`; the target's embedding and head are not among
        them.
    """
    width, blocks, branches = config.hidden_size, config.num_hidden_layers, config.hc_mult
    expert = 3 * width * config.intermediate_size
    queries = config.num_attention_heads * config.head_size
    attention = config.query_rank * (width + 1 + queries) + config.head_size * (width + 1)
    attention += config.output_rank * (queries + config.output_groups * width)
    attention += config.num_attention_heads * config.attention_sinks
    connection = (2 + branches) * branches * (branches * width + 1) + 3
    return {
        "experts": blocks * config.n_routed_experts * expert,
        "shared": blocks * config.n_shared_experts * expert,
        "router": blocks * config.n_routed_experts * width,
        "attention": blocks * attention,
        "branches": blocks * 2 * connection + branches * (branches * width + 1) + 1,
        "norms": (2 * blocks + 2) * width,
        "injection": len(config.target_layer_ids) * width * width,
        "markov": 2 * config.vocab_size * config.markov_rank,
        "confidence": config.confidence * (width + config.markov_rank),
    }
