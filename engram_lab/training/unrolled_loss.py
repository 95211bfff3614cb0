"""What drafters that read their own output are trained for: EAGLE-3's, MTP's and a joint loss.

Step s at position t predicts the token at t + 2 + s, where the target's row is t + 1 + s.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from engram_lab.draft.chain import ChainDrafter
from engram_lab.draft.target import Pass, Target
from engram_lab.training.draft_loss import DraftBatch, DraftLoss


def eagle_loss(
    drafter: ChainDrafter,
    read: Pass,
    batch: DraftBatch,
    generator: torch.Generator,
    *,
    decay: float = 0.8,
) -> DraftLoss:
    """EAGLE-3's loss: every step follows the target's distribution.

    Args:
        drafter: unrolled over its whole block.
        read: the frozen target's pass over the texts.
        batch: the texts.
        generator: not used; nothing is drawn.
        decay: step s weighs `decay ** s`.

    Returns:
        Terms as `unrolled_loss` gives them.

    Source: EAGLE-3 (arXiv:2503.01840); DeepSpec modeling/eagle3/loss.py.
    """
    masks = state_masks(batch.loss_mask, drafter.block_size, batch.document_ids)
    weights = [decay**step for step in range(drafter.block_size)]
    return unrolled_loss(_logits(drafter, read, batch, masks), read.logits, masks, weights=weights)


def mtp_loss(
    drafter: ChainDrafter,
    read: Pass,
    batch: DraftBatch,
    generator: torch.Generator,
    *,
    beta: float = 0.6,
) -> DraftLoss:
    """MTP's loss: every step predicts the text's token.

    Args:
        drafter: unrolled over its whole block.
        read: the frozen target's pass over the texts.
        batch: the texts.
        generator: not used; nothing is drawn.
        beta: step s weighs `beta ** s`, normalised over the steps.

    Returns:
        Terms as `unrolled_loss` gives them.

    Source: FastMTP (arXiv:2509.18362), equation 2; vllm-project/speculators models/mtp.
    """
    masks = label_masks(batch.loss_mask, drafter.block_size, batch.document_ids)
    return unrolled_loss(
        _logits(drafter, read, batch, masks),
        read.logits,
        masks,
        weights=step_weights(beta, drafter.block_size),
        token_ids=batch.token_ids,
    )


def joint_loss(
    drafter: ChainDrafter,
    read: Pass,
    batch: DraftBatch,
    generator: torch.Generator,
    *,
    weight: float = 0.3,
) -> DraftLoss:
    """Loss of a trunk and its MTP of depth 1, trained together.

    The embedding and the head are shared in earnest: the gradient reaches them from both sides. It
    reaches the trunk's blocks through the states where `read` has a gradient, as `trunk_pass` gives
    it; a pass of `Target.read` has none.

    Args:
        drafter: its first step is trained.
        read: the trunk's pass over the texts.
        batch: the texts.
        generator: not used; nothing is drawn.
        weight: of the second token's cross-entropy beside the next one's.

    Returns:
        Terms `trunk` and `mtp` (nats per token), and what `unrolled_loss` watches.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2 (weight 0.3, later 0.1).
    """
    target, ids = drafter.target, batch.token_ids
    masks = label_masks(batch.loss_mask, 1, batch.document_ids)
    hidden = next(
        drafter.unroll(
            drafter.states(read.features, read.final), target.embedding(ids), batch.document_ids
        )
    )
    logits = target.anatomy.finish(target.anatomy.require_head()(hidden[masks[:, 0]]))
    ahead = unrolled_loss([logits], read.logits, masks, weights=[1.0], token_ids=ids)
    wanted = batch.loss_mask[:, 1:]
    if batch.document_ids is not None:
        wanted = wanted & (batch.document_ids[:, 1:] == batch.document_ids[:, :-1])
    trunk = F.cross_entropy(read.logits[:, :-1][wanted].float(), ids[:, 1:][wanted])
    terms = {"trunk": trunk.detach(), "mtp": ahead.total.detach()}
    return DraftLoss(total=trunk + weight * ahead.total, terms=ahead.terms | terms)


def trunk_pass(target: Target, batch: DraftBatch) -> Pass:
    """The target's pass over texts with a gradient, in the mode the model is in; without taps."""
    arguments = {"input_ids": batch.token_ids, "use_cache": False}
    if batch.document_ids is not None:
        arguments["document_ids"] = batch.document_ids
    seen: list[Tensor] = []
    head = target.anatomy.require_head()
    handle = head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    try:
        logits = target.model(**arguments).logits
    finally:
        handle.remove()
    return Pass(logits=logits, features=None, final=seen[-1])


