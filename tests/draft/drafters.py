"""Tiny targets, and every drafter of the floor for them, by name."""

from collections.abc import Callable

import torch

from engram_lab.draft.bigram import BigramCounts, BigramDrafter, with_bigram_bias
from engram_lab.draft.config import DraftConfig
from engram_lab.draft.drafter import Drafter
from engram_lab.draft.eagle import EagleConfig, EagleDrafter
from engram_lab.draft.lookup import NgramLookup
from engram_lab.draft.memory_head import MemoryDrafter, MemoryRows
from engram_lab.draft.mtp import MtpConfig, MtpDrafter
from engram_lab.draft.plain import SmallModelDrafter
from engram_lab.draft.proposer import Proposer
from engram_lab.draft.released import ReleasedDrafter
from engram_lab.draft.released_config import quick
from engram_lab.draft.target import Target
from engram_lab.model import presets
from engram_lab.model.modeling import EngramLM
from engram_lab.tokens.compression import VocabCompression

VOCAB = 40
BLOCK = 3


def tiny_lm(*, memory: bool = True, vocab_size: int = VOCAB, seed: int = 0) -> EngramLM:
    config = presets.tiny(vocab_size)
    config = config if memory else config.replace(engram=None)
    torch.manual_seed(seed)
    return EngramLM(config, VocabCompression.identity(vocab_size)).eval()


def block_drafter(model: EngramLM, **changes: object) -> Drafter:
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "target_depth": 2,
        "target_layer_ids": (0,),
        "mask_token_id": VOCAB - 1,
        "block_size": BLOCK,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_size": 8,
        "intermediate_size": 32,
    }
    torch.manual_seed(1)
    drafter = Drafter(DraftConfig(**shape | changes), Target(model, (0,)))
    if drafter.markov_head is not None:  # a fresh head is silent
        torch.nn.init.normal_(drafter.markov_head.markov_w2.weight, std=0.5)
    return drafter


def chain_shape() -> dict[str, int]:
    return {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "target_depth": 2,
        "block_size": BLOCK,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_size": 8,
        "intermediate_size": 32,
    }


def eagle(model: EngramLM, **changes: object) -> EagleDrafter:
    torch.manual_seed(6)
    shape = {"target_layer_ids": (-1, 0)} | chain_shape() | changes
    return EagleDrafter(EagleConfig(**shape), Target(model, shape["target_layer_ids"]))


def mtp(model: EngramLM, **changes: object) -> MtpDrafter:
    torch.manual_seed(7)
    return MtpDrafter(MtpConfig(**chain_shape() | changes), Target(model))


def with_rows(model: EngramLM) -> MemoryDrafter:
    """DSpark that reads a table of its own, whatever the target has."""
    plain = block_drafter(model, markov_rank=4, confidence=True)
    drafter = MemoryDrafter(plain.config, plain.target, MemoryRows(tiny_lm(seed=8)))
    torch.nn.init.normal_(drafter.markov_head.markov_w2.weight, std=0.5)
    return drafter


def released(model: EngramLM, **changes: object) -> ReleasedDrafter:
    """A drafter in production form, with a window shorter than the prompts."""
    torch.manual_seed(9)
    shape = {"block_size": BLOCK, "num_hidden_layers": 2, "sliding_window": 4} | changes
    config = quick(
        vocab_size=VOCAB, hidden_size=32, target_depth=2, mask_token_id=VOCAB - 1, **shape
    )
    drafter = ReleasedDrafter(config, Target(model, config.target_layer_ids, tap=config.tap))
    if drafter.markov_head is not None:
        torch.nn.init.normal_(drafter.markov_head.markov_w2.weight, std=0.5)
    return drafter


def bigram_counts(vocab_size: int = VOCAB) -> BigramCounts:
    ids = torch.randint(vocab_size, (4, 50), generator=torch.Generator().manual_seed(2))
    return BigramCounts.from_documents(ids, vocab_size)


def dspark(head: str) -> Callable[[EngramLM], Proposer]:
    return lambda model: block_drafter(model, markov_rank=4, markov_head_type=head, confidence=True)


DRAFTERS: dict[str, Callable[[EngramLM], Proposer]] = {
    "dspark vanilla": dspark("vanilla"),
    "dspark gated": dspark("gated"),
    "dspark rnn": dspark("rnn"),
    "dspark with rows": with_rows,
    "released v4": lambda model: released(model, tap="raw_output"),
    "released v4.1": released,
    "dflash anchor first": block_drafter,
    "dflash masks only": lambda model: block_drafter(model, sample_from_anchor=False),
    "eagle": eagle,
    "mtp": mtp,
    "small model": lambda model: SmallModelDrafter(
        tiny_lm(memory=False, seed=3), Target(model), block_size=BLOCK
    ),
    "small model with memory": lambda model: SmallModelDrafter(
        tiny_lm(seed=4), Target(model), block_size=BLOCK
    ),
    "look-up": lambda model: NgramLookup(block_size=BLOCK),
    "bigram": lambda model: BigramDrafter(bigram_counts(), Target(model), block_size=BLOCK),
    "bigram bias": lambda model: with_bigram_bias(block_drafter(model), bigram_counts(), 1.0),
}
