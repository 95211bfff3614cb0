"""Train the small target and the drafters that ship, so that the draft theatre opens at once.

    OMP_NUM_THREADS=1 python scripts/train_theatre.py

One thread, a few minutes. Writes `data/models/theatre`: weights in half precision, and `runs.json`
with configs, seeds, accepted lengths and versions. On one machine with one thread the files come
out the same every time, but for date and seconds in `runs.json`.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from engram_lab.draft.config import DraftConfig
from engram_lab.draft.generate import GenerationConfig
from engram_lab.draft.sampling import Sampling
from engram_lab.experiments.provenance import circumstances
from engram_lab.model.config import EngramLMConfig
from engram_lab.probes.acceptance import decode
from engram_lab.probes.shipped import round_to_half
from engram_lab.probes.theatre_models import save_theatre
from engram_lab.tokens.tokenizer import MASK_ID
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.draft_config import DraftRunConfig, draft_train_config
from engram_lab.training.draft_data import AnswerConfig, load_answers
from engram_lab.training.draft_fit import TrainedDrafter, fit_drafter
from engram_lab.training.draft_loss import DraftLossConfig, dflash_loss
from engram_lab.training.fit import fit

FOLDER = Path(__file__).resolve().parent.parent / "data" / "models" / "theatre"
TARGET = RunConfig(
    model=EngramLMConfig(
        vocab_size=4096,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=176,
        max_position_embeddings=256,
        initializer_range=0.05,
        tie_word_embeddings=True,
    ),
    data=DataConfig(corpus="text", parts=("countries",), train_tokens=900_000, eval_tokens=40_000),
    train=TrainConfig(batch_size=8, seq_len=128, lr=5e-3, device="cpu"),
    seed=0,
)
SHAPE = DraftConfig(
    vocab_size=4096,
    hidden_size=64,
    target_depth=3,
    target_layer_ids=(0, 1),
    mask_token_id=MASK_ID,
    block_size=7,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_size=16,
    intermediate_size=128,
)
DRAFTERS = {
    "DSpark": (replace(SHAPE, markov_rank=16, confidence=True), DraftLossConfig(num_anchors=8)),
    "DFlash": (SHAPE, dflash_loss(num_anchors=8)),
}
TEMPERATURES = (0.0, 1.0)
UNSEEN = AnswerConfig(
    rows=32, prompt_tokens=16, answer_tokens=40, source="corpus", split="validation", seed=1
)


def drafter_configs(target: RunConfig, *, rows: int, steps: int) -> dict[str, DraftRunConfig]:
    """The runs of all drafters, by name.

    Args:
        target: the run whose model is drafted for.
        rows: answers of the target that they learn from.
        steps: updates.
    """
    train = draft_train_config(batch_size=8, steps=steps, lr=3e-3, device="cpu")
    return {
        name: DraftRunConfig(
            target=target,
            drafter=shape,
            loss=loss,
            answers=AnswerConfig(rows=rows, prompt_tokens=16, answer_tokens=40),
            train=train,
        )
        for name, (shape, loss) in DRAFTERS.items()
    }


CONFIGS = drafter_configs(TARGET, rows=2_560, steps=1_200)


def accepted_lengths(trained: TrainedDrafter) -> dict[str, float]:
    """Tokens of a round on unseen prompts, the bonus counted, by temperature."""
    unseen = load_answers(trained.target_run, UNSEEN, progress=False)
    lengths = {}
    for temperature in TEMPERATURES:
        config = GenerationConfig(
            max_new_tokens=40, sampling=Sampling(temperature=temperature), whole_blocks=True
        )
        found = decode(trained.target, trained.drafter, unseen, config)
        lengths[f"{temperature:g}"] = round(found.accepted_length, 3)
    return lengths


def main() -> None:
    """Train a target, drafters for what of it is stored, and store all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=FOLDER)
    parser.add_argument("--tokens", type=int, help="fewer training tokens, for a trial")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    target, configs = TARGET, CONFIGS
    if arguments.tokens:
        target = replace(TARGET, data=replace(TARGET.data, train_tokens=arguments.tokens))
        configs = drafter_configs(target, rows=64, steps=8)
    begin = time.process_time()
    run = fit(target)
    round_to_half(run.model)
    trained = {name: fit_drafter(config, target_run=run) for name, config in configs.items()}
    cpu_seconds = round(time.process_time() - begin)
    for drafter in trained.values():
        round_to_half(drafter.drafter)
    lengths = {name: accepted_lengths(drafter) for name, drafter in trained.items()}
    save_theatre(
        arguments.output,
        trained,
        accepted_lengths=lengths,
        circumstances=circumstances(run.model) | {"cpu_seconds": cpu_seconds},
    )
    for file in sorted(path for path in arguments.output.rglob("*") if path.is_file()):
        print(f"{file.stat().st_size:9,} bytes  {file.relative_to(arguments.output)}")
    print(f"{cpu_seconds} s of CPU; last training loss {run.history['loss_nats'].iloc[-1]:.3f}")
    print(f"accepted lengths by temperature: {lengths}")


if __name__ == "__main__":
    main()
