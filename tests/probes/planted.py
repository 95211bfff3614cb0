"""Models whose answers are known: a memory written by hand, readers that follow one rule."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram_lab.memory.config import EngramConfig
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression

ROWS = 20_011  # so many that the few n-grams of a test do not collide


def silent_model(vocab_size: int, layers: tuple[int, ...] = (0,)) -> EngramLM:
    """A model that says nothing but what `plant` writes into its memories.

    Attention and feed-forward add nothing; every token has the same embedding, along the last
    direction of the residual stream; logit t is direction t of it. A row of the bigram table is
    itself the value, and the sum of its entries, along the last direction, the key: an empty row
    leaves the gate at one half, a planted one opens it.
    """
    width = -(-(vocab_size + 1) // 4) * 4
    memory = EngramConfig(
        layer_ids=layers,
        engram_vocab_size=(ROWS, 11),
        n_head_per_ngram=1,
        n_embed_per_ngram=width,
        conv=False,
    )
    config = EngramLMConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=4,
        max_position_embeddings=128,
        engram=memory,
    )
    model = EngramLM(config, VocabCompression.identity(vocab_size)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name or "gain" in name else 0.0)
        model.embed_tokens.weight[:, -1] = 1.0
        model.lm_head.weight.copy_(torch.eye(vocab_size, width))
        for engram in model.memories.values():
            key, value = engram.projection.weight.view(2, width, 2, width)[:, :, 0]
            key[-1] = 1.0
            value.copy_(torch.eye(width))
    return model


def plant(model: EngramLM, bigram: Sequence[int], answer: int, *, layer: int = 0) -> None:
    """Write into one memory that `answer` follows `bigram`, loud enough to be the first choice."""
    engram = model.memories[layer]
    ids = torch.tensor([list(bigram)])
    address = engram.hash.addresses_of(engram.hash.history(ids, engram.config.reach))[0, -1, 0]
    with torch.no_grad():
        engram.table.weight[address] = 100.0 * F.one_hot(torch.tensor(answer), engram.hidden_size)


class Follower(nn.Module):
    """Predicts what a rule says: `rule(ids so far)` gives the next id, or -1 for no opinion."""

    def __init__(self, vocab_size: int, rule: Callable[[list[int]], int]):
        super().__init__()
        self.vocab_size, self.rule = vocab_size, rule
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """Logits of 9 for the answer and 0 elsewhere."""
        logits = torch.zeros(*input_ids.shape, self.vocab_size)
        for row, ids in enumerate(input_ids.tolist()):
            for position in range(len(ids)):
                answer = self.rule(ids[: position + 1])
                if answer >= 0:
                    logits[row, position, answer] = 9.0
        return SimpleNamespace(logits=logits)


def copies(last: int) -> Callable[[list[int]], int]:
    """What followed the last so many ids before, where they stood before."""

    def rule(ids: list[int]) -> int:
        for end in range(len(ids) - 1, last - 1, -1):
            if ids[end - last : end] == ids[-last:]:
                return ids[end]
        return -1

    return rule


def knows(facts: dict[tuple[int, ...], int], last: int) -> Callable[[list[int]], int]:
    """What a dict from the last so many ids says."""
    return lambda ids: facts.get(tuple(ids[-last:]), -1)
