"""What a block drafter is trained for: next tokens, the target's distribution, and confidence.

Two public conventions compute losses of the same name differently; both are here, by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from engram_lab.draft.blocks import anchor_candidates, block_labels, sample_anchors
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.target import Pass

Convention = Literal["deepspec", "speculators"]
Distance = Literal["l1", "tv", "kl", "reverse_kl", "js", "nla", "lk_hybrid"]
DISTANCES = ("l1", "tv", "kl", "reverse_kl", "js", "nla", "lk_hybrid")
TINY = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class DraftBatch:
    """Texts to train a drafter on.

    Attributes:
        token_ids: the texts.
        loss_mask: True at tokens that the target wrote.
        document_ids: packed documents; None where each row is one.
    """

    token_ids: Int64[Tensor, "batch seq"]
    loss_mask: Bool[Tensor, "batch seq"]
    document_ids: Int64[Tensor, "batch seq"] | None = None

    def to(self, device: torch.device | str) -> "DraftBatch":
        """The batch on a device."""
        documents = self.document_ids
        return DraftBatch(
            token_ids=self.token_ids.to(device),
            loss_mask=self.loss_mask.to(device),
            document_ids=None if documents is None else documents.to(device),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class DraftLoss:
    """Loss of a batch.

    Attributes:
        total: to differentiate.
        terms: what it is made of, and what is watched, by name; without gradients.
    """

    total: Float[Tensor, ""]
    terms: dict[str, Tensor]


DraftLossFunction = Callable[[nn.Module, Pass, DraftBatch, torch.Generator], DraftLoss]


@dataclass(frozen=True, kw_only=True)
class DraftLossConfig:
    """Loss of a block drafter.

    Attributes:
        cross_entropy: weight of the cross-entropy.
        distribution: weight of the distance to the target's distribution.
        confidence: weight of the confidence's cross-entropy against the chance of acceptance.
        distance: "l1" is the sum of absolute differences, "tv" half of it, "nla" minus the log of
            the chance of acceptance, "lk_hybrid" moves from the divergence to "tv" as that rises.
        loss_decay_gamma: slot k weighs `exp(-k / gamma)`; None weighs all alike.
        convention: "deepspec" labels with the data's token and divides by the sum of weights;
            "speculators" labels with the target's most likely token and divides by the slots.
        dpace: weigh each slot by what its own element loss says of reaching it, in place of decay.
        num_anchors: blocks of a row.

    Raises:
        ValueError: if a value is out of range.

    Source: DSpark paper, section 3.3; DeepSpec loss.py; vllm-project/speculators losses.
    """

    cross_entropy: float = 0.1
    distribution: float = 0.9
    confidence: float = 1.0
    distance: Distance = "l1"
    loss_decay_gamma: float | None = 4.0
    convention: Convention = "deepspec"
    dpace: bool = False
    num_anchors: int = 16

    def __post_init__(self) -> None:
        """Check every rule."""
        for name in ("cross_entropy", "distribution", "confidence"):
            if not getattr(self, name) >= 0:
                raise ValueError(
                    f"DraftLossConfig.{name} must be at least 0; got {getattr(self, name)}"
                )
        if self.distance not in DISTANCES:
            raise ValueError(
                f"DraftLossConfig.distance must be one of {', '.join(DISTANCES)}; got "
                f"{self.distance!r}"
            )
        if self.convention not in ("deepspec", "speculators"):
            raise ValueError(
                "DraftLossConfig.convention must be deepspec or speculators; got "
                f"{self.convention!r}"
            )
        if self.loss_decay_gamma is not None and not self.loss_decay_gamma > 0:
            raise ValueError(
                "DraftLossConfig.loss_decay_gamma must be positive or None; got "
                f"{self.loss_decay_gamma}"
            )
        if self.num_anchors < 1:
            raise ValueError(
                f"DraftLossConfig.num_anchors must be at least 1; got {self.num_anchors}"
            )


def dflash_loss(**changes: Any) -> DraftLossConfig:
    """The loss of DFlash: cross-entropy alone."""
    return DraftLossConfig(cross_entropy=1.0, distribution=0.0, confidence=0.0, **changes)


def block_loss(
    drafter: Drafter,
    read: Pass,
    batch: DraftBatch,
    generator: torch.Generator,
    *,
    config: DraftLossConfig,
) -> DraftLoss:
    """Loss of blocks at random anchors of texts.

    Args:
        drafter: a block drafter.
        read: the frozen target's pass over the texts.
        batch: the texts.
        generator: draws the anchors.
        config: weights and convention.
    """
    candidates = anchor_candidates(batch.loss_mask, batch.document_ids)
    anchors, keep = sample_anchors(candidates, config.num_anchors, generator)
    labels = block_labels(
        batch.token_ids, batch.loss_mask, anchors, keep, drafter.block_size, batch.document_ids
    )
    drafted = drafter(batch.token_ids, read.features, anchors, keep, batch.document_ids)
    rows = labels.rows.flatten(1)
    batch_rows = torch.arange(len(rows), device=rows.device)[:, None]
    target_logits = read.logits.detach()[batch_rows, rows].view_as(drafted.logits)
    return slot_loss(
        drafted.logits,
        target_logits,
        labels.tokens,
        labels.supervised,
        drafted.confidence,
        config=config,
    )


def slot_loss(
    draft_logits: Float[Tensor, "batch anchor block vocab"],
    target_logits: Float[Tensor, "batch anchor block vocab"],
    tokens: Int64[Tensor, "batch anchor block"],
    supervised: Bool[Tensor, "batch anchor block"],
    confidence: Float[Tensor, "batch anchor block"] | None = None,
    *,
    config: DraftLossConfig,
) -> DraftLoss:
    """Loss of slots whose logits are known.

    The target's side and the label of the confidence carry no gradient; nothing is divided by a
    temperature.

    Args:
        draft_logits: corrected by the sequential head.
        target_logits: of the row that each slot predicts.
        tokens: label of each slot.
        supervised: which slots count.
        confidence: logits; None without that head.
        config: weights and convention.

    Returns:
        Terms `cross_entropy`, `distance`, `confidence` (each its weighted mean), `accept_rate`
        (mean chance of acceptance), `accepted_length` (with known tokens, the bonus included).
    """
    # the same operations on both sides, so that equal logits differ by exactly nothing
    target = torch.log_softmax(target_logits.detach().float(), dim=-1).exp_()
    log_draft = torch.log_softmax(draft_logits.float(), dim=-1)
    with torch.set_grad_enabled(config.distribution > 0 and torch.is_grad_enabled()):
        draft = log_draft.exp()
        apart = distance("l1", draft, log_draft, target)
    accept = 1 - 0.5 * apart.detach()
    label = tokens if config.convention == "deepspec" else target.argmax(-1)
    elements = {"cross_entropy": -log_draft.gather(-1, label[..., None])[..., 0]}
    if config.distribution:
        share = {"l1": 1.0, "tv": 0.5}.get(config.distance)
        elements["distance"] = (
            distance(config.distance, draft, log_draft, target) if share is None else share * apart
        )
    if confidence is not None and config.confidence:
        elements["confidence"] = F.binary_cross_entropy_with_logits(
            confidence.float(), accept, reduction="none"
        )
    return _together(elements, accept, supervised, config)


def _together(
    elements: dict[str, Tensor], accept: Tensor, supervised: Tensor, config: DraftLossConfig
) -> DraftLoss:
    """Weighted sum of the means of slot losses, and what is watched beside."""
    weights = {
        "cross_entropy": config.cross_entropy,
        "distance": config.distribution,
        "confidence": config.confidence,
    }
    means = {
        name: _mean(element, supervised, config, confidence=name == "confidence")
        for name, element in elements.items()
    }
    total = sum(weights[name] * value for name, value in means.items())
    watched = _watched(accept, supervised)
    return DraftLoss(total=total, terms={n: v.detach() for n, v in means.items()} | watched)


def distance(
    kind: Distance,
    draft: Float[Tensor, "*rest vocab"],
    log_draft: Float[Tensor, "*rest vocab"],
    target: Float[Tensor, "*rest vocab"],
) -> Float[Tensor, "*rest"]:
    """Distance of two distributions, in nats where it has a unit."""
    apart = (draft - target).abs().sum(-1)
    if kind == "l1":
        return apart
    tv = 0.5 * apart
    if kind == "tv":
        return tv
    log_target = target.clamp_min(TINY).log()
    if kind == "reverse_kl":
        return (draft * (log_draft - log_target)).sum(-1)
    if kind == "js":
        log_middle = (0.5 * (draft + target)).clamp_min(TINY).log()
        ours = (draft * (log_draft - log_middle)).sum(-1)
        return 0.5 * (ours + (target * (log_target - log_middle)).sum(-1))
    kl = (target * (log_target - log_draft)).sum(-1)
    if kind == "kl":
        return kl
    accept = torch.minimum(draft, target).sum(-1).clamp_min(TINY)
    if kind == "nla":
        return -accept.log()
    mixed = torch.exp(-3 * accept.detach())
    return mixed * kl + (1 - mixed) * tv


def _mean(
    element: Tensor, supervised: Tensor, config: DraftLossConfig, *, confidence: bool
) -> Tensor:
    """Weighted mean of a slot loss, by the convention's divisor."""
    mask = supervised.float()
    if config.dpace:
        weight = _reach_weights(element, supervised)
    elif config.loss_decay_gamma is None:
        weight = mask
    else:
        slots = torch.arange(element.shape[-1], device=element.device)
        weight = mask * torch.exp(-slots / config.loss_decay_gamma)
    if config.convention == "deepspec":
        return (weight * element).sum() / (weight.sum() + 1e-6)
    return (weight * element).sum() / (mask.sum() + (1e-8 if confidence else 1e-5))


def _reach_weights(element: Tensor, supervised: Tensor, floor: float = 0.5) -> Tensor:
    """How much of the accepted length hangs on each slot (D-PACE), from its own loss.

    Source: vllm-project/speculators losses/utils.py.
    """
    kept = (1 - floor) * torch.exp(-element.detach()) + floor
    kept = torch.where(supervised, kept, torch.ones_like(kept))
    reached = kept.cumprod(-1) * supervised
    return reached.flip(-1).cumsum(-1).flip(-1) * supervised


def _watched(accept: Tensor, supervised: Tensor) -> dict[str, Tensor]:
    mask = supervised.float()
    blocks = supervised.any(-1).sum().clamp_min(1)
    prefix = (accept * mask).cumprod(-1).sum()
    return {
        "accept_rate": (accept * mask).sum() / mask.sum().clamp_min(1),
        "accepted_length": 1 + prefix / blocks,
    }
