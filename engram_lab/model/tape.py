"""Hooks that write one pass through a model on a tape: its stream, and what the head saw."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from engram_lab.model.anatomy import READ_OUTS, Anatomy

KEPT = 4  # last positions of which the head computes logits while a tape runs


class Tape:
    """The residual stream of one pass, filled layer by layer.

    Attributes:
        stream: layer batch seq hidden; None before the first block.
        updates: what each memory added to the stream, batch seq hidden, by block.
        head_input: what the head was given at the last positions.
        head_output: what it made of them.
    """

    def __init__(self, anatomy: Anatomy, shape: tuple[int, int], dtype: torch.dtype | None):
        """An empty tape.

        Args:
            anatomy: the parts that report.
            shape: batch and seq of the pass.
            dtype: floating dtype to keep; None keeps the model's.
        """
        self.anatomy, self.shape, self.dtype = anatomy, shape, dtype
        self.depth = len(anatomy.blocks)
        self.filled: set[int] = set()
        self.stream: Tensor | None = None
        self.updates: dict[int, Tensor] = {}
        self.head_input: Tensor | None = None
        self.head_output: Tensor | None = None

    def keep(self, layer: int, value: object) -> None:
        """Write the stream at one layer.

        Raises:
            ValueError: if it is not [batch seq hidden], or that layer is written already.
        """
        if not isinstance(value, Tensor) or value.dim() != 3 or value.shape[:2] != self.shape:
            seen = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"the stream that {self._name(layer)} reads must be [batch seq hidden] with batch "
                f"and seq {self.shape}; got {seen}. Of several residual branches, those that a "
                f"module called {' or '.join(READ_OUTS)} collapses are known."
            )
        if layer in self.filled and layer < self.depth:  # some models norm their embedding, too
            raise ValueError(
                f"{self._name(layer)} was called twice in one pass; a model that loops over its "
                "blocks has no single stream at a layer"
            )
        if self.stream is None:
            dtype = self.dtype or value.dtype
            self.stream = value.new_empty((self.depth + 1, *value.shape), dtype=dtype)
        self.stream[layer] = value.detach()
        self.filled.add(layer)

    def finished(self) -> Tensor:
        """The whole stream.

        Raises:
            ValueError: if a part did not report, so that it is not the one the model runs.
        """
        missing = [layer for layer in range(self.depth + 1) if layer not in self.filled]
        if missing or self.stream is None:
            raise ValueError(
                f"{self._name(missing[0])} was not called by the model. Give the modules that it "
                "calls: Anatomy(blocks=..., norm=...)."
            )
        return self.stream

    @contextmanager
    def running(self, memories: Mapping[int, nn.Module]) -> Iterator[None]:
        """Write what a pass inside the `with` block shows; hooks are taken away on exit.

        Args:
            memories: `Engram` modules by block.
        """
        handles: list[RemovableHandle] = []
        try:
            for layer, block in enumerate(self.anatomy.blocks):
                handles.append(self._watch_block(layer, block))
            handles.append(self._watch_end())
            for layer, memory in memories.items():
                handles.append(self._watch_memory(layer, memory))
            if self.anatomy.head is not None:
                handles += self._watch_head(self.anatomy.head)
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _watch_block(self, layer: int, block: nn.Module) -> RemovableHandle:
        own = next((name for name in READ_OUTS if hasattr(block, name)), None)
        if own is None:
            return self._watch_input(layer, block)
        index = READ_OUTS[own]
        return getattr(block, own).register_forward_hook(
            lambda module, args, output: self.keep(layer, output[index])
        )

    def _watch_end(self) -> RemovableHandle:
        """What the final norm reads; without one, what the last block gives."""
        if self.anatomy.norm is not None:
            return self._watch_input(self.depth, self.anatomy.norm)
        return self.anatomy.blocks[-1].register_forward_hook(
            lambda module, args, output: self.keep(
                self.depth, output[0] if isinstance(output, tuple) else output
            )
        )

    def _watch_input(self, layer: int, module: nn.Module) -> RemovableHandle:
        # ahead of other hooks: an update that such a hook adds counts as made inside the block
        return module.register_forward_pre_hook(
            lambda module, args, kwargs: self.keep(layer, _first(args, kwargs)),
            with_kwargs=True,
            prepend=True,
        )

    def _watch_memory(self, layer: int, memory: nn.Module) -> RemovableHandle:
        def note(module: nn.Module, args: tuple, output: Tensor) -> None:
            self.updates[layer] = output.detach().squeeze(2)  # one branch

        return memory.hook_out.register_forward_hook(note)

    def _watch_head(self, head: nn.Module) -> list[RemovableHandle]:
        """The head computes the last positions alone, so that no layer's worth of logits is made.

        Heads work position by position, so what they compute is what they would have computed.
        """

        def before(module: nn.Module, args: tuple) -> tuple:
            self.head_input = args[0][:, -KEPT:].detach()
            return (self.head_input, *args[1:])

        def after(module: nn.Module, args: tuple, output: Tensor) -> None:
            self.head_output = output.detach()

        return [head.register_forward_pre_hook(before), head.register_forward_hook(after)]

    def _name(self, layer: int) -> str:
        return f"block {layer}" if layer < self.depth else "the final norm"


def _first(args: tuple, kwargs: dict[str, object]) -> object:
    """The stream among the arguments of a module."""
    return args[0] if args else kwargs.get("hidden_states", next(iter(kwargs.values()), None))
