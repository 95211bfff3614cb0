"""A drafter beside a target that trains on: left alone, refreshed now and then, or trained along.

Nothing flows back: the target is read without gradients, so its path is the same whatever becomes
of the drafter, and policies are compared on the same targets and the same texts.
"""

import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.generate import GenerationConfig, speculative_generate
from engram_lab.draft.target import Target
from engram_lab.training.config import DataConfig, TrainConfig
from engram_lab.training.data import load_data
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig, Answers, draw_answers, load_answers
from engram_lab.training.draft_fit import build_drafter, load_or_fit_drafter
from engram_lab.training.draft_loss import DraftBatch, block_loss
from engram_lab.training.draft_objective import DraftObjective
from engram_lab.training.fit import TrainedRun, own_randomness
from engram_lab.training.loop import Loop
from engram_lab.training.objective import NextToken

Policy = Literal["frozen", "refreshed", "beside"]
POLICIES = ("frozen", "refreshed", "beside")


@dataclass(frozen=True, kw_only=True)
class DriftConfig:
    """A drafter, where its target goes from there, and what is done about it.

    "refreshed" and "beside" make the same number of drafter updates, one for each of the target, on
    answers that the target draws anew every `refresh_every` steps. "beside" makes each right after
    the target's; "refreshed" makes them `refresh_every` at a time.

    Attributes:
        drafter: the run that both start from; its drafter is a block drafter.
        onto: what the target trains on; other parts of the text bundle, for instance.
        move: how the target trains on, for `steps` updates, with an optimiser of its own.
        follow: how the drafter does; its `steps` is not used.
        policy: what is done about the drafter.
        refresh_every: target steps from one refreshing, and one drawing of answers, to the next.
        measure_every: target steps from one measurement to the next.
        answers: texts the drafter follows on, their prompts from `onto`.
        held_out: texts it is measured on, with prompts once from where the target came from ("old")
            and once from `onto` ("new"); `split` should be "validation".
        anchors: blocks measured in each held-out text.
        seed: of orders, anchors and draws.

    Raises:
        ValueError: if a rule is broken, naming the numbers.

    Source: DeepSeek-V4.1-Flash report, section 2.4.3, second-hand (training in post-training beside
        the trunk, without a gradient into it).
    """

    drafter: DraftRunConfig
    onto: DataConfig
    move: TrainConfig
    follow: TrainConfig = field(default_factory=lambda: draft_train_config(schedule="constant"))
    policy: Policy = "beside"
    refresh_every: int = 20
    measure_every: int = 20
    answers: AnswerConfig = field(default_factory=lambda: AnswerConfig(rows=128))
    held_out: AnswerConfig = field(
        default_factory=lambda: AnswerConfig(rows=32, split="validation", seed=1)
    )
    anchors: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every rule."""
        if not isinstance(self.drafter.drafter, DraftConfig):
            raise ValueError(
                "DriftConfig.drafter must be the run of a block drafter (DraftConfig); got one of "
                f"{type(self.drafter.drafter).__name__}"
            )
        if self.policy not in POLICIES:
            raise ValueError(
                f"DriftConfig.policy must be one of {', '.join(POLICIES)}; got {self.policy!r}"
            )
        for name in ("refresh_every", "measure_every", "anchors"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"DriftConfig.{name} must be at least 1; got {getattr(self, name)}"
                )
        if not self.move.steps or self.move.steps % self.refresh_every:
            raise ValueError(
                "DriftConfig.move.steps must be a multiple of refresh_every "
                f"({self.refresh_every}), so that every policy makes the same updates; got "
                f"{self.move.steps}"
            )

    @property
    def steps(self) -> int:
        """Updates of the target."""
        return self.move.steps


@dataclass(frozen=True, kw_only=True, eq=False)
class Drift:
    """What came of a drift.

    Attributes:
        config: what was asked for.
        frame: one row per measurement and kind of text. `target_step` and `draft_updates` count
            updates so far; where the drafter is refreshed there are two rows, before and after.
            `text` is "old" or "new". `accept_rate` (mean chance that a draft is kept) and
            `accepted_length` (tokens a round) hold with known tokens, on answers of the target as
            it is at that step; `sampled_length` is the accepted length of decoding at temperature
            1 in earnest. `target_shift` is the mean total variation between the target's
            distributions at that step and at the start.
        model: the target at the end.
        drafter: the drafter at the end.
        interrupted: whether it was stopped before its last step.
    """

    config: DriftConfig
    frame: pd.DataFrame
    model: nn.Module
    drafter: nn.Module
    interrupted: bool = False


def run_drift(config: DriftConfig, *, progress: bool = True) -> Drift:
    """Let a target train on, and see how its drafter keeps up.

    Target and drafter are loaded, or trained first, and copied: what is kept on disk or at hand
    stays as it is. An interrupt returns what there is.

    Args:
        config: what moves, and what is done about it.
        progress: whether to show bars.

    Raises:
        ValueError: if `onto` does not fit the target, or has no such prompts.
        NonFiniteLoss: naming the step.
    """
    with own_randomness(config.seed):
        course = _Course(config, progress=progress)
        bar = tqdm(total=config.steps, unit="step", disable=not progress)
        course.measure()
        finished = True
        while finished and course.target_loop.step < config.steps:
            finished = course.advance()
            bar.update(course.target_loop.step - bar.n)
    bar.close()
    return Drift(
        config=config,
        frame=pd.DataFrame(course.rows),
        model=course.target.model.eval(),
        drafter=course.drafter.eval(),
        interrupted=not finished,
    )


class _Course:
    """One drift in progress: two loops that take turns, and what was measured.

    Attributes:
        target: the target as it is now.
        origin: the target as it was, frozen.
        target_loop: trains the target.
        drafter_loop: trains the drafter.
        rows: measurements.
    """

    def __init__(self, config: DriftConfig, *, progress: bool):
        trained = load_or_fit_drafter(config.drafter, progress=progress)
        shape = config.drafter.drafter
        layers, tap = shape.target_layer_ids, shape.tap
        old = trained.target_run
        model = copy.deepcopy(old.model)
        data = load_data(replace(old.config, data=config.onto))
        onto = replace(old.config, data=config.onto, train=config.move)
        self.config = config
        self.target, self.origin = (Target(read, layers, tap=tap) for read in (model, old.model))
        self.old: TrainedRun = replace(old, model=model)
        self.new: TrainedRun = replace(
            old, model=model, config=onto, validation=data.validation, compression=data.compression
        )
        self.target_loop = Loop(
            model,
            NextToken(data.train, config.move, config.seed),
            config.move,
            steps=config.steps,
            identity=config,
        )
        self.drafter, loss = build_drafter(config.drafter, self.target)
        self.drafter.load_state_dict(trained.drafter.state_dict())
        self.drafter.to(self.target.device).eval()
        known = load_answers(old, config.drafter.answers, progress=False)  # until there are others
        self.objective = DraftObjective(self.target, known, loss, config.follow, seed=config.seed)
        self.drafter_loop = Loop(
            self.drafter, self.objective, config.follow, steps=config.steps, identity=config
        )
        self.rows: list[dict[str, Any]] = []

    def advance(self) -> bool:
        """One update of the target and what follows from it; False after an interrupt."""
        config = self.config
        step = self.target_loop.step + 1
        if not self.target_loop.run(progress=False, until=step):
            return False
        measured = step % config.measure_every == 0 or step == config.steps
        if config.policy == "beside":
            if (step - 1) % config.refresh_every == 0:
                self._new_answers(step)
            finished = self._follow(step)
            if measured:
                self.measure()
            return finished
        if measured:
            self.measure()
        if config.policy == "frozen" or step % config.refresh_every:
            return True
        self._new_answers(step)
        finished = self._follow(step)
        if measured:
            self.measure()
        return finished

    def measure(self) -> None:
        """Append a row for each kind of text."""
        for text, run in (("old", self.old), ("new", self.new)):
            held_out = draw_answers(run, self.config.held_out)
            self.rows.append(
                {
                    "target_step": self.target_loop.step,
                    "draft_updates": self.drafter_loop.step,
                    "text": text,
                    **self._known(held_out),
                    "sampled_length": self._sampled(held_out),
                }
            )

    def _follow(self, updates: int) -> bool:
        """Train the drafter until it has made so many updates."""
        return self.drafter_loop.run(progress=False, until=updates)

    def _new_answers(self, step: int) -> None:
        """Let the target answer other prompts, as it is now."""
        settings = self.config.answers
        changed = replace(settings, seed=settings.seed + step)
        self.objective.answers = draw_answers(self.new, changed)

    @torch.no_grad()
    def _known(self, held_out: Answers) -> dict[str, float]:
        """Chances of acceptance with known tokens, and how far the target has moved."""
        batch = DraftBatch(token_ids=held_out.token_ids, loss_mask=held_out.loss_mask)
        batch = batch.to(self.target.device)
        read = self.target.read(batch.token_ids)
        before = self.origin.read(batch.token_ids)
        generator = torch.Generator().manual_seed(self.config.seed)
        loss = replace(self.config.drafter.loss, num_anchors=self.config.anchors)
        terms = block_loss(self.drafter, read, batch, generator, config=loss).terms
        return {
            "accept_rate": float(terms["accept_rate"]),
            "accepted_length": float(terms["accepted_length"]),
            "target_shift": float(_apart(read.logits, before.logits)[batch.loss_mask].mean()),
        }

    def _sampled(self, held_out: Answers) -> float:
        """Accepted length of decoding in earnest."""
        generation = GenerationConfig(
            max_new_tokens=held_out.token_ids.shape[1] - held_out.prompt_tokens,
            sampling=self.config.held_out.sampling,
            whole_blocks=True,
            seed=self.config.seed,
        )
        found = speculative_generate(self.target, self.drafter, held_out.prompts, generation)
        return found.accepted_length


def _apart(logits: Tensor, others: Tensor) -> Tensor:
    """Total variation between next-token distributions."""
    return 0.5 * (logits.float().softmax(-1) - others.float().softmax(-1)).abs().sum(-1)
