"""The most memory that tensors took at a time, counted operation by operation, on any device."""

from collections.abc import Callable

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakBytes(TorchDispatchMode):
    """Counts the storage of every tensor that operations inside the `with` block make.

    What stood before the block counts nothing; scratch memory inside an operation is not seen.

    Attributes:
        peak: the most bytes alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._older: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Run an operation and count what it made."""
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor) and not self._known(value):
                reference = StorageWeakRef(value.untyped_storage())
                self._older[reference.cdata] = reference
        output = func(*args, **(kwargs or {}))
        for value in tree_leaves(output):
            if isinstance(value, torch.Tensor) and not self._known(value):
                storage = value.untyped_storage()
                reference = StorageWeakRef(storage)
                self._alive[reference.cdata] = (reference, storage.nbytes())
        self._alive = {key: pair for key, pair in self._alive.items() if not pair[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return output

    def _known(self, value: torch.Tensor) -> bool:
        key = value.untyped_storage()._cdata
        if key in self._alive:
            return not self._alive[key][0].expired()
        return key in self._older and not self._older[key].expired()
