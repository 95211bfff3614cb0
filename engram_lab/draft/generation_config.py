"""How to generate with drafts, and what prompts, target, drafter and schedule must agree on."""

from collections.abc import Callable
from dataclasses import dataclass, field

from jaxtyping import Float, Int64
from torch import Tensor

from engram_lab.draft.proposer import Proposer
from engram_lab.draft.sampling import Sampling
from engram_lab.draft.target import Target, tap_of

LengthRule = Callable[[Float[Tensor, "batch block"]], Int64[Tensor, "batch"]]
"""From confidences (chances, each given the drafts before it) to the drafts to verify."""


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How to generate, beside the drafter.

    Attributes:
        max_new_tokens: tokens behind each prompt.
        sampling: temperature and truncation of target and drafts alike.
        stop_ids: ids that end a sequence; the id itself is kept.
        length: drafts of a round, 0 for none; None for the drafter's whole block.
        whole_blocks: verify whole blocks to the end, as measurements of acceptance want it; False
            verifies no draft that `max_new_tokens` has no room for.
        seed: of all draws.
        prefill_chunk: prompt positions of one pass.

    Raises:
        ValueError: if a value is out of range.
    """

    max_new_tokens: int = 64
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: tuple[int, ...] = ()
    length: int | None = None
    whole_blocks: bool = False
    seed: int = 0
    prefill_chunk: int = 512

    def __post_init__(self) -> None:
        """Check every rule."""
        for name in ("max_new_tokens", "prefill_chunk"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"GenerationConfig.{name} must be at least 1; got {getattr(self, name)}"
                )
        if self.length is not None and self.length < 0:
            raise ValueError(
                f"GenerationConfig.length must be at least 0 or None; got {self.length}"
            )


def check_generation(
    target: Target,
    drafter: Proposer | None,
    prompts: list[Tensor],
    config: GenerationConfig,
    schedule: LengthRule | None,
) -> None:
    """Refuse what does not fit together, before anything is decoded.

    Args:
        target: the model.
        drafter: what drafts for it; None for plain decoding.
        prompts: token ids.
        config: how to generate.
        schedule: chooses how many drafts to verify.

    Raises:
        ValueError: as `speculative_generate`, naming both sides.
    """
    if not prompts or any(prompt.ndim != 1 or len(prompt) == 0 for prompt in prompts):
        raise ValueError(
            "speculative_generate needs at least one prompt, each a row of at least one token; "
            f"got shapes {[tuple(prompt.shape) for prompt in prompts]}"
        )
    longest = max(len(prompt) for prompt in prompts)
    if target.context is not None and longest >= target.context:
        raise ValueError(
            f"a prompt must leave room in the target's context of {target.context} positions; the "
            f"longest has {longest} tokens"
        )
    if drafter is not None and drafter.layer_ids != target.layer_ids:
        raise ValueError(
            f"the drafter reads the target's blocks {drafter.layer_ids}, the target shows "
            f"{target.layer_ids}. Build it with Target(model, drafter.layer_ids)."
        )
    if drafter is not None and drafter.layer_ids and tap_of(drafter) != target.tap:
        raise ValueError(
            f"the drafter reads tap={tap_of(drafter)!r} of its blocks, the target shows "
            f"tap={target.tap!r}; build it with target_for(model, drafter)"
        )
    if drafter is not None and config.length is not None and config.length > drafter.block_size:
        raise ValueError(
            f"GenerationConfig.length must be at most the drafter's block_size "
            f"({drafter.block_size}); got {config.length}. Beyond its block acceptance collapses."
        )
    if schedule is not None:
        _check_schedule(schedule, drafter, config)


def _check_schedule(
    schedule: LengthRule, drafter: Proposer | None, config: GenerationConfig
) -> None:
    if drafter is None:
        raise ValueError(
            f"{type(schedule).__name__} chooses how many drafts to verify, and without a drafter "
            "there are none; give a drafter, or no schedule"
        )
    fitted, asked = getattr(schedule, "temperature", None), config.sampling.temperature
    if fitted is not None and fitted != asked:
        raise ValueError(
            f"the schedule's confidences were calibrated at temperature {fitted:g}; generation is "
            f"at {asked:g}, where other drafts survive. Calibrate on rounds at {asked:g}"
        )
    if not getattr(schedule, "causal", True):
        raise ValueError(
            f"{type(schedule).__name__} lets later drafts decide about earlier ones, which changes "
            "the output's distribution; use a causal rule, such as PrefixScheduler"
        )
