"""The training loop: update, look, save; stopped at any point it can go on."""

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from engram_lab.configs import from_json, to_json
from engram_lab.training import checkpoint as checkpoints
from engram_lab.training.config import TrainConfig, rate_factor
from engram_lab.training.device import accelerator_for, data_parallel
from engram_lab.training.gradients import average_over_processes, clip_gradients
from engram_lab.training.objective import Objective
from engram_lab.training.optimizers import build_optimizers, parameter_groups

Row = dict[str, Any]  # one logged update: numbers by name, tensors until they are looked at


class NonFiniteLoss(FloatingPointError):
    """Loss or gradient became infinite or not a number; training stopped there.

    Attributes:
        history: what was logged up to that step.
    """

    def __init__(self, message: str, history: list[Row]):
        super().__init__(message)
        self.history = history


class Loop:
    """One training run in progress.

    Args:
        model: trained in place.
        objective: what it is trained for.
        train: how.
        steps: updates of the whole run.
        identity: config of the run; a checkpoint of another run is refused.

    Attributes:
        step: finished updates.
        history: one dict per logged update.
        seconds: time spent training, over all resumptions.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        train: TrainConfig,
        *,
        steps: int,
        identity: object,
    ):
        self.objective, self.train, self.steps, self.identity = objective, train, steps, identity
        self.accelerator = accelerator_for(train.device)
        self.tables = parameter_groups(model)["table"]
        self.model = model
        self.parallel = data_parallel(model, list(self.tables), self.accelerator)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizers = build_optimizers(model, train)
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self.history: list[Row] = []
        self._pending: list[Row] = []
        self._folder: Path | None = None

    def run(
        self, *, progress: bool = True, folder: Path | None = None, until: int | None = None
    ) -> bool:
        """Train to the last step; False if an interrupt stopped it earlier.

        Args:
            progress: whether to show a bar with loss, speed and time left.
            folder: where checkpoints are written, and from where the newest is taken up.
            until: pause after so many updates in all; the next call goes on there, and rates are
                those of the whole run. None for the whole run.

        Raises:
            NonFiniteLoss: naming the step and the last good checkpoint.
            ValueError: if the checkpoints in `folder` belong to another run.
        """
        self._folder = folder
        if folder is not None:
            self._resume(folder)
        end = self.steps if until is None else min(until, self.steps)
        main = self.accelerator.is_main_process
        bar = tqdm(
            total=self.steps, initial=self.step, unit="step", disable=not (progress and main)
        )
        self.model.train()
        self._clock, self._clock_tokens = time.perf_counter(), self.tokens
        try:
            while self.step < end:
                self._pending.append(self._update())
                last = self.step == end
                save = folder is not None and (last or self.step % self.train.checkpoint_every == 0)
                if save or last or self.step % self.train.log_every == 0:
                    self._look(bar)
                if save:
                    self._save(folder)
            return True
        except KeyboardInterrupt:
            self._look(bar, check=False)
            return False
        finally:
            bar.close()
            self.optimizers.zero_grad()
            self.model.eval()

    def _update(self) -> Row:
        """One update; what it returns is read later, so that the device need not be waited for."""
        factor = rate_factor(self.train, self.step, self.steps)
        self.optimizers.set_rate_factor(factor)
        processes = self.accelerator.num_processes
        share = self.objective.share(self.step, self.accelerator.process_index, processes)
        reported = []
        for index, part in enumerate(share.parts):
            part = part.to(self.accelerator.device)
            last = index == len(share.parts) - 1
            wait = nullcontext() if last else self.accelerator.no_sync(self.parallel)
            with wait:
                with self.accelerator.autocast():
                    loss, plain = self.objective.loss(self.parallel, part, share)
                # the average over processes is a sum: every part is divided by the whole batch
                self.accelerator.backward(loss * processes)
            reported.append(plain.detach())
        average_over_processes(self.tables.values(), self.accelerator)
        norm = clip_gradients(self.parameters, self.train.clip_norm)
        self.optimizers.step()
        self.optimizers.zero_grad()
        if hasattr(self.model, "update_balance"):
            self.model.update_balance()
        self.step += 1
        self.tokens += share.tokens
        loss = self.accelerator.reduce(torch.stack(reported).sum(), reduction="sum")
        return {
            "step": self.step,
            "tokens": self.tokens,
            "loss_nats": loss,
            "lr": self.train.lr * factor,
            "grad_norm": norm,
        }

    def _look(self, bar: tqdm, *, check: bool = True) -> None:
        """Read the pending losses, log and show them, and stop if one is not finite."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        for name in ("loss_nats", "grad_norm"):
            values = torch.stack([row[name].float() for row in pending]).tolist()
            for row, value in zip(pending, values, strict=True):
                row[name] = value
        now = time.perf_counter()
        elapsed = max(now - self._clock, 1e-9)
        speed = (pending[-1]["tokens"] - self._clock_tokens) / elapsed
        for index, row in enumerate(pending, 1):
            row |= {"tokens_per_s": speed, "seconds": self.seconds + elapsed * index / len(pending)}
        self.seconds += elapsed
        self._clock, self._clock_tokens = now, pending[-1]["tokens"]
        self.history += pending
        bar.update(pending[-1]["step"] - bar.n)
        bar.set_postfix_str(f"loss {pending[-1]['loss_nats']:.3f} nats, {speed:,.0f} tokens/s")
        for row in pending if check else ():
            if not math.isfinite(row["loss_nats"] + row["grad_norm"]):
                raise NonFiniteLoss(self._explain(row), self.history)

    def _explain(self, row: Row) -> str:
        good = checkpoints.checkpoint_paths(self._folder) if self._folder else []
        kept = f"The last good checkpoint is {good[-1]}." if good else "No checkpoint was written."
        return (
            f"training must keep loss and gradient finite; at step {row['step']} the loss is "
            f"{row['loss_nats']} and the gradient norm {row['grad_norm']}. {kept} "
            "Lower TrainConfig.lr or clip_norm, or lengthen the warm-up."
        )

    def _save(self, folder: Path) -> None:
        if self.accelerator.is_main_process:
            state = {
                "tokens": self.tokens,
                "seconds": self.seconds,
                "history": self.history,
                "config": to_json(self.identity),
            }
            checkpoints.save_checkpoint(
                folder,
                checkpoints.Checkpoint(
                    step=self.step,
                    model=checkpoints.model_tensors(self.model),
                    optimizer=self.optimizers.state_tensors(),
                    random=checkpoints.random_states(),
                    state=state,
                ),
            )
        self.accelerator.wait_for_everyone()
        self._clock = time.perf_counter()  # saving is not training

    def _resume(self, folder: Path) -> None:
        found = checkpoints.load_newest(folder)
        if found is None:
            return
        if not self._is_mine(found.state["config"]):
            raise ValueError(
                f"the checkpoints in {folder} belong to a run of another config. "
                "Give this run a folder of its own, or delete that one."
            )
        checkpoints.load_model_tensors(self.model, found.model)
        self.optimizers.load_state_tensors(found.optimizer)
        checkpoints.set_random_states(found.random)
        self.step, self.tokens = found.step, found.state["tokens"]
        self.seconds, self.history = found.state["seconds"], found.state["history"]

    def _is_mine(self, stored: str) -> bool:
        """Whether a stored config is that of this run; fields it does not know are at default."""
        try:
            known = to_json(from_json(type(self.identity), stored))
        except ValueError:
            return False
        return known == to_json(self.identity)
