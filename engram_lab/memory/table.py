"""MemoryTable: addresses to rows, all tables of one layer stacked in one matrix."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from engram_lab.memory.config import EngramConfig
from engram_lab.memory.layout import layer_rows, table_layout, table_offsets


class MemoryTable(nn.Module):
    """The rows of one layer: table t owns rows `offsets[t]` to `offsets[t] + prime_t - 1`.

    Attributes:
        weight: all rows, in the config's `row_dtype`; padding rows, if any, come last and are never
            addressed.
        offsets: first row of each table.
    """

    def __init__(self, config: EngramConfig, layer_id: int):
        """Allocate and initialise the rows of `layer_id`."""
        super().__init__()
        self.sparse_grad = config.sparse_grad
        self.init_std = config.init_std
        self._offsets = table_offsets(table_layout(config)[layer_id])
        rows, dtype = layer_rows(config)[layer_id], getattr(torch, config.row_dtype)
        self.weight = nn.Parameter(torch.empty(rows, config.row_width, dtype=dtype))
        self.register_buffer("offsets", torch.tensor(self._offsets, dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the rows anew from N(0, init_std squared)."""
        if not self.weight.is_meta:
            nn.init.normal_(self.weight, std=self.init_std)

    def reset_buffers(self) -> None:
        """Write the offsets that follow from the config."""
        self.offsets.copy_(torch.tensor(self._offsets, dtype=torch.int64))

    def check_constants(self) -> None:
        """Compare the offsets with the config, after a checkpoint was loaded.

        Raises:
            ValueError: if they differ.
        """
        if self.offsets.tolist() != list(self._offsets):
            raise ValueError(
                f"offsets of the memory table must be {list(self._offsets)}; the checkpoint holds "
                f"{self.offsets.tolist()}. Load it with the config it was trained with."
            )

    def row_ids(
        self, addresses: Int64[Tensor, "batch seq table"]
    ) -> Int64[Tensor, "batch seq table"]:
        """Row of the matrix for each address: address plus the offset of its table."""
        return addresses + self.offsets

    def forward(
        self, addresses: Int64[Tensor, "batch seq table"]
    ) -> Float[Tensor, "batch seq table row"]:
        """Rows at the addresses, in storage dtype; gradients reach these rows alone and add up."""
        return F.embedding(self.row_ids(addresses), self.weight, sparse=self.sparse_grad)

    def extra_repr(self) -> str:
        """Sizes, for `print(model)`."""
        rows, width = self.weight.shape
        return (
            f"rows={rows}, row={width}, tables={len(self._offsets)}, sparse_grad={self.sparse_grad}"
        )