def unrolled_loss(
    draft_logits: Iterable[Float[Tensor, "_ vocab"]],
    target_logits: Float[Tensor, "batch seq vocab"],
    masks: Bool[Tensor, "batch step seq"],
    *,
    weights: Sequence[float],
    token_ids: Int64[Tensor, "batch seq"] | None = None,
) -> DraftLoss:
    """Loss of steps whose logits are known.

    With `token_ids` a step's loss is the mean cross-entropy with the text's tokens; without, that
    with the target's distribution, summed over valid positions and divided by all positions, so
    texts with few valid ones weigh less. The target's side carries no gradient.

    Args:
        draft_logits: of every step, at its valid positions in reading order.
        target_logits: of the texts.
        masks: valid positions of every step.
        weights: of the steps.
        token_ids: the texts, where tokens are the labels.

    Returns:
        Terms `cross_entropy@s`, `accuracy@s` (share whose most likely token is the target's) and
        `accept_rate@s` (mean chance of acceptance) of every step, counted from 0;
        `accepted_length` and `accepted_length_greedy` (with known tokens, the bonus included).

    Source: DeepSpec modeling/eagle3/loss.py.
    """
    total = target_logits.new_zeros((), dtype=torch.float32)
    terms: dict[str, Tensor] = {}
    chances = {name: torch.zeros(masks.shape, device=masks.device) for name in _WATCHED}
    for step, (logits, weight) in enumerate(zip(draft_logits, weights, strict=True)):
        row, at = masks[:, step].nonzero(as_tuple=True)
        target = torch.softmax(target_logits[row, at + 1 + step].detach().float(), dim=-1)
        log_draft = torch.log_softmax(logits.float(), dim=-1)
        if token_ids is None:
            loss = -(target * log_draft).sum() / masks[:, step].numel()
        else:
            label = token_ids[row, at + 2 + step]
            loss = -log_draft.gather(-1, label[:, None]).sum() / max(len(row), 1)
        total = total + weight * loss
        terms[f"cross_entropy@{step}"] = loss.detach()
        for name, chance in _chances(log_draft.detach(), target).items():
            terms[f"{name}@{step}"] = chance.sum() / max(len(row), 1)
            chances[name][row, step, at] = chance
    for name, length in _WATCHED.items():
        reached = chances[name].cumprod(1).sum(1)[masks[:, 0]]
        terms[length] = 1 + reached.sum() / max(len(reached), 1)
    return DraftLoss(total=total, terms=terms)


_WATCHED = {"accept_rate": "accepted_length", "accuracy": "accepted_length_greedy"}


def _chances(log_draft: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Chance of acceptance, drawn and greedy, of every valid position."""
    return {
        "accept_rate": torch.minimum(target, log_draft.exp()).sum(-1),
        "accuracy": (log_draft.argmax(-1) == target.argmax(-1)).float(),
    }


def state_masks(
    loss_mask: Bool[Tensor, "batch seq"],
    steps: int,
    document_ids: Int64[Tensor, "batch seq"] | None = None,
) -> Bool[Tensor, "batch step seq"]:
    """EAGLE-3's valid positions: those whose newest state, at t + s, is one the target wrote.

    The last such position of a row is left out, since no row of the target follows it; so is the
    last of a packed document.

    Source: DeepSpec modeling/eagle3/loss.py.
    """
    first = loss_mask & (loss_mask.flip(1).cumsum(1).flip(1) > 1)
    if document_ids is not None:
        first = first & F.pad(document_ids[:, 1:] == document_ids[:, :-1], (0, 1))
    return _ahead(first, range(steps), document_ids)


def label_masks(
    loss_mask: Bool[Tensor, "batch seq"],
    steps: int,
    document_ids: Int64[Tensor, "batch seq"] | None = None,
) -> Bool[Tensor, "batch step seq"]:
    """MTP's valid positions: the token at t + 1 and all up to the label were the target's.

    As for anchors of a block drafter: the first token of an answer is never a draft.
    """
    written = _ahead(loss_mask, range(1, steps + 2), document_ids).int().cumprod(1).bool()
    return written[:, 1:]


def step_weights(beta: float, steps: int) -> list[float]:
    """`beta ** s` of every step, normalised to a sum of 1."""
    raw = [beta**step for step in range(steps)]
    return [weight / sum(raw) for weight in raw]


def _logits(
    drafter: ChainDrafter, read: Pass, batch: DraftBatch, masks: Tensor
) -> Iterable[Float[Tensor, "_ vocab"]]:
    """Logits of every step at its valid positions."""
    states = drafter.states(read.features, read.final)
    embedded = drafter.target.embed(batch.token_ids)
    steps = drafter.unroll(states, embedded, batch.document_ids)
    return (drafter.target.head(hidden[masks[:, step]]) for step, hidden in enumerate(steps))


def _ahead(
    values: Tensor, lags: Iterable[int], document_ids: Tensor | None
) -> Bool[Tensor, "batch lag seq"]:
    """Values so many positions ahead; False behind the end and in another document."""
    seen = []
    for lag in lags:
        ahead = F.pad(values[:, lag:], (0, min(lag, values.shape[1])))
        if document_ids is not None:
            same = document_ids[:, lag:] == document_ids[:, : max(document_ids.shape[1] - lag, 0)]
            ahead = ahead & F.pad(same, (0, min(lag, values.shape[1])))
        seen.append(ahead)
    return torch.stack(seen, dim=1)
