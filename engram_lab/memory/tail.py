"""ConvTail: the latest convolution inputs of one layer in a decoding."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class ConvTail:
    """Ring of `reach + rewind` inputs per sequence.

    An input at position p lies in slot p modulo the size. A rewind therefore moves nothing: it only
    has to leave the `reach` inputs before the new end unoverwritten, which holds for rewinds up to
    `rewind`.
    """

    def __init__(self, like: Float[Tensor, "batch seq *channels"], *, reach: int, rewind: int):
        """Empty ring for inputs shaped and typed as `like`."""
        batch, _, *channels = like.shape
        self.reach, self.size = reach, reach + rewind
        self.slots = like.new_zeros(batch, self.size, *channels).detach()
        self.end = torch.zeros(batch, dtype=torch.int64, device="cpu")
        self.highest = torch.zeros(
            batch, dtype=torch.int64, device="cpu"
        )  # first position never written yet

    def window(
        self, values: Float[Tensor, "batch seq *channels"], start: Int64[Tensor, "batch"]
    ) -> Float[Tensor, "batch window *channels"]:
        """Inputs of the chunk at `start` behind the `reach` before it; remembers the chunk.

        Inputs before the sequence are 0.

        Raises:
            ValueError: if inputs before the chunk are missing.
        """
        if (self.end < start).any() or self._lost(start).any():
            raise ValueError(
                f"the convolution needs the {self.reach} inputs before positions {start.tolist()}; "
                f"this layer holds inputs up to {self.end.tolist()}. Pass every chunk through "
                "every layer, or start with a fresh MemoryState."
            )
        if self.reach == 0:
            return values
        before = start[:, None] + torch.arange(-self.reach, 0, device="cpu")
        past = self._take(before.clamp_min(0) % self.size)
        past = past.masked_fill(self._spread(before < 0), 0)
        self._write(values.detach(), start)
        return torch.cat([past.to(values.dtype), values], dim=1)

    def check_rewind(self, length: Int64[Tensor, "batch"], now: Int64[Tensor, "batch"]) -> None:
        """Refuse a crop to `length` that would need overwritten inputs.

        Raises:
            ValueError: naming the depth that is possible.
        """
        if ((length < now) & (length > 0) & self._lost(length)).any():
            depth = int((now - length).max())
            raise ValueError(
                f"MemoryState can take back at most rewind={self.size - self.reach} positions "
                f"where the memory has a convolution; got {depth}. Recompute the prefix with a "
                "fresh state, or build it with a larger rewind."
            )

    def crop(self, length: Int64[Tensor, "batch"]) -> None:
        """Forget inputs from `length` on."""
        self.end = torch.minimum(self.end, length)
        self.highest = torch.where(length == 0, 0, self.highest)

    def reorder(self, index: Int64[Tensor, "kept"]) -> None:
        """Let sequence i continue sequence `index[i]`."""
        self.end, self.highest = self.end[index.cpu()], self.highest[index.cpu()]
        self.slots = self.slots.index_select(0, index.to(self.slots.device))

    def copy(self) -> "ConvTail":
        """An independent ring with the same contents."""
        twin = object.__new__(ConvTail)
        twin.__dict__.update(self.__dict__)
        twin.slots = self.slots.clone()
        return twin

    def _lost(self, start: Tensor) -> Tensor:
        """Whether an input among the `reach` before `start` was overwritten."""
        return (start > 0) & ((start - self.reach).clamp_min(0) < self.highest - self.size)

    def _take(self, slots: Tensor) -> Tensor:
        rows = torch.arange(len(slots), device=self.slots.device)[:, None]
        return self.slots[rows, slots.to(self.slots.device)]

    def _write(self, values: Tensor, start: Tensor) -> None:
        seq = values.shape[1]
        kept = min(seq, self.size)
        positions = start[:, None] + torch.arange(seq - kept, seq, device="cpu")
        rows = torch.arange(len(start), device=self.slots.device)[:, None]
        slots = (positions % self.size).to(self.slots.device)
        self.slots[rows, slots] = values[:, seq - kept :].to(self.slots.dtype)
        self.end = start + seq
        self.highest = torch.maximum(self.highest, self.end)

    def _spread(self, mask: Tensor) -> Tensor:
        shape = (*mask.shape, *[1] * (self.slots.dim() - 2))
        return mask.to(self.slots.device).reshape(shape)
