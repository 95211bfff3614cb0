"""E1: with total and active parameters fixed, how to split the sparse ones between experts and memory.

Five sweeps: the curve on D8 (half phrases, half chains), the same curve on text, three of its points
on other shares and on D1, and the controls at one ratio. Points that are one run (the ends of the
controls lie on the curve) train once, since checkpoints are named by their config.

Source: Engram paper, section 3.1 and figure 3 left.
"""

from dataclasses import replace
from typing import Any

from engram_lab.experiments.sweep import Sweep
from engram_lab.model.budget import allocate, spend_on_ffn
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.presets import full, tiny, workshop
from engram_lab.probes.allocation import final_loss
from engram_lab.scales import pick
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import vocab_size

CONTROL_RATIO = 0.75
ARMS = ("experts", "engram", "neighbour", "wide_ffn")


def allocation_run(
    allocation_ratio: float, seed: int, *, corpus: str = "d8", static_share: float = 0.5
) -> RunConfig:
    """One point of the curve: the preset's budget, split at a ratio, on one corpus.

    Raises:
        ValueError: if the budget of the preset cannot be split like that.
    """
    data = corpus_of(corpus, static_share)
    model = allocate(preset(data), allocation_ratio)
    return RunConfig(model=model, data=data, train=training(), seed=seed)


def text_run(allocation_ratio: float, seed: int) -> RunConfig:
    """A point of the curve on the shipped text."""
    return allocation_run(allocation_ratio, seed, corpus="text")


def share_run(static_share: float, allocation_ratio: float, seed: int) -> RunConfig:
    """A point of the curve on D8 with another share of phrases."""
    return allocation_run(allocation_ratio, seed, static_share=static_share)


def phrasebook_run(allocation_ratio: float, seed: int) -> RunConfig:
    """A point of the curve on D1."""
    return allocation_run(allocation_ratio, seed, corpus="d1")


def control_run(arm: str, seed: int) -> RunConfig:
    """One arm of the controls on D8.

    Args:
        arm: "experts" (ratio 1), "engram" (ratio `CONTROL_RATIO`), "neighbour" (the same, each
            sequence reading the rows of its neighbour) or "wide_ffn" (the memory's parameters in the
            shared expert: the same total, more active parameters).

    Raises:
        ValueError: on another arm.
    """
    if arm not in ARMS:
        raise ValueError(f"arm must be one of {', '.join(ARMS)}; got {arm!r}")
    run = allocation_run(1.0 if arm == "experts" else CONTROL_RATIO, seed)
    if arm == "neighbour":
        memory = replace(run.model.engram, addresses="neighbour")
        return replace(run, model=run.model.replace(engram=memory))
    return replace(run, model=spend_on_ffn(run.model)) if arm == "wide_ffn" else run


def preset(data: DataConfig) -> EngramLMConfig:
    """Experts of ratio 1 and template of the memory, for the scale in force."""
    return pick(tiny=tiny, workshop=workshop, full=full)(vocab_size(data))


def corpus_of(corpus: str, static_share: float) -> DataConfig:
    """Corpus of a run, for the scale in force."""
    train, evaluate = pick(
        tiny=(4_000, 1_000), workshop=(3_000_000, 50_000), full=(100_000_000, 500_000)
    )
    return DataConfig(
        corpus=corpus,
        static_share=static_share,
        train_tokens=train,
        eval_tokens=evaluate,
        tokenizer=pick(tiny="bpe4k", workshop="bpe4k", full="bpe16k"),
    )


def training() -> TrainConfig:
    """How every arm is trained, for the scale in force."""
    return pick(
        tiny=TrainConfig(batch_size=4, seq_len=32, steps=20, device="cpu"),
        workshop=TrainConfig(batch_size=16, seq_len=128),
        full=TrainConfig(batch_size=64, seq_len=512, optimizer="muon"),
    )


def curve_grid() -> dict[str, Any]:
    """Ratios of the whole curve, and seeds."""
    ratios = pick(
        tiny=(0.0, 0.75, 1.0),
        workshop=(0.0, 0.25, 0.5, 0.75, 0.9, 1.0),
        full=(0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0),
    )
    return {"allocation_ratio": ratios} | seeds()


def three_ratios() -> dict[str, Any]:
    """Enough of the curve for a parabola, and seeds."""
    ratios = pick(tiny=(0.0, 0.75, 1.0), workshop=(0.25, 0.75, 1.0), full=(0.4, 0.8, 1.0))
    return {"allocation_ratio": ratios} | seeds()


def share_grid() -> dict[str, Any]:
    """Three ratios for a corpus with few phrases and one with many."""
    return {"static_share": (0.2, 0.8)} | three_ratios()


def control_grid() -> dict[str, Any]:
    """All arms, and seeds."""
    return {"arm": ARMS} | seeds()


def seeds() -> dict[str, Any]:
    """Seeds of every arm, the same for all."""
    return {"seed": pick(tiny=(0,), workshop=(0, 1, 2), full=(0, 1))}


ENGRAM_ALLOCATION = Sweep(
    name="engram_allocation", grid=curve_grid, configure=allocation_run, measure=final_loss
)
ENGRAM_ALLOCATION_TEXT = Sweep(
    name="engram_allocation_text", grid=curve_grid, configure=text_run, measure=final_loss
)
ENGRAM_ALLOCATION_SHARES = Sweep(
    name="engram_allocation_shares", grid=share_grid, configure=share_run, measure=final_loss
)
ENGRAM_ALLOCATION_D1 = Sweep(
    name="engram_allocation_d1", grid=three_ratios, configure=phrasebook_run, measure=final_loss
)
ENGRAM_ALLOCATION_CONTROLS = Sweep(
    name="engram_allocation_controls", grid=control_grid, configure=control_run, measure=final_loss
)
