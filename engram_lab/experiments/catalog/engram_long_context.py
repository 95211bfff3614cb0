"""E9, long context: does off-loading local patterns help retrieval over long spans?

Pure experts, the hybrid and the control with a neighbour's addresses are trained on needles (D4)
hidden in fixed phrases: filler that a memory can hold, drawn by a Zipf law and in another order
every time, so no document repeats another. The models are trained on short rows, then a short stage
makes the context of each four times longer, with a longer rotary base. All scores are those of the
extended models, with keys that no training document had.

Needles are hard to learn at this size: experts on 32 keys and 64 values in rows of 128 tokens were
at chance after a million tokens, and so they were after 0.8 and 0.9 million on 8 keys and 16 values
in rows of 64 and 48. Hence the easiest of these at workshop scale, needles in all documents, a head
tied to the embedding (copying a token is then one map for all tokens), and more tokens.

Hybrids that were trained on fewer tokens (runs of their own, since the learning rate falls to its
end in each) serve as its earlier checkpoints. The one whose loss is that of the fully trained
experts is compared at equal loss, so that a better base model cannot explain a gain.

`ENGRAM_LONG_CONTEXT` is needles by task and length, `_TAUGHT` the same with keys of training
documents (and new values), for which a memory has trained rows, `_ATTENTION` the reach of
attention, `_LOSS` the loss before the extension, by which equal loss is found. The models of real
text from the allocation experiment, not extended, are asked for tokens on which their whole context
matters (`_TEXT`) and for the reach of their attention (`_TEXT_ATTENTION`).

Source: Engram paper, section 5 and table 2.
"""

from dataclasses import replace
from functools import partial

import pandas as pd

from engram_lab.experiments.catalog.engram_allocation import allocation_run
from engram_lab.experiments.catalog.memory_arms import RATIO, arm_run, seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.model.budget import budget
from engram_lab.probes.allocation import final_loss
from engram_lab.probes.long_context import attention_reach, key_token_losses, needle_scores
from engram_lab.scales import pick
from engram_lab.training.config import DataConfig, RunConfig
from engram_lab.training.extend import ExtensionConfig, load_or_extend
from engram_lab.training.fit import TrainedRun, load_or_fit

ARMS = ("experts", "engram", "neighbour")
STRETCH = 4  # times the context grows
GRADER_RATIO = 0.9  # a model that is in neither arm picks the key tokens


def context() -> int:
    """Tokens of a row, and of a document, before the extension."""
    return pick(tiny=48, workshop=48, full=512)


def train_tokens() -> int:
    """Tokens of a full run before the extension."""
    return pick(tiny=8_000, workshop=3_200_000, full=100_000_000)


def shares() -> tuple[float, ...]:
    """Shares of the tokens at which there are hybrids, the last of them all."""
    return pick(tiny=(0.5, 1.0), workshop=(0.3, 0.6, 1.0), full=(0.3, 0.6, 1.0))


def base_run(arm: str, share: float, seed: int) -> RunConfig:
    """The run before the extension.

    Args:
        arm: "experts", "engram" or "neighbour".
        share: of the tokens.
        seed: of weights and order of batches.

    Raises:
        ValueError: if the arm is not known.
    """
    data = DataConfig(
        corpus="d4",
        filler="phrases",
        static_share=0.0,
        needle_keys=pick(tiny=8, workshop=8, full=32),
        needle_values=pick(tiny=16, workshop=16, full=64),
        document_length=context(),
        train_tokens=round(share * train_tokens()),
        eval_tokens=pick(tiny=2_000, workshop=20_000, full=500_000),
    )
    run = arm_run(data, arm, seed)
    rows = pick(tiny=4, workshop=16, full=64)
    return replace(
        run,
        model=run.model.replace(tie_word_embeddings=True),
        train=replace(run.train, seq_len=context(), batch_size=rows),
    )


def _extended(arm: str, share: float, seed: int) -> ExtensionConfig:
    tokens = pick(tiny=2_000, workshop=400_000, full=10_000_000)
    return ExtensionConfig(base=base_run(arm, share, seed), stretch=STRETCH, train_tokens=tokens)


def _grid() -> list[Point]:
    full = product(arm=ARMS, share=(1.0,), seed=seeds())
    return full + product(arm=("engram",), share=shares()[:-1], seed=seeds())


def _text(arm: str, seed: int) -> RunConfig:
    return allocation_run("text", RATIO, seed, arm=arm)


def _key_tokens(trained_run: TrainedRun) -> pd.DataFrame:
    config = trained_run.config
    grader = load_or_fit(allocation_run("text", GRADER_RATIO, 0))
    length = config.train.seq_len
    documents = trained_run.validation
    enough = documents.lengths >= length
    chosen = enough.nonzero()[0][:: pick(tiny=1, workshop=2, full=1)]
    frame = key_token_losses(
        trained_run.model, grader.model, documents.select(chosen), long=length, short=length // 8
    )
    counts = budget(config.model)
    return frame.assign(
        train_tokens=trained_run.train_tokens,
        params=counts.total,
        active_params=counts.active,
    )


def _text_grid() -> list[Point]:
    return product(arm=("experts", "engram"), seed=seeds())


ENGRAM_LONG_CONTEXT_LOSS = Sweep(
    name="engram_long_context_loss", grid=_grid, configure=base_run, measure=final_loss
)
ENGRAM_LONG_CONTEXT = Sweep(
    name="engram_long_context",
    grid=_grid,
    configure=_extended,
    measure=needle_scores,
    execute=load_or_extend,
)
ENGRAM_LONG_CONTEXT_TAUGHT = Sweep(
    name="engram_long_context_taught",
    grid=_grid,
    configure=_extended,
    measure=partial(needle_scores, taught=True),
    execute=load_or_extend,
)
ENGRAM_LONG_CONTEXT_ATTENTION = Sweep(
    name="engram_long_context_attention",
    grid=_grid,
    configure=_extended,
    measure=attention_reach,
    execute=load_or_extend,
)
ENGRAM_LONG_CONTEXT_TEXT = Sweep(
    name="engram_long_context_text",
    grid=_text_grid,
    configure=_text,
    measure=_key_tokens,
)
ENGRAM_LONG_CONTEXT_TEXT_ATTENTION = Sweep(
    name="engram_long_context_text_attention",
    grid=_text_grid,
    configure=_text,
    measure=attention_reach,
)
