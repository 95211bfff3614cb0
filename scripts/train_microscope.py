"""Train the small model that ships, so that the memory microscope opens at once.

    OMP_NUM_THREADS=1 python scripts/train_microscope.py

One thread, a few minutes. Writes `data/models/microscope`: weights in half precision, the index of
what trained each row, and `run.json` with config, seed, losses and versions. On one machine with
one thread the files come out the same every time, but for date and seconds in `run.json`.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from engram_lab.experiments.provenance import circumstances
from engram_lab.hooks import edit
from engram_lab.memory.config import EngramConfig
from engram_lab.model.config import EngramLMConfig, MoEConfig
from engram_lab.probes.row_keys import row_index_of_run
from engram_lab.probes.shipped import round_to_half, save_shipped
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.evaluate import ALL, document_losses, mean_losses
from engram_lab.training.fit import TrainedRun, fit

TARGET = Path(__file__).resolve().parent.parent / "data" / "models" / "microscope"
CONFIG = RunConfig(
    model=EngramLMConfig(
        vocab_size=4096,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.05,
        tie_word_embeddings=True,
        moe=MoEConfig(n_routed_experts=8, topk=2, expert_width=32, shared_width=64),
        engram=EngramConfig(
            layer_ids=(1,),
            engram_vocab_size=(12_000, 12_000),
            n_head_per_ngram=2,
            n_embed_per_ngram=32,
        ),
    ),
    data=DataConfig(corpus="text", train_tokens=1_500_000, eval_tokens=40_000),
    train=TrainConfig(batch_size=8, seq_len=128, lr=5e-3, device="cpu"),
    seed=0,
)


def held_out(run: TrainedRun) -> dict[str, float]:
    """Nats per token on held-out text, with the memory and with its module switched off."""

    def loss() -> float:
        frame = document_losses(run.model, run.validation, seq_len=run.config.train.seq_len)
        return round(float(mean_losses(frame)[ALL]), 4)

    losses = {"all on": loss()}
    with edit(run.model, {"blocks.*.engram.hook_out": torch.zeros_like}):
        return losses | {"memory off": loss()}


def main() -> None:
    """Train, measure what is stored, and store it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=TARGET)
    parser.add_argument("--tokens", type=int, help="fewer training tokens, for a trial")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = CONFIG
    if arguments.tokens:
        config = replace(config, data=replace(config.data, train_tokens=arguments.tokens))
    begin = time.process_time()
    run = fit(config)
    cpu_seconds = round(time.process_time() - begin)  # the text is read in them as well
    round_to_half(run.model)
    losses = held_out(run)
    save_shipped(
        arguments.output,
        run,
        row_index_of_run(run),
        losses=losses,
        circumstances=circumstances(run.model) | {"cpu_seconds": cpu_seconds},
    )
    for file in sorted(arguments.output.iterdir()):
        print(f"{file.stat().st_size:9,} bytes  {file.name}")
    print(f"{run.seconds:.0f} s of training, {cpu_seconds} s of CPU; nats per token: {losses}")


if __name__ == "__main__":
    main()
