"""A model that knows at a chosen depth whose name it read, and tells it at another."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from engram_lab.tokens.factbook import FactbookConfig, fact_book

WIDTH = 48  # of an embedding: many more than words, so that random ones are nearly orthogonal


class Shift(nn.Module):
    """Adds what some features were one position earlier to other features."""

    def __init__(self, source: slice, target: slice):
        super().__init__()
        self.source, self.target = source, target

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden.clone()
        hidden[:, 1:, self.target] += hidden[:, :-1, self.source].clone()
        return hidden


class PlantedReader(nn.Module):
    """Block `knows` brings the word before to each word; block `tells` brings both to the next.

    Its head then looks the value of a fact up by the two words and the relation. Other blocks do
    nothing.
    """

    def __init__(self, config: FactbookConfig, *, knows: int, tells: int, blocks: int):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.embed = nn.Embedding(config.vocab_size, WIDTH)
        vectors = torch.randn(config.vocab_size, WIDTH, generator=random)
        self.embed.weight.data = nn.functional.normalize(vectors, dim=-1)
        one, two, four = slice(WIDTH), slice(WIDTH, 2 * WIDTH), slice(2 * WIDTH, 4 * WIDTH)
        self.blocks = nn.ModuleList([nn.Identity() for _ in range(blocks)])
        self.blocks[knows] = Shift(one, two)
        self.blocks[tells] = Shift(slice(2 * WIDTH), four)
        self.norm = nn.Identity()
        self.lm_head = LookUp(config, self.embed.weight.data)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SimpleNamespace:
        hidden = self.embed(input_ids)
        hidden = torch.cat([hidden, hidden.new_zeros(*hidden.shape[:2], 3 * WIDTH)], dim=-1)
        for block in self.blocks:
            hidden = block(hidden)
        return SimpleNamespace(logits=self.lm_head(self.norm(hidden)))


class LookUp(nn.Module):
    """Logits of 9 for the value of the fact that a state spells out, and of 0 for all else."""

    def __init__(self, config: FactbookConfig, vectors: Tensor):
        super().__init__()
        self.vectors, size = vectors, config.vocab_size
        self.values = torch.zeros(size, size, size, dtype=torch.int64)
        book = fact_book(config)
        for entity, relation in np.argwhere(book.asked).tolist():
            first, second = book.names[entity, : book.lengths[entity]].tolist()[-2:]
            key = first, second, config.token_ranges["r"].start + relation
            self.values[key] = int(book.values[entity, relation])

    def forward(self, hidden: Tensor) -> Tensor:
        relation, _, second, first = (
            (part @ self.vectors.mT).argmax(-1) for part in hidden.split(WIDTH, dim=-1)
        )
        values = self.values[first, second, relation]
        return 9.0 * nn.functional.one_hot(values, len(self.vectors))
