"""What decoding remembers: keys and values, the memory's history, and document ids."""

import torch
from jaxtyping import Int, Int64
from torch import Tensor
from transformers import DynamicCache

from engram_lab.memory.state import MemoryState
from engram_lab.model.config import EngramLMConfig


class EngramCache(DynamicCache):
    """A `DynamicCache` whose crop, reorder, repeat and select also reach the memory's state.

    The history belongs to the call, never to the model, so two generations on one model cannot
    meet.

    Attributes:
        memory: history of canonical ids and convolution tails; None for a model without memory.
        document_ids: documents of the positions seen so far, or None when none were given.
    """

    def __init__(self, config: EngramLMConfig, *, rewind: int = 16):
        """An empty cache.

        Args:
            config: of the model.
            rewind: most positions `crop` can take back at once where a memory has a convolution.
        """
        super().__init__(config=config)
        self.memory = MemoryState(config.engram, rewind=rewind) if config.engram else None
        self.document_ids: Int64[Tensor, "batch seq"] | None = None

    def extend_documents(
        self, document_ids: Int64[Tensor, "batch seq"] | None, length: int
    ) -> Int64[Tensor, "batch total"] | None:
        """Append the documents of a chunk of `length` positions; all of them so far, or None.

        Raises:
            ValueError: if some chunks of a sequence come with document ids and others without.
        """
        past = self.get_seq_length()
        if past and (self.document_ids is None) != (document_ids is None):
            raise ValueError(
                "document_ids must be given for every chunk of a cached sequence or for none; "
                f"the {past} cached positions have "
                f"{'none' if self.document_ids is None else 'some'}"
            )
        if document_ids is not None:
            earlier = [] if self.document_ids is None else [self.document_ids]
            self.document_ids = torch.cat([*earlier, document_ids], dim=1)
        return self.document_ids

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last positions: `tokens_to_remove` is their negative count."""
        length = self.get_seq_length() + tokens_to_remove
        if self.memory is not None and tokens_to_remove < 0:
            self.memory.crop(length)  # first, since it refuses what it cannot rewind
        super().crop(tokens_to_remove)
        if self.document_ids is not None:
            self.document_ids = self.document_ids[:, :length]

    def reorder_cache(self, beam_idx: Int[Tensor, "batch"]) -> None:
        """Let row i continue row `beam_idx[i]`, as beam search asks."""
        super().reorder_cache(beam_idx)
        if self.memory is not None:
            self.memory.reorder(beam_idx.long())
        if self.document_ids is not None:
            self.document_ids = self.document_ids.index_select(0, beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row `repeats` times in place."""
        super().batch_repeat_interleave(repeats)
        if self.memory is not None:
            self.memory.repeat(repeats)
        if self.document_ids is not None:
            self.document_ids = self.document_ids.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: Int[Tensor, "kept"]) -> None:
        """Keep only the rows `indices`."""
        super().batch_select_indices(indices)
        if self.memory is not None:
            self.memory.select(indices.long())
        if self.document_ids is not None:
            self.document_ids = self.document_ids[indices]

    def reset(self) -> None:
        """Forget everything, keep the object."""
        super().reset()
        if self.memory is not None:
            self.memory.crop(0)
        self.document_ids = None
