"""Parameter and FLOP counts, and `allocate`: one budget, split between experts and memory rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.layout import table_layout
from engram_lab.model.config import EngramLMConfig

TOTAL_TOLERANCE = 0.001
ACTIVE_TOLERANCE = 0.01


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Trainable parameters of a model, token embedding and output head left out.

    Attributes:
        total: all of them.
        active: those every token passes through: attention, norms, router, shared and `topk`
            experts, and the memory's own projections, gains and convolution.
        experts: routed experts a token does not use.
        table: memory rows (all of them count as sparse).
        vocabulary: token embedding and head, for reference; in none of the others.

    Source: Engram paper, section 3.1 (P_tot, P_act, P_sparse).
    """

    total: int
    active: int
    experts: int
    table: int
    vocabulary: int

    @property
    def sparse(self) -> int:
        """Parameters a token does not use: P_sparse."""
        return self.experts + self.table

    @property
    def allocation_ratio(self) -> float:
        """Share of the sparse parameters given to experts; 1 is pure MoE, NaN without any."""
        return self.experts / self.sparse if self.sparse else float("nan")

    def flops_per_token(self, config: EngramLMConfig, seq_len: int) -> float:
        """FLOPs of one forward pass per token; a training step costs three times as many.

        Two per active parameter and head entry, plus scores and mixing over the mean causal
        context.
        """
        head = config.vocab_size * config.hidden_size
        context = (seq_len + 1) / 2
        attention = 4 * context * config.hidden_size * config.num_hidden_layers
        return 2.0 * (self.active + head) + attention


def memory_dense_parameters(engram: EngramConfig, hidden_size: int, hc_mult: int = 1) -> int:
    """Always-active parameters of one memory layer: projections, biases, gains, convolution.

    Source: engram paper, appendix A; DeepSeek demo and V4.1 tensor lists.
    """
    width = hc_mult * hidden_size
    projections = (hc_mult + 1) * hidden_size * engram.mem_width
    biases = (hc_mult + 1) * hidden_size if engram.bias else 0
    convolution = width * engram.kernel_size + width if engram.conv else 0
    return projections + biases + 2 * width + convolution


def table_parameters(engram: EngramConfig) -> int:
    """Row parameters of all memory layers."""
    rows = sum(size for layer in table_layout(engram).values() for order in layer for size in order)
    return rows * engram.row_width


def budget(config: EngramLMConfig) -> Budget:
    """Exact parameter counts of a config, without building the model."""
    hidden, layers = config.hidden_size, config.num_hidden_layers
    key_width = config.num_key_value_heads * config.head_size
    active = layers * (2 * hidden * hidden + 2 * hidden * key_width + 2 * hidden) + hidden
    moe_layers = sum(config.has_experts(layer) for layer in range(layers))
    active += (layers - moe_layers) * 3 * hidden * config.intermediate_size
    experts = 0
    if config.moe:
        expert = 3 * hidden * config.moe.expert_width
        active += moe_layers * (config.moe.topk * expert + 3 * hidden * config.moe.shared_width)
        active += moe_layers * config.moe.n_routed_experts * hidden  # router
        experts = moe_layers * (config.moe.n_routed_experts - config.moe.topk) * expert
    table = 0
    if config.engram:
        active += len(config.engram.layer_ids) * memory_dense_parameters(
            config.engram, hidden, config.hc_mult
        )
        table = table_parameters(config.engram)
    vocabulary = config.vocab_size * hidden * (1 if config.tie_word_embeddings else 2)
    return Budget(
        total=active + experts + table,
        active=active,
        experts=experts,
        table=table,
        vocabulary=vocabulary,
    )


