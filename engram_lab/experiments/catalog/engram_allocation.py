"""E1, sparsity allocation: how should sparse parameters be split between experts and memory rows?

Total and active parameters, data and steps are held equal; only the split changes.
`ENGRAM_ALLOCATION` is the full grid on the corpus with two capacities (D8), `_TEXT` the same grid
on real text, `_SHARES` shows how the optimum moves with the share of fixed phrases, `_D1` repeats
three ratios on the phrasebook, and `_CONTROLS` asks whether the hybrid gains by what its rows say
(addresses of a neighbour) and by being sparse (a wider shared expert instead).

Source: Engram paper, section 3.1 and figure 3.
"""

from dataclasses import replace
from typing import Any

from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.memory.config import EngramConfig
from engram_lab.model.budget import allocate, spend_on_ffn
from engram_lab.model.config import EngramLMConfig, MoEConfig
from engram_lab.probes.allocation import final_loss
from engram_lab.scales import pick
from engram_lab.tokens.synthetic import PhrasebookConfig, TwoCapacitiesConfig
from engram_lab.tokens.tokenizer import load_tokenizer
from engram_lab.training.config import Corpus, DataConfig, RunConfig, TrainConfig

RATIOS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
ARMS = ("experts", "engram", "neighbour", "wide_ffn")
CONTROL_RATIO = 0.75  # the published split, which the claims test
TOPIC_ZIPF = 0.7
"""Frequent topics are learned early in every seed; equal ones all at once, at a time of luck."""


def allocation_run(
    corpus: Corpus,
    allocation_ratio: float,
    seed: int,
    *,
    static_share: float = 0.5,
    arm: str = "engram",
) -> RunConfig:
    """Config of one point: a model of the corpus's size with its sparse parameters split so.

    Args:
        corpus: "d8", "d1" or "text".
        allocation_ratio: share of the sparse parameters given to experts; 1 is pure MoE.
        seed: of weights and order of batches; the corpus does not depend on it.
        static_share: share of fixed phrases in a generated corpus.
        arm: "engram" as allocated; "experts" is ratio 1; "neighbour" reads the rows of the next
            sequence in the batch; "wide_ffn" spends the memory's parameters on a wider shared
            expert.

    Raises:
        ValueError: if the arm is not known.
    """
    if arm not in ARMS:
        raise ValueError(f"arm must be one of {', '.join(ARMS)}; got {arm!r}")
    model = allocate(base_model(corpus), 1.0 if arm == "experts" else allocation_ratio)
    if arm == "neighbour":
        model = model.replace(engram=replace(model.engram, addresses="neighbour"))
    if arm == "wide_ffn":
        model = spend_on_ffn(model)
    data = DataConfig(
        corpus=corpus,
        static_share=static_share,
        **({} if corpus == "text" else {"document_length": training(corpus).seq_len}),
        **(_two_capacities() if corpus == "d8" else {}),
        train_tokens=train_tokens(corpus),
        eval_tokens=pick(tiny=2_000, workshop=40_000 if corpus == "text" else 20_000, full=500_000),
    )
    return RunConfig(model=model, data=data, train=training(corpus), seed=seed)


def base_model(corpus: Corpus) -> EngramLMConfig:
    """Model at ratio 1 with the template of the memory, at the scale in force."""
    vocab_size = {
        "d8": lambda: TwoCapacitiesConfig(topics=topics()).vocab_size,
        "d1": lambda: PhrasebookConfig().vocab_size,
        "text": lambda: load_tokenizer("bpe4k").vocab_size,
    }[corpus]()
    return EngramLMConfig(
        vocab_size=vocab_size,
        hidden_size=pick(tiny=32, workshop=96 if corpus == "text" else 64, full=512),
        num_hidden_layers=pick(tiny=2, workshop=3, full=12),
        num_attention_heads=pick(tiny=2, workshop=4, full=8),
        initializer_range=pick(tiny=0.06, workshop=0.05, full=0.02),
        max_position_embeddings=pick(tiny=256, workshop=512, full=2048),
        moe=_experts(corpus),
        engram=_memory_template(),
    )


def _experts(corpus: Corpus) -> MoEConfig:
    """Many narrow experts on generated text (single facts), fewer and wider ones on real text."""
    text = MoEConfig(n_routed_experts=32, topk=2, expert_width=32, shared_width=96)
    generated = MoEConfig(n_routed_experts=64, topk=2, expert_width=24, shared_width=16)
    return pick(
        tiny=MoEConfig(n_routed_experts=16, topk=2, expert_width=16, shared_width=48),
        workshop=text if corpus == "text" else generated,
        full=MoEConfig(n_routed_experts=64, topk=4, expert_width=256, shared_width=512),
    )


