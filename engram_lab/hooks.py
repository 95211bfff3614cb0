"""See and change any activation: `HookPoint`, `record`, `edit`.

A `HookPoint` is an identity module on a value worth seeing; its dotted module path is its name, for
instance `blocks.1.engram.hook_gate`. `record` and `edit` take any module path of any model, so they
serve models from `transformers` as well. Both are built on torch forward hooks and take them away
on exit, also after an exception.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


class HookPoint(nn.Module):
    """Identity on a named value, so that hooks can watch or replace it."""

    def forward(self, value: Tensor) -> Tensor:
        """Return `value` unchanged."""
        return value

    @property
    def watched(self) -> bool:
        """Whether any hook looks at this point now (fused paths step aside when one does)."""
        return bool(
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
        )


class Recording(dict):
    """Dict from module path to detached tensor, filled by the next forward pass."""

    def __init__(self, names: Sequence[str]):
        super().__init__()
        self.names = tuple(names)

    def __missing__(self, name: str) -> Tensor:
        if name in self.names:
            raise KeyError(
                f"{name!r} holds nothing yet: run the model inside the `with` block first"
            )
        raise KeyError(f"{name!r} was not recorded; recorded names: {', '.join(self.names)}")


@contextmanager
def record(
    model: nn.Module,
    patterns: Sequence[str],
    *,
    positions: Sequence[int] | slice | None = None,
    dtype: torch.dtype | None = None,
) -> Iterator[Recording]:
    """Watch the outputs of modules during forward passes inside the `with` block.

    Args:
        patterns: module paths, with shell wildcards: `blocks.*.engram.hook_gate`.
        positions: which positions of axis 1 (`seq`) to keep; None keeps all.
        dtype: floating dtype to keep; None keeps the model's.

    Yields:
        Dict from module path to the latest output, detached. A module that returns a tuple gives
        its first tensor.

    Raises:
        KeyError: if a pattern fits no module (near matches are listed), or a name is read before a
            forward pass filled it.
    """
    names = _matches(model, patterns)
    seen = Recording(names)

    def watcher(name: str) -> Callable:
        def hook(module: nn.Module, inputs: tuple, output: object) -> None:
            value = _first_tensor(output, name).detach()
            if positions is not None and value.dim() > 1:
                value = value[:, positions]
            if dtype is not None and value.is_floating_point():
                value = value.to(dtype)
            seen[name] = value.clone()

        return hook

    modules = dict(model.named_modules())
    handles = [modules[name].register_forward_hook(watcher(name)) for name in names]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def edit(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Replace values on their way through the model inside the `with` block.

    Args:
        changes: from module path (wildcards allowed) to a function of the value, for instance
            `{"blocks.1.engram.hook_gate": torch.zeros_like}`.

    Raises:
        KeyError: if a pattern fits no module, listing near matches.
        TypeError: if a function returns something else than a tensor.
        ValueError: if the returned tensor has another shape.
        RuntimeError: if the model ran but never called a matched module, so its edit had no effect.
    """
    modules = dict(model.named_modules())
    idle: set[str] = set()
    ran: list[bool] = []
    handles = [model.register_forward_hook(lambda *call: ran.append(True))]
    try:
        for pattern, change in changes.items():
            for name in _matches(model, [pattern]):
                idle.add(name)
                hook = _replacer(name, change, idle)
                handles.append(modules[name].register_forward_hook(hook))
        yield
        if ran and idle:
            raise RuntimeError(
                f"the model ran without calling {', '.join(sorted(idle))}, so the edit had no "
                "effect. Edit a hook point (hook_...) instead."
            )
    finally:
        for handle in handles:
            handle.remove()


def _replacer(name: str, change: Change, idle: set[str]) -> Callable:
    def hook(module: nn.Module, inputs: tuple, output: object) -> object:
        idle.discard(name)
        value = _first_tensor(output, name)
        new = change(value)
        if not isinstance(new, Tensor):
            raise TypeError(f"the edit of {name!r} must return a tensor; got {type(new).__name__}")
        if new.shape != value.shape:
            raise ValueError(
                f"the edit of {name!r} must keep the shape {tuple(value.shape)}; got "
                f"{tuple(new.shape)}"
            )
        return (new, *output[1:]) if isinstance(output, tuple) else new

    return hook


def _first_tensor(output: object, name: str) -> Tensor:
    value = output[0] if isinstance(output, (tuple, list)) and output else output
    if not isinstance(value, Tensor):
        raise TypeError(
            f"module {name!r} returns {type(output).__name__}, which holds no tensor first"
        )
    return value


def _matches(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    known = [name for name, _ in model.named_modules() if name]
    found: dict[str, None] = {}
    for pattern in patterns:
        hits = [name for name in known if fnmatchcase(name, pattern)]
        if not hits:
            near = difflib.get_close_matches(pattern, known, n=5, cutoff=0.3)
            raise KeyError(f"no module fits {pattern!r}; near matches: {', '.join(near) or 'none'}")
        found.update(dict.fromkeys(hits))
    return list(found)