def allocate(base: EngramLMConfig, allocation_ratio: float) -> EngramLMConfig:
    """The budget of `base` as a pure mixture of experts, with its sparse parameters re-split.

    `base.moe` has the experts of ratio 1; `base.engram` is the template of the memory (layers,
    orders, heads, row width), its row counts are set here. What the memory's projections add to the
    active parameters and what the smaller router frees is settled with the shared expert's width,
    so that total (within 0.1 %) and active parameters (within 1 %) stay.

    Args:
        allocation_ratio: share of the sparse parameters given to routed experts, in [0, 1]; 1 is
            pure MoE.

    Raises:
        ValueError: if `base` lacks experts or memory, the ratio lies outside [0, 1], fewer experts
        than `topk` would
            remain, or the budget cannot be met at this size.

    Source: Engram paper, section 3.1.
    """
    if base.moe is None or base.engram is None:
        raise ValueError(
            "allocate needs a base with moe (experts at ratio 1) and engram (template of the "
            "memory)"
        )
    if not 0.0 <= allocation_ratio <= 1.0:
        raise ValueError(f"allocation_ratio must lie in [0, 1]; got {allocation_ratio}")
    pure = base.replace(engram=None)
    if allocation_ratio == 1.0:
        return pure
    topk, experts = base.moe.topk, base.moe.n_routed_experts
    kept = topk + round(allocation_ratio * (experts - topk))
    target = budget(pure)
    if kept == experts:
        raise ValueError(
            f"allocation_ratio {allocation_ratio} frees no expert of {experts}; use 1.0 or at most "
            f"{(experts - topk - 0.5) / (experts - topk):.3f}"
        )
    split = base.replace(moe=replace(base.moe, n_routed_experts=kept), engram=_minimal(base.engram))
    split = _match_active(split, target.active)
    return _match_total(split, base.engram, target)


def spend_on_ffn(config: EngramLMConfig) -> EngramLMConfig:
    """Control: the memory's rows and projections spent on a wider shared expert instead.

    The total stays (within one column of the shared expert); the active parameters grow, which the
    control is meant to show.
    """
    if config.engram is None or config.moe is None:
        raise ValueError(
            "spend_on_ffn needs a config with a memory to spend and a shared expert to widen"
        )
    goal = budget(config).total
    bare = config.replace(engram=None)
    return _widen_shared(bare, goal - budget(bare).total)


def _minimal(engram: EngramConfig) -> EngramConfig:
    return replace(engram, engram_vocab_size=(2,) * (engram.max_ngram_size - 1))


def _widen_shared(config: EngramLMConfig, parameters: int) -> EngramLMConfig:
    """Change the shared expert's width by about `parameters` (fewer when negative)."""
    moe_layers = sum(config.has_experts(layer) for layer in range(config.num_hidden_layers))
    width = config.moe.shared_width + round(parameters / (3 * config.hidden_size * moe_layers))
    if width < 0:
        raise ValueError(
            f"the memory's projections need {-parameters} active parameters, the shared expert has "
            f"only width "
            f"{config.moe.shared_width}. Widen MoEConfig.shared_width or narrow n_embed_per_ngram."
        )
    return config.replace(moe=replace(config.moe, shared_width=width))


def _match_active(config: EngramLMConfig, active: int) -> EngramLMConfig:
    matched = _widen_shared(config, active - budget(config).active)
    miss = abs(budget(matched).active / active - 1)
    if miss > ACTIVE_TOLERANCE:
        raise ValueError(
            f"active parameters must stay within {ACTIVE_TOLERANCE:.0%} of {active}; the shared "
            f"expert's steps are "
            f"too coarse here ({miss:.2%} off). Use a wider model or fewer layers with experts."
        )
    return matched


def _match_total(config: EngramLMConfig, template: EngramConfig, target: Budget) -> EngramLMConfig:
    """Set the rows so that the total meets the target.

    Primes overshoot the sizes they start from, so the largest sizes that fit are searched.
    """
    left = target.total - (budget(config).total - budget(config).table)
    orders = template.max_ngram_size - 1
    columns = orders * template.n_head_per_ngram * len(template.layer_ids)

    def rows_of(sizes: tuple[int, ...]) -> int:
        return table_parameters(replace(template, engram_vocab_size=sizes))

    even = max(2, left // (columns * template.row_width))
    sizes = [_largest(lambda size: rows_of((size,) * orders) <= left, even)] * orders
    for order in range(orders):  # spend the remainder, one order at a time

        def fits(size: int, order: int = order) -> bool:
            return rows_of((*sizes[:order], size, *sizes[order + 1 :])) <= left

        sizes[order] = _largest(fits, sizes[order] + max(8, even // 8))
    found = config.replace(engram=replace(template, engram_vocab_size=tuple(sizes)))
    miss = abs(budget(found).total / target.total - 1)
    if miss > TOTAL_TOLERANCE:
        raise ValueError(
            f"the total must stay within {TOTAL_TOLERANCE:.1%} of {target.total}; tables of "
            f"{sizes} rows miss it by "
            f"{miss:.2%}. Use more sparse parameters or narrower rows."
        )
    return found


def _largest(fits: Callable[[int], bool], high: int) -> int:
    """Largest size in 2..high that fits, or 2; `fits` turns from true to false once."""
    low = 2
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
