"""A tiny random target with a DSpark and a DFlash, for tests of the draft theatre."""

from dataclasses import replace

import torch

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.target import Target
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.tokenizer import Tokenizer, load_tokenizer

BLOCK = 4


def company() -> tuple[Target, dict[str, Drafter], Tokenizer]:
    """Target, drafters by name, tokenizer; the head of the DSpark says something."""
    torch.manual_seed(0)
    tokenizer = load_tokenizer("byte")
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = EngramLMConfig(
        vocab_size=tokenizer.vocab_size,
        intermediate_size=32,
        max_position_embeddings=96,
        initializer_range=0.3,
        **shape,
    )
    target = Target(EngramLM(config).eval(), (0,))
    flash = DraftConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        target_depth=2,
        target_layer_ids=(0,),
        mask_token_id=tokenizer.mask_id,
        block_size=BLOCK,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_size=8,
        intermediate_size=32,
    )
    spark = Drafter(replace(flash, markov_rank=4, confidence=True), target).eval()
    torch.nn.init.normal_(spark.markov_head.markov_w2.weight)
    return target, {"DSpark": spark, "DFlash": Drafter(flash, target).eval()}, tokenizer
