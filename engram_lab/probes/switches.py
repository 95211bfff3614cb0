"""Parts of a memory switched off: one row, a hash head, an order or a whole module.

A part that is off is read as zeros, by `hooks.edit`; table and model stay as they are. All states
one asks for are computed in one batch.
"""

import inspect
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from engram_lab.hooks import edit, record
from engram_lab.memory.engram import Engram
from engram_lab.model.undisturbed import undisturbed

AT_ONCE = 16  # states computed in one pass


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A part of the memory that is off. `Switch()` is all of it, `Switch(layer=1)` one module.

    Attributes:
        layer: block of the module, counted from 0; None for every module.
        order: n-gram order, from 2; None for every order.
        head: hash head, counted from 0 within its order; None for every head.
        row: address in the one table that layer, order and head name; the row is off wherever the
            text reads it. None for every row.

    Raises:
        ValueError: if a row comes without layer, order and head.
    """

    layer: int | None = None
    order: int | None = None
    head: int | None = None
    row: int | None = None

    def __post_init__(self) -> None:
        """A row belongs to one table."""
        if self.row is not None and None in (self.layer, self.order, self.head):
            raise ValueError(
                f"Switch.row needs layer, order and head, which name its table; got {self}"
            )

    @property
    def part(self) -> str:
        """Kind of part: "row", "head", "order" or "module" (a head of one order is a "head")."""
        kinds = (("row", self.row), ("head", self.head), ("order", self.order))
        return next((name for name, number in kinds if number is not None), "module")

    def __str__(self) -> str:
        """In words, for legends and messages."""
        numbers = {"block": self.layer, "order": self.order, "head": self.head, "row": self.row}
        named = [f"{name} {number}" for name, number in numbers.items() if number is not None]
        return ", ".join(named) or "all memory"


def memories_of(model: nn.Module) -> dict[int, tuple[str, Engram]]:
    """Module path and module of every memory, by block.

    Raises:
        ValueError: if the model has none, or reads the rows of a neighbour in the batch.
    """
    found = {
        module.layer_id: (path, module)
        for path, module in model.named_modules()
        if isinstance(module, Engram)
    }
    if not found:
        raise ValueError(
            f"rows are read from a model with memory; this {type(model).__name__} has none. "
            "Give its config an EngramConfig and train it again."
        )
    if any(module.config.addresses == "neighbour" for _, module in found.values()):
        raise ValueError(
            "this model was trained as a control that reads its neighbour's rows "
            "(EngramConfig.addresses='neighbour'), so a text alone has no rows; use a model with "
            "addresses='own'"
        )
    return dict(sorted(found.items()))


def tables_of(memory: Engram) -> list[tuple[int, int, int]]:
    """Order, head and rows of every table of a module, in the order of the axis `table`.

    Rows of a hot tier, which stand behind the hashed ones, are counted.
    """
    indices = getattr(memory.hash, "indices", {})
    hot = {int(order): index.size for order, index in indices.items()}
    return [
        (order, head, rows + hot.get(order, 0))
        for order, lengths in enumerate(memory.hash.primes.tolist(), start=2)
        for head, rows in enumerate(lengths)
    ]


def addresses_read(
    model: nn.Module, token_ids: Int64[Tensor, "one seq"]
) -> dict[int, Int64[Tensor, "seq table"]]:
    """Address in every table at every position of a text, by block; the model is left as it was.

    Raises:
        ValueError: if there is not exactly one text of at least one token, or no memory.
    """
    _check_text(token_ids)
    paths = {layer: path for layer, (path, _) in memories_of(model).items()}
    names = [f"{path}.hook_addresses" for path in paths.values()]
    with undisturbed(model), record(model, names) as seen:
        last_logits(model, token_ids)
    return {layer: seen[f"{path}.hook_addresses"][0].cpu() for layer, path in paths.items()}


def switched_logits(
    model: nn.Module,
    token_ids: Int64[Tensor, "one seq"],
    states: Sequence[Collection[Switch]],
) -> Float[Tensor, "state vocab"]:
    """Logits after the last token of a text, once per state.

    Args:
        model: a model with memory; left as it was.
        token_ids: one text.
        states: what is off in each state; an empty collection leaves everything on.

    Returns:
        Float32 numbers on the CPU.

    Raises:
        ValueError: if there is not exactly one text of at least one token, no memory, or a switch
            names a part that the model does not have.
    """
    _check_text(token_ids)
    memories = memories_of(model)
    for switch in {switch for state in states for switch in state}:
        _check_switch(switch, memories)
    parts = []
    with undisturbed(model):
        for first in range(0, len(states), AT_ONCE):
            some = states[first : first + AT_ONCE]
            with _switched_off(model, memories, some):
                logits = last_logits(model, token_ids.expand(len(some), -1))
            parts.append(logits.float().cpu())
    return torch.cat(parts)


def last_logits(
    model: nn.Module, token_ids: Int64[Tensor, "batch seq"]
) -> Float[Tensor, "batch vocab"]:
    """Logits after the last token; earlier ones are left out where the model can.

    Args:
        token_ids: texts of one length; the model runs in the mode it is in.
    """
    known = inspect.signature(model.forward).parameters
    options = {"logits_to_keep": 1, "use_cache": False}
    options = {name: value for name, value in options.items() if name in known}
    output = model(token_ids.to(next(model.parameters()).device), **options)
    return getattr(output, "logits", output)[:, -1]


class _Silence:
    """What the hooks of one module do in a batch of states."""

    def __init__(self, memory: Engram, states: Sequence[Collection[Switch]]):
        layer = memory.layer_id
        self.states = [[s for s in state if s.layer in (None, layer)] for state in states]
        self.tables = tables_of(memory)
        self.addresses: Tensor | None = None

    def see(self, addresses: Tensor) -> Tensor:
        """Remember what the rows are called."""
        self.addresses = addresses
        return addresses

    def rows(self, rows: Float[Tensor, "state seq table row"]) -> Tensor:
        """Rows that are off as zeros."""
        off = [self._off(switches, at) for at, switches in enumerate(self.states)]
        return rows.masked_fill(torch.stack(off)[..., None], 0)

    def out(self, update: Float[Tensor, "state seq branch hidden"]) -> Tensor:
        """A whole module that is off adds nothing, whatever its biases say."""
        off = [any(switch.part == "module" for switch in state) for state in self.states]
        off = torch.tensor(off, device=update.device)
        return update.masked_fill(off[:, None, None, None], 0)

    def _off(self, switches: Collection[Switch], at: int) -> Bool[Tensor, "seq table"]:
        addresses = self.addresses[at]
        off = torch.zeros_like(addresses, dtype=torch.bool)
        for switch in switches:
            hit = [
                switch.order in (None, order) and switch.head in (None, head)
                for order, head, _ in self.tables
            ]
            mask = torch.tensor(hit, device=addresses.device).expand_as(off)
            off |= mask if switch.row is None else mask & (addresses == switch.row)
        return off


@contextmanager
def _switched_off(
    model: nn.Module,
    memories: dict[int, tuple[str, Engram]],
    states: Sequence[Collection[Switch]],
) -> Iterator[None]:
    changes = {}
    for path, memory in memories.values():
        silence = _Silence(memory, states)
        changes[f"{path}.hook_addresses"] = silence.see
        changes[f"{path}.hook_rows"] = silence.rows
        changes[f"{path}.hook_out"] = silence.out
    with edit(model, changes):
        yield


def _check_text(token_ids: Tensor) -> None:
    if token_ids.shape[0] != 1 or token_ids.shape[1] == 0:
        raise ValueError(
            f"rows are read from one text of at least one token; got ids of shape "
            f"{tuple(token_ids.shape)}"
        )


def _check_switch(switch: Switch, memories: dict[int, tuple[str, Engram]]) -> None:
    """Refuse a switch of a part that is not there: it would do nothing, silently."""
    layers = list(memories) if switch.layer is None else [switch.layer]
    if layers[0] not in memories:
        raise ValueError(
            f"Switch.layer must be a block with memory ({', '.join(map(str, memories))}); got "
            f"{switch.layer}"
        )
    tables = [table for layer in layers for table in tables_of(memories[layer][1])]
    for name, at in (("order", 0), ("head", 1)):
        known, wanted = sorted({table[at] for table in tables}), getattr(switch, name)
        if wanted is not None and wanted not in known:
            raise ValueError(
                f"Switch.{name} must lie in {known[0]}..{known[-1]}; got {wanted} ({switch})"
            )
    if switch.row is not None:
        rows = next(rows for *which, rows in tables if which == [switch.order, switch.head])
        if not 0 <= switch.row < rows:
            raise ValueError(f"Switch.row must lie in 0..{rows - 1}; got {switch.row} ({switch})")
