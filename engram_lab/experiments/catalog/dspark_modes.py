"""E31, the teaching example: replies of several modes, where it is known what a drafter can keep.

Targets learn D9; block drafters with no sequential head, a Markov head and a recurrent head learn
from the targets' own text. Behind an `ask` cue the Markov head should keep the mode, the parallel
drafter only one time in `modes`; across the bridge behind `tell` only the recurrent head should.

Source: DSpark paper, section 3.1 (the two-mode example), with a bridge added.
"""

from typing import Any

import pandas as pd

from engram_lab.draft.config import DraftConfig
from engram_lab.experiments.catalog.dspark_targets import MASK_ID
from engram_lab.experiments.catalog.memory_arms import seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.model.config import EngramLMConfig
from engram_lab.probes.modes import mode_frame
from engram_lab.scales import pick
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import language, vocab_size
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig
from engram_lab.training.draft_fit import TrainedDrafter, load_or_fit_drafter
from engram_lab.training.draft_loss import DraftLossConfig

BLOCK = 4
RANK = 16
HEADS: dict[str, dict[str, Any]] = {
    "parallel_same": {},
    "dspark": {"markov_rank": RANK},
    "dspark_gated": {"markov_rank": RANK, "markov_head_type": "gated"},
    "dspark_rnn": {"markov_rank": RANK, "markov_head_type": "rnn"},
}


def modes_target(modes: int, seed: int) -> RunConfig:
    """A small model of D9.

    Args:
        modes: replies to each cue.
        seed: of its weights and the order of its batches.
    """
    data = DataConfig(
        corpus="d9",
        modes=modes,
        cues=pick(tiny=4, workshop=16, full=64),
        document_length=64,
        train_tokens=pick(tiny=8_000, workshop=1_000_000, full=10_000_000),
        eval_tokens=pick(tiny=1_000, workshop=20_000, full=200_000),
    )
    model = EngramLMConfig(
        vocab_size=vocab_size(data),
        hidden_size=pick(tiny=32, workshop=64, full=256),
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=pick(tiny=64, workshop=176, full=704),
        max_position_embeddings=256,
        initializer_range=0.05,
    )
    train = TrainConfig(batch_size=pick(tiny=8, workshop=32, full=64), seq_len=64, lr=3e-3)
    return RunConfig(model=model, data=data, train=train, seed=seed)


def modes_run(drafter: str, modes: int, seed: int) -> DraftRunConfig:
    """Config of a drafter for D9.

    Args:
        drafter: a key of `HEADS`.
        modes: replies to each cue.
        seed: of target and drafter.

    Raises:
        KeyError: if the drafter is not known.
    """
    target = modes_target(modes, seed)
    model = target.model
    shape = DraftConfig(
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        target_depth=model.num_hidden_layers,
        target_layer_ids=(0, 1),
        mask_token_id=MASK_ID,
        block_size=BLOCK,
        num_attention_heads=model.num_attention_heads,
        num_key_value_heads=model.num_attention_heads,
        head_size=model.head_size,
        intermediate_size=2 * model.hidden_size,
        **HEADS[drafter],
    )
    return DraftRunConfig(
        target=target,
        drafter=shape,
        loss=DraftLossConfig(num_anchors=pick(tiny=2, workshop=16, full=32), loss_decay_gamma=None),
        answers=AnswerConfig(
            rows=pick(tiny=16, workshop=2_000, full=20_000), prompt_tokens=4, answer_tokens=48
        ),
        train=draft_train_config(
            batch_size=pick(tiny=4, workshop=32, full=64),
            steps=pick(tiny=3, workshop=600, full=10_000),
            lr=3e-3,
        ),
        seed=seed,
    )


def kept_modes(trained: TrainedDrafter) -> pd.DataFrame:
    """`probes.modes.mode_frame` of a drafter on unseen documents of its language."""
    run = trained.target_run
    rules = language(run.config.data)
    return mode_frame(trained.drafter, trained.target, rules, run.validation)


def _grid() -> list[Point]:
    return product(
        drafter=tuple(HEADS), modes=pick(tiny=(2,), workshop=(2, 4), full=(2, 4)), seed=seeds()
    )


DSPARK_MODES = Sweep(
    name="dspark_modes",
    grid=_grid,
    configure=modes_run,
    measure=kept_modes,
    execute=load_or_fit_drafter,
)
