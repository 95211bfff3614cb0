"""A memory with one row written by hand: it makes one token the prediction after one n-gram."""

from typing import NamedTuple

import torch

from engram_lab.memory.config import EngramConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.model.presets import tiny
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.tokenizer import Tokenizer, load_tokenizer

LAYER, ORDER, HEAD = 1, 3, 1
PROMPT, TARGET = "the king of ", "W"
PATH = f"blocks.{LAYER}.engram"


class PlantedRow(NamedTuple):
    model: EngramLM
    tokenizer: Tokenizer
    row: int


def planted_row(*, length: float = 30.0, layers: tuple[int, ...] = (LAYER,)) -> PlantedRow:
    """All rows are zero but the one that order 3, head 1 reads at the end of PROMPT."""
    torch.manual_seed(0)
    tokenizer = load_tokenizer("byte")
    engram = EngramConfig(
        layer_ids=layers, engram_vocab_size=(97, 97), n_head_per_ngram=2, n_embed_per_ngram=16
    )
    config = tiny(tokenizer.vocab_size).replace(engram=engram)
    model = EngramLM(config, VocabCompression.identity(config.vocab_size)).eval()
    memory = model.blocks[LAYER].engram
    table = (ORDER - 2) * engram.n_head_per_ngram + HEAD
    (target,) = tokenizer.encode_ids(TARGET)
    row = int(memory.hash.addresses(tokenizer.encode(PROMPT))[0, -1, table])
    with torch.no_grad():
        memory.table.weight.zero_()
        model.lm_head.weight.mul_(25)  # so that the norm in front leaves room for certainty
        memory.projection.weight.mul_(10)  # so that short rows can say much
        direction = model.lm_head.weight[target]
        column = table * engram.row_width  # the first number of the row writes the direction
        memory.projection.weight[-config.hidden_size :, column] = direction / direction.norm()
        memory.table.weight[row + memory.table.offsets[table], 0] = length
    return PlantedRow(model, tokenizer, row)
