"""The frozen models that drafting experiments draft for, and the prompts they answer.

`text_target` has four blocks and reads three kinds of real text: country profiles (structured),
Python (code) and novels (prose). `large_target` is large enough to be worth drafting for on a CPU;
it reads country profiles alone, which are predictable.
"""

from dataclasses import fields, replace

from engram_lab.draft.config import DraftConfig, default_taps
from engram_lab.draft.eagle import EagleConfig
from engram_lab.draft.mtp import MtpConfig
from engram_lab.memory.config import EngramConfig
from engram_lab.model.config import EngramLMConfig
from engram_lab.scales import pick
from engram_lab.tokens.tokenizer import RESERVED, load_tokenizer
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.draft_data import AnswerConfig

DOMAINS = {"structured": "countries", "code": "python_code", "prose": "novels"}
"""Kinds of text, and the part of the bundle that stands for each."""
TOKENIZER = "bpe4k"
MASK_ID = RESERVED.index("<mask>")


def text_target(seed: int) -> RunConfig:
    """A dense model of four blocks on all three kinds of text.

    Args:
        seed: of its weights and the order of its batches.
    """
    model = EngramLMConfig(
        vocab_size=load_tokenizer(TOKENIZER).vocab_size,
        hidden_size=pick(tiny=32, workshop=128, full=512),
        num_hidden_layers=pick(tiny=4, workshop=4, full=12),
        num_attention_heads=pick(tiny=2, workshop=4, full=8),
        intermediate_size=pick(tiny=64, workshop=352, full=1_408),
        max_position_embeddings=pick(tiny=256, workshop=512, full=2_048),
        initializer_range=pick(tiny=0.06, workshop=0.05, full=0.02),
    )
    return RunConfig(
        model=model,
        data=_data(tuple(DOMAINS.values()), pick(tiny=8_000, workshop=2_000_000, full=100_000_000)),
        train=_training(),
        seed=seed,
    )


def memory_target(seed: int) -> RunConfig:
    """`text_target` with a memory before its second block; all else is alike.

    Its total is larger by the rows and by the memory's projections.

    Args:
        seed: of its weights and the order of its batches.
    """
    rows = pick(tiny=97, workshop=24_000, full=400_000)
    memory = EngramConfig(
        layer_ids=pick(tiny=(1,), workshop=(1,), full=(1, 6)),
        engram_vocab_size=(rows, rows),
        n_head_per_ngram=pick(tiny=2, workshop=4, full=8),
        n_embed_per_ngram=pick(tiny=16, workshop=32, full=256),
    )
    plain = text_target(seed)
    return replace(plain, model=plain.model.replace(engram=memory))


def large_target(seed: int) -> RunConfig:
    """A dense model of eight blocks and twelve million parameters on country profiles.

    Args:
        seed: of its weights and the order of its batches.
    """
    model = EngramLMConfig(
        vocab_size=load_tokenizer(TOKENIZER).vocab_size,
        hidden_size=pick(tiny=32, workshop=320, full=1_024),
        num_hidden_layers=pick(tiny=4, workshop=8, full=16),
        num_attention_heads=pick(tiny=2, workshop=5, full=16),
        intermediate_size=pick(tiny=64, workshop=864, full=2_816),
        max_position_embeddings=pick(tiny=256, workshop=512, full=2_048),
        initializer_range=pick(tiny=0.06, workshop=0.03, full=0.02),
    )
    tokens = pick(tiny=8_000, workshop=1_000_000, full=100_000_000)
    return RunConfig(
        model=model, data=_data((DOMAINS["structured"],), tokens), train=_training(), seed=seed
    )


def drafter_shape(target: RunConfig, **changes: object) -> DraftConfig:
    """A block drafter of one block for a target, as wide as it.

    Args:
        target: the run whose model is drafted for.
        changes: fields of `DraftConfig` that are to differ.
    """
    model = target.model
    shape = {
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "target_depth": model.num_hidden_layers,
        "target_layer_ids": default_taps(model.num_hidden_layers),
        "mask_token_id": MASK_ID,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_attention_heads,
        "head_size": model.head_size,
        "intermediate_size": 2 * model.hidden_size,
        "block_size": pick(tiny=4, workshop=7, full=7),
    }
    return DraftConfig(**(shape | changes))


def chain_shape(
    kind: type[EagleConfig] | type[MtpConfig], target: RunConfig, **changes: object
) -> EagleConfig | MtpConfig:
    """A drafter of one block that reads its own output, as large as a block drafter.

    Args:
        kind: class of its config.
        target: the run whose model is drafted for.
        changes: fields of the config that are to differ.
    """
    block = drafter_shape(target)
    names = {field.name for field in fields(kind)}
    shape = {name: value for name, value in vars(block).items() if name in names}
    return kind(**(shape | changes))


def small_model(seed: int) -> RunConfig:
    """A model of one block that drafts for `text_target`, trained on the same text.

    Args:
        seed: of its weights and the order of its batches.
    """
    target = text_target(seed)
    model = target.model.replace(
        hidden_size=pick(tiny=16, workshop=64, full=256),
        num_hidden_layers=1,
        intermediate_size=pick(tiny=32, workshop=176, full=704),
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return replace(target, model=model)


def training_answers(**changes: object) -> AnswerConfig:
    """Texts that drafters are trained on, of all kinds, answered by the target.

    Args:
        changes: fields of `AnswerConfig` that are to differ.
    """
    settings = {
        "rows": pick(tiny=16, workshop=4_000, full=200_000),
        "prompt_tokens": 16,
        "answer_tokens": pick(tiny=16, workshop=48, full=240),
    }
    return AnswerConfig(**(settings | changes))


def unseen_prompts(domain: str, **changes: object) -> AnswerConfig:
    """Prompts of one kind of text that neither target nor drafter has seen.

    Args:
        domain: a key of `DOMAINS`.
        changes: fields of `AnswerConfig` that are to differ.

    Raises:
        KeyError: if the domain is not known.
    """
    settings = {
        "rows": pick(tiny=4, workshop=48, full=500),
        "prompt_tokens": 16,
        "answer_tokens": pick(tiny=16, workshop=48, full=240),
        "source": "corpus",
        "split": "validation",
        "parts": (DOMAINS[domain],),
        "seed": 1,
    }
    return AnswerConfig(**(settings | changes))


def _data(parts: tuple[str, ...], tokens: int) -> DataConfig:
    return DataConfig(
        corpus="text",
        parts=parts,
        tokenizer=TOKENIZER,
        train_tokens=tokens,
        eval_tokens=pick(tiny=2_000, workshop=40_000, full=500_000),
    )


def _training() -> TrainConfig:
    return TrainConfig(
        batch_size=pick(tiny=8, workshop=16, full=64),
        seq_len=pick(tiny=64, workshop=128, full=1_024),
        lr=pick(tiny=3e-3, workshop=3e-3, full=6e-4),
    )
