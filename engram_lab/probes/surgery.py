"""One fact written into the rows that its prompt reads, by gradient on these rows alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.hooks import Change, edit
from engram_lab.memory.engram import Engram
from engram_lab.model.undisturbed import undisturbed
from engram_lab.probes.gates import Encoder
from engram_lab.probes.prompts import one_token, prefix
from engram_lab.probes.switches import addresses_read, last_logits, memories_of, tables_of


@dataclass(frozen=True, kw_only=True)
class SurgeryConfig:
    """How a fact is written into rows.

    Attributes:
        target: the token that shall follow the prompt, as text: exactly one token.
        steps: most steps of gradient descent.
        lr: learning rate of Adam, in units of a row's numbers.
        stop_at: probability of the target at which to stop, in (0, 1]; 1 takes all steps.
        orders: n-gram orders whose rows may change; None for all. A longer n-gram shares its row
            with rarer company.
        last_positions: how many of the last tokens of the prompt have their rows changed.

    Raises:
        ValueError: if a number is out of range or no order is given.
    """

    target: str
    steps: int = 60
    lr: float = 0.03
    stop_at: float = 0.9
    orders: tuple[int, ...] | None = None
    last_positions: int = 1

    def __post_init__(self) -> None:
        """Check every rule."""
        for name in ("steps", "last_positions"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"SurgeryConfig.{name} must be at least 1; got {getattr(self, name)}"
                )
        if not self.lr > 0:
            raise ValueError(f"SurgeryConfig.lr must be above 0; got {self.lr}")
        if not 0 < self.stop_at <= 1:
            raise ValueError(f"SurgeryConfig.stop_at must lie in (0, 1]; got {self.stop_at}")
        if self.orders is not None and not self.orders:
            raise ValueError("SurgeryConfig.orders needs at least one order, or None for all")


class Surgery:
    """An edit in force; `edit_fact` makes one.

    Attributes:
        model: the model, its edited rows in its tables.
        prompt_ids: the prompt.
        target_id: the token it shall be followed by.
        history: columns step, loss_nats and probability (of the target), from step 0, before any
            change.
        rows: the edited rows: columns layer (the first that reads it, where modules share a table),
            order, head, row and moved (Euclidean distance).
        kept: whether the edit stays after the `with` block.
    """

    def __init__(self, model: nn.Module, prompt_ids: Int64[Tensor, "one seq"], target_id: int):
        """Nothing is edited yet."""
        self.model, self.prompt_ids, self.target_id = model, prompt_ids, target_id
        self.kept = False
        self.history = pd.DataFrame(columns=["step", "loss_nats", "probability"])
        self.rows = pd.DataFrame(columns=["layer", "order", "head", "row", "moved"])
        self._patches: list[_Patch] = []

    def keep(self) -> None:
        """Leave the edited rows in the model when the `with` block ends."""
        self.kept = True

    @contextmanager
    def undone(self) -> Iterator[None]:
        """The original rows, for as long as the `with` block lasts."""
        for patch in self._patches:
            patch.write(patch.original)
        try:
            yield
        finally:
            for patch in self._patches:
                patch.write(patch.edited)

    def shared(self, token_ids: Int64[Tensor, "one seq"]) -> Int64[Tensor, "seq"]:
        """How often another text reads an edited row at each of its tokens."""
        read = addresses_read(self.model, token_ids)
        counts = torch.zeros(token_ids.shape[1], dtype=torch.int64)
        for patch in self._patches:
            for memory in patch.readers.values():
                row_ids = read[memory.layer_id] + patch.table.offsets.cpu()
                counts += torch.isin(row_ids, patch.row_ids.cpu()).sum(-1)
        return counts


@contextmanager
def edit_fact(
    model: nn.Module, prompt: str, tokenizer: Encoder, config: SurgeryConfig
) -> Iterator[Surgery]:
    """Make a token follow a prompt by changing the rows that the prompt reads; undone on exit.

    Only these rows move: everything else of the model is frozen, without touching its flags, and
    stays bit for bit. Whoever else reads one of the rows reads the new one; `collateral_frame`
    measures what that does. `Surgery.keep()` leaves the edit in the model.

    Args:
        model: a model with memory, in any dtype, on any device.
        prompt: the text before the target.
        tokenizer: the one the model was trained with.
        config: target, steps and which rows.

    Yields:
        The edit, in force.

    Raises:
        ValueError: if the prompt is empty or too long, the target is not one token, the model has
            no memory, or the config names orders it does not have.
    """
    ids = prefix(tokenizer, prompt).ids
    surgery = Surgery(model, ids, one_token(tokenizer, config.target))
    patches = _patches(model, ids, config)
    with undisturbed(model), torch.enable_grad():
        surgery.history = _descend(surgery, patches, config)
    surgery.rows = pd.concat([patch.frame() for patch in patches], ignore_index=True)
    surgery._patches = patches
    try:
        for patch in patches:
            patch.write(patch.edited)
        yield surgery
    finally:
        if not surgery.kept:
            for patch in patches:
                patch.write(patch.original)


class _Patch:
    """The rows of one table that may change, and the modules that read it."""

    def __init__(self, path: str, memory: Engram, row_ids: Int64[Tensor, "row"]):
        self.table, self.row_ids = memory.table, row_ids
        self.readers = {path: memory}
        self.original = memory.table.weight.detach()[row_ids].clone()
        self.free = self.original.clone().float().requires_grad_()

    @property
    def edited(self) -> Float[Tensor, "row width"]:
        return self.free.detach().to(self.original.dtype)

    @property
    def changes(self) -> dict[str, Change]:
        """For `hooks.edit`: the free rows in place of those of the table."""
        changes = {}
        for path in self.readers:
            see, replace = self._hooks()
            changes |= {f"{path}.hook_addresses": see, f"{path}.hook_rows": replace}
        return changes

    def _hooks(self) -> tuple[Change, Change]:
        seen: list[Tensor] = []

        def see(addresses: Tensor) -> Tensor:
            seen[:] = [self.table.row_ids(addresses)]
            return addresses

        def replace(rows: Tensor) -> Tensor:
            place = torch.searchsorted(self.row_ids, seen[0]).clamp_max(len(self.row_ids) - 1)
            mine = self.row_ids[place] == seen[0]
            return torch.where(mine[..., None], self.free[place].to(rows.dtype), rows.detach())

        return see, replace

    @torch.no_grad()
    def write(self, rows: Tensor) -> None:
        """Put rows into the table, in place."""
        self.table.weight.index_copy_(0, self.row_ids, rows)

    def frame(self) -> pd.DataFrame:
        """What was edited and how far it moved."""
        memory = next(iter(self.readers.values()))
        tables, offsets = tables_of(memory), self.table.offsets
        table = torch.searchsorted(offsets, self.row_ids, right=True) - 1
        return pd.DataFrame(
            {
                "layer": memory.layer_id,
                "order": [tables[number][0] for number in table.tolist()],
                "head": [tables[number][1] for number in table.tolist()],
                "row": (self.row_ids - offsets[table]).cpu().numpy(),
                "moved": (self.edited.float() - self.original.float()).norm(dim=-1).cpu().numpy(),
            }
        )


def _patches(
    model: nn.Module, ids: Int64[Tensor, "one seq"], config: SurgeryConfig
) -> list[_Patch]:
    """The rows read at the last tokens of the prompt, table by table."""
    memories = memories_of(model)
    known = sorted({table[0] for _, memory in memories.values() for table in tables_of(memory)})
    orders = known if config.orders is None else config.orders
    if not set(orders) <= set(known):
        raise ValueError(
            f"SurgeryConfig.orders must be among the orders of this memory, {tuple(known)}; got "
            f"{config.orders}"
        )
    patches: dict[int, _Patch] = {}
    for layer, addresses in addresses_read(model, ids).items():
        path, memory = memories[layer]
        if id(memory.table) in patches:  # modules that share a table share its hash as well
            patches[id(memory.table)].readers[path] = memory
            continue
        wanted = torch.tensor([order in orders for order, _, _ in tables_of(memory)])
        row_ids = addresses + memory.table.offsets.cpu()
        row_ids = row_ids[-config.last_positions :, wanted].unique()
        row_ids = row_ids.to(memory.table.weight.device)
        patches[id(memory.table)] = _Patch(path, memory, row_ids)
    return list(patches.values())


def _descend(surgery: Surgery, patches: list[_Patch], config: SurgeryConfig) -> pd.DataFrame:
    """Gradient steps on the free rows until the target is probable enough."""
    free = [patch.free for patch in patches]
    optimizer = torch.optim.Adam(free, lr=config.lr)
    changes = {name: change for patch in patches for name, change in patch.changes.items()}
    history = []
    with edit(surgery.model, changes):
        for step in range(config.steps + 1):
            logits = last_logits(surgery.model, surgery.prompt_ids)[0].float()
            loss = -logits.log_softmax(-1)[surgery.target_id]
            history.append((step, loss.item(), loss.neg().exp().item()))
            if step == config.steps or history[-1][2] >= config.stop_at:
                break
            for rows, gradient in zip(free, torch.autograd.grad(loss, free), strict=True):
                rows.grad = gradient
            optimizer.step()
    return pd.DataFrame(history, columns=["step", "loss_nats", "probability"])
