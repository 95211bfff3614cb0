"""A small run of a drafter, and of the target it drafts for."""

from engram_lab.draft.config import DraftConfig
from engram_lab.model import presets
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig
from engram_lab.training.draft_loss import DraftLossConfig

DATA = DataConfig(corpus="d1", train_tokens=4_000, eval_tokens=1_000, document_length=48)
TARGET = RunConfig(
    model=presets.tiny(vocab_size(DATA)).replace(num_hidden_layers=3, moe=None),
    data=DATA,
    train=TrainConfig(batch_size=8, seq_len=48, steps=6),
)
ANSWERS = AnswerConfig(rows=16, prompt_tokens=4, answer_tokens=20)
SHAPE = DraftConfig(
    vocab_size=TARGET.model.vocab_size,
    hidden_size=32,
    target_depth=3,
    target_layer_ids=(0, 1),
    mask_token_id=3,
    block_size=4,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_size=16,
    intermediate_size=64,
    markov_rank=8,
    confidence=True,
)


def draft_run(**changes: object) -> DraftRunConfig:
    settings = {
        "target": TARGET,
        "drafter": SHAPE,
        "loss": DraftLossConfig(num_anchors=4),
        "answers": ANSWERS,
        "train": draft_train_config(batch_size=4, steps=4, log_every=1, checkpoint_every=2),
    }
    return DraftRunConfig(**(settings | changes))
