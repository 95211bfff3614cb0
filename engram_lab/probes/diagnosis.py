"""Why are so few drafts accepted: acceptance by position, and a check for every usual cause.

Verification hides a drafter's faults: the text stays right and only gets slow. Each check compares
two ways to the same numbers, so none needs a trained drafter, nor an idea of what is normal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from engram_lab.draft.drafter import Drafter, DraftState
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.proposer import Committed
from engram_lab.draft.target import Pass, Target
from engram_lab.probes.acceptance import acceptance_frame, beside_published

CLOSE = 1e-3
"""Logits nearer than this are the same numbers on another way."""
SHIFTS = (-2, -1, 1, 2)
BETTER = 0.05
"""Mass that another layout must share beyond the stated one to be the right one."""
SURPRISE = 5.0
"""Standard errors by which a text may surprise its target before it counts as somebody else's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """What a drafter does, and what is wrong with it.

    Attributes:
        positions: acceptance by position beside the published curve, DSpark's, or DFlash's where
            the drafter has no sequential head: columns of `probes.acceptance.beside_published`.
        checks: one row per cause: cause, found, evidence (a sentence), measure (a number whose
            meaning the sentence gives).
    """

    positions: pd.DataFrame
    checks: pd.DataFrame

    @property
    def causes(self) -> list[str]:
        """Causes that were found."""
        return self.checks.loc[self.checks["found"], "cause"].tolist()


def diagnose_acceptance(
    target: Target,
    drafter: Drafter,
    token_ids: Int64[Tensor, "batch seq"],
    *,
    training: tuple[Int64[Tensor, "texts training"], Bool[Tensor, "texts training"]] | None = None,
    config: GenerationConfig | None = None,
) -> Diagnosis:
    """Acceptance by position beside the published curve, and checks for what usually spoils it.

    Args:
        target: the model drafted for.
        drafter: its block drafter.
        token_ids: texts of at least two blocks; the first half of each is a prompt.
        training: texts that the drafter was trained on, and which of their tokens are answers; None
            leaves out whether these are the target's own.
        config: how to generate; the published curves were drawn at temperature 1.

    Returns:
        Acceptance, and the checks: block size, layout flag, layout, positions, stale context,
        teacher and, with `training`, data.

    Raises:
        ValueError: if the texts are too short, naming both numbers.
    """
    needed = 2 * drafter.config.block_size + 2
    if token_ids.shape[1] < needed:
        raise ValueError(
            f"diagnose_acceptance needs texts of at least {needed} tokens, two blocks of "
            f"{drafter.config.block_size} and their anchors; got {token_ids.shape[1]}"
        )
    read, start = target.read(token_ids), token_ids.shape[1] // 2
    trained = _in_training(drafter, read, token_ids, start)
    decoded = drafter.block(_told(drafter, read, token_ids, start))[1]
    stale = drafter.block(_told(drafter, read, token_ids, start, rejected=2))[1]
    moved = {
        shift: _moved(drafter, _told(drafter, read, token_ids, start), shift) for shift in SHIFTS
    }
    rows = [
        check_block(drafter),
        check_flag(drafter, read, token_ids),
        check_layout(decoded, trained),
        check_positions(decoded, trained, moved),
        check_context(stale, decoded),
        check_teacher(target, read),
    ]
    if training is not None:
        rows.append(check_data(target, *training))
    positions = _positions(target, drafter, token_ids[:, :start], config)
    return Diagnosis(positions=positions, checks=pd.DataFrame(rows))


def check_block(drafter: Drafter) -> dict[str, object]:
    """Whether it drafts as many tokens as it was trained to.

    Args:
        drafter: asked for its block, and its config for that of training.
    """
    asked, trained = drafter.block_size, drafter.config.block_size
    return _row(
        "block size", asked != trained, asked, f"drafts {asked} tokens, trained on {trained}"
    )


def check_teacher(target: Target, read: Pass) -> dict[str, object]:
    """Whether the states that teach are those behind the final norm.

    Args:
        target: its head turns the states into a distribution.
        read: a pass of the target.
    """
    taught, own = (torch.softmax(x.float(), -1) for x in (target.head(read.final), read.logits))
    off = float((taught - own).abs().sum(-1).mean() / 2)
    told = f"head and states are {off:.2g} from the model's own distributions (total variation)"
    return _row("teacher", off > CLOSE, off, told)


def check_flag(
    drafter: Drafter, read: Pass, token_ids: Int64[Tensor, "batch seq"]
) -> dict[str, object]:
    """Whether the config says rightly if the anchor's own slot predicts the first draft.

    Args:
        drafter: its weights are tried in the other layout as well.
        read: a pass of the target.
        token_ids: the texts of that pass.
    """
    config = drafter.config
    other = Drafter(
        replace(config, sample_from_anchor=not config.sample_from_anchor), drafter.target
    )
    other.load_state_dict(drafter.state_dict())
    own, swapped = (_shared(each, read, token_ids) for each in (drafter, other.to(read.final)))
    told = f"drafts share {own:.2f} of the target's mass, in the other layout {swapped:.2f}"
    return _row("layout flag", swapped > own + BETTER, swapped - own, told)


def check_layout(
    decoded: Float[Tensor, "batch drafts vocab"], trained: Float[Tensor, "batch block vocab"]
) -> dict[str, object]:
    """Whether decoding reads the slots that training taught.

    Args:
        decoded: base logits of decoding.
        trained: those of training, for the same anchors.
    """
    for shift in (1, -1) if _apart(decoded, trained) > CLOSE else ():
        if _apart(decoded[:, max(0, -shift) :], trained[:, max(0, shift) :]) < CLOSE:
            told = f"slot k of decoding is slot k{shift:+d} of training"
            return _row("layout", True, shift, told)
    return _row("layout", False, 0, "no slot is taken for its neighbour")


def check_positions(
    decoded: Float[Tensor, "batch drafts vocab"],
    trained: Float[Tensor, "batch block vocab"],
    moved: Mapping[int, Float[Tensor, "batch block vocab"]],
) -> dict[str, object]:
    """Whether the slots stand where they stood in training.

    Args:
        decoded: base logits of decoding.
        trained: those of training.
        moved: those of decoding as it should be, with slots moved by so many positions.
    """
    off = _apart(decoded, trained)
    for who, logits in (("decoding", decoded), ("training", trained)) if off > CLOSE else ():
        for shift, guess in moved.items():
            if _apart(logits, guess) < CLOSE:
                told = f"slots of {who} stand {shift:+d} from their place"
                return _row("positions", True, shift, told)
    return _row("positions", False, 0, f"decoding and training differ by {off:.2g} in logits")


def check_context(
    stale: Float[Tensor, "batch block vocab"], fresh: Float[Tensor, "batch block vocab"]
) -> dict[str, object]:
    """Whether rejected drafts leave something behind.

    Args:
        stale: base logits after a round of which drafts were rejected.
        fresh: those of a state that never saw such drafts.
    """
    off = _apart(stale, fresh)
    told = f"rejected drafts in an earlier round move the logits by {off:.2g}"
    return _row("stale context", off > CLOSE, off, told)


def check_data(
    target: Target,
    training_ids: Int64[Tensor, "texts training"],
    answers: Bool[Tensor, "texts training"],
) -> dict[str, object]:
    """Whether answers are the target's own, as drafts will be: no more surprising than it expects.

    Of text that a model has sampled at temperature 1, the mean surprise equals the mean entropy.
    Other temperatures make text less surprising; only more is counted.

    Args:
        target: whose surprise is measured.
        training_ids: texts, with what was asked.
        answers: True at tokens that the target should have written.
    """
    laws = torch.log_softmax(target.read(training_ids).logits[:, :-1].double(), dim=-1)
    surprise = -laws.gather(-1, training_ids[:, 1:, None])[..., 0]
    entropy = -(laws.exp() * laws).sum(-1)
    variance = (laws.exp() * laws.square()).sum(-1) - entropy.square()
    excess = (surprise - entropy)[answers[:, 1:]]
    spread = variance[answers[:, 1:]].sum().sqrt().clamp_min(1e-9)
    errors, nats = float(excess.sum() / spread), float(excess.mean())
    told = f"texts are {nats:+.2f} nats a token from the target's entropy, {errors:+.1f} errors"
    return _row("data", errors > SURPRISE, nats, told)


def _positions(
    target: Target, drafter: Drafter, prompts: Tensor, config: GenerationConfig | None
) -> pd.DataFrame:
    """Acceptance in decoding, beside what is published of the same kind of drafter."""
    config = replace(config or GenerationConfig(), whole_blocks=True)
    generation = speculative_generate(target, drafter, prompts, config)
    curve = "DSpark" if drafter.config.markov_rank else "DFlash"
    return beside_published(acceptance_frame([generation]), curve)


def _row(cause: str, found: bool, measure: float | int, evidence: str) -> dict[str, object]:
    return {"cause": cause, "found": found, "measure": float(measure), "evidence": evidence}


def _apart(one: Tensor, other: Tensor) -> float:
    """Largest difference in the slots that both have; infinite if they share none."""
    size = min(one.shape[1], other.shape[1])
    return float((one[:, :size] - other[:, :size]).abs().max()) if size else float("inf")


@torch.no_grad()
def _in_training(drafter: Drafter, read: Pass, token_ids: Tensor, anchor: int) -> Tensor:
    """Base logits of the blocks at one anchor, as training computes them."""
    anchors = torch.full((len(token_ids), 1), anchor, device=token_ids.device)
    keep = torch.ones_like(anchors, dtype=torch.bool)
    return drafter(token_ids, read.features, anchors, keep).base[:, 0]


@torch.no_grad()
def _shared(drafter: Drafter, read: Pass, token_ids: Tensor) -> float:
    """Mass that drafts and target share, over all blocks that fit into the texts."""
    block = drafter.config.block_size
    anchors = torch.arange(1, token_ids.shape[1] - block, device=token_ids.device)
    anchors = anchors.expand(len(token_ids), -1)
    keep = torch.ones_like(anchors, dtype=torch.bool)
    drafted = torch.softmax(drafter(token_ids, read.features, anchors, keep).logits, dim=-1)
    rows = anchors[..., None] + torch.arange(block, device=anchors.device)
    laws = torch.softmax(read.logits.float(), dim=-1)
    wanted = laws[torch.arange(len(laws), device=laws.device)[:, None, None], rows]
    return float(torch.minimum(drafted, wanted).sum(-1).mean())


def _moved(drafter: Drafter, state: DraftState, shift: int) -> Tensor:
    """Base logits as the library decodes, but with the slots moved by some positions."""
    right = state.context.positions
    state.context.positions = lambda count: right(count) + shift
    return Drafter.block(drafter, state)[1]


def _told(
    drafter: Drafter, read: Pass, token_ids: Tensor, anchor: int, *, rejected: int = 0
) -> DraftState:
    """State at an anchor; with rejected drafts, as after a round in which so many were refused."""
    state = drafter.begin(len(token_ids))
    for first, last in ((0, anchor - 2), (anchor - 2, anchor)):
        behind = last + (rejected if last < anchor else 0)
        features = read.features[:, first:behind].clone()
        features[:, last - first :] += 1.0  # states of drafts that were refused are of other texts
        drafter.absorb(
            state,
            Committed(
                token_ids=token_ids[:, first:behind],
                counts=torch.full((len(token_ids),), last - first),
                features=features,
                final=read.final[:, first:behind],
                anchor=token_ids[:, last],
            ),
        )
    return state
