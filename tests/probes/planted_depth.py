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

    Its head then reads the value of a fact of the book from its two words and the relation. All
    other blocks do nothing.
    """

    def __init__(self, config: FactbookConfig, *, knows: int, tells: int, blocks: int):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.embed = nn.Embedding(config.vocab_size, WIDTH)
        self.embed.weight.data = torch.randn(config.vocab_size, WIDTH, generator=random)
        one, two, four = slice(WIDTH), slice(WIDTH, 2 * WIDTH), slice(2 * WIDTH, 4 * WIDTH)
        self.blocks = nn.ModuleList([nn.Identity() for _ in range(blocks)])
        self.blocks[knows] = Shift(one, two)
        self.blocks[tells] = Shift(slice(2 * WIDTH), four)
        self.norm = nn.Identity()
        self.lm_head = nn.Linear(4 * WIDTH, config.vocab_size, bias=False)
        self._learn(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SimpleNamespace:
        hidden = self.embed(input_ids)
        hidden = torch.cat([hidden, hidden.new_zeros(*hidden.shape[:2], 3 * WIDTH)], dim=-1)
        for block in self.blocks:
            hidden = block(hidden)
        return SimpleNamespace(logits=self.lm_head(self.norm(hidden)))

    def _learn(self, config: FactbookConfig) -> None:
        book = fact_book(config)
        entity, relation = (torch.from_numpy(part) for part in np.nonzero(book.asked))
        names, lengths = torch.tensor(book.names), torch.tensor(book.lengths)
        words = [names[entity, lengths[entity] - back] for back in (1, 2)]
        relation_ids = config.token_ranges["r"].start + relation
        features = torch.zeros(len(entity), 4 * WIDTH)
        features[:, :WIDTH] = self.embed.weight[relation_ids]
        features[:, 2 * WIDTH : 3 * WIDTH] = self.embed.weight[words[0]]
        features[:, 3 * WIDTH :] = self.embed.weight[words[1]]
        features[:, WIDTH : 2 * WIDTH] = self.embed.weight[words[0]]  # the word before the relation
        values = torch.tensor(book.values)[entity, relation]
        wanted = torch.nn.functional.one_hot(values, config.vocab_size).float()
        solution = torch.linalg.lstsq(features.detach(), wanted, driver="gelsd").solution
        self.lm_head.weight.data = solution.mT.contiguous()