def _memory_template() -> EngramConfig:
    """Orders 2 and 3 before the second block; on a GPU before blocks 1 and 6.

    `allocate` sets the rows.
    """
    return EngramConfig(
        layer_ids=pick(tiny=(1,), workshop=(1,), full=(1, 6)),
        n_head_per_ngram=pick(tiny=2, workshop=4, full=8),
        n_embed_per_ngram=pick(tiny=16, workshop=32, full=256),
    )


def topics() -> int:
    """Topics of D8."""
    return pick(tiny=4, workshop=32, full=32)


def _two_capacities() -> dict[str, Any]:
    """Knobs of D8: at workshop scale as many phrases as the rows of a half-and-half split."""
    return {
        "topics": topics(),
        "topic_zipf": TOPIC_ZIPF,
        "pairs": pick(tiny=20_000, workshop=8_000, full=20_000),
    }


def train_tokens(corpus: Corpus) -> int:
    """Tokens a run is trained on."""
    workshop = {"d8": 3_500_000, "d1": 700_000, "text": 700_000}[corpus]
    most = 15_000_000 if corpus == "text" else 100_000_000  # what the bundle holds
    return pick(tiny=8_000, workshop=workshop, full=most)


def training(corpus: Corpus) -> TrainConfig:
    """How a run is trained; the same for all splits."""
    rows, length = {"d8": (32, 32), "d1": (16, 64), "text": (8, 128)}[corpus]
    return TrainConfig(
        batch_size=pick(tiny=4, workshop=rows, full=64),
        seq_len=pick(tiny=64, workshop=length, full=512),
        lr=pick(tiny=3e-3, workshop=5e-3, full=1e-3),
    )


def _seeds() -> tuple[int, ...]:
    return pick(tiny=(0,), workshop=(0, 1, 2), full=(0, 1))


def _full_grid() -> list[Point]:
    ratios = pick(tiny=(0.0, 0.5, 1.0), workshop=RATIOS, full=(0.0, 0.2, *RATIOS[2:]))
    return product(allocation_ratio=ratios, seed=_seeds())


def _three_ratios() -> list[Point]:
    return product(allocation_ratio=(0.0, 0.5, 1.0), seed=_seeds())


def _shares() -> list[Point]:
    return product(static_share=(0.2, 0.8), allocation_ratio=(0.0, 0.5, 1.0), seed=_seeds())


def _controls() -> list[Point]:
    return product(arm=ARMS, seed=_seeds())


def _d8(allocation_ratio: float, seed: int) -> RunConfig:
    return allocation_run("d8", allocation_ratio, seed)


def _text(allocation_ratio: float, seed: int) -> RunConfig:
    return allocation_run("text", allocation_ratio, seed)


def _d1(allocation_ratio: float, seed: int) -> RunConfig:
    return allocation_run("d1", allocation_ratio, seed)


def _share(static_share: float, allocation_ratio: float, seed: int) -> RunConfig:
    return allocation_run("d8", allocation_ratio, seed, static_share=static_share)


def _control(arm: str, seed: int) -> RunConfig:
    return allocation_run("d8", CONTROL_RATIO, seed, arm=arm)


def _quick(allocation_ratio: float, seed: int) -> RunConfig:
    run = allocation_run("text", allocation_ratio, seed)
    tokens = pick(tiny=8_000, workshop=400_000, full=10_000_000)
    return replace(run, data=replace(run.data, train_tokens=tokens))


ENGRAM_ALLOCATION = Sweep(
    name="engram_allocation", grid=_full_grid, configure=_d8, measure=final_loss
)
ENGRAM_ALLOCATION_TEXT = Sweep(
    name="engram_allocation_text", grid=_full_grid, configure=_text, measure=final_loss
)
ENGRAM_ALLOCATION_SHARES = Sweep(
    name="engram_allocation_shares", grid=_shares, configure=_share, measure=final_loss
)
ENGRAM_ALLOCATION_D1 = Sweep(
    name="engram_allocation_d1", grid=_three_ratios, configure=_d1, measure=final_loss
)
ENGRAM_ALLOCATION_CONTROLS = Sweep(
    name="engram_allocation_controls", grid=_controls, configure=_control, measure=final_loss
)
QUICKSTART = Sweep(
    name="quickstart",
    grid=lambda: product(allocation_ratio=(1.0, 0.5, 0.0), seed=(0,)),
    configure=_quick,
    measure=final_loss,
)
