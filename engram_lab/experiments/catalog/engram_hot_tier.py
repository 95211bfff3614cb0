"""E13, the hot tier: is the loss limited by collisions of frequent n-grams?

Dense models of one size whose memory blocks share one table. `hash` is the usual memory; in
`hot_cold` a quarter of the rows belong to the most frequent n-grams of the training text, one each,
and the rest are hashed as before, with the same number of rows in all; `random_keys` gives the same
quarter to n-grams chosen without regard to frequency; `smaller` and `larger` change the rows. Table
sizes go from few to many rows for the distinct n-grams, since the published comparison covers one
region only.

Source: arXiv:2601.16531 (table 3), secondary.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from engram_lab import paths
from engram_lab.configs import fingerprint
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.memory.config import EngramConfig
from engram_lab.memory.hot import KeyDictionary, KeyIndex, add_hot_tier, share_rows
from engram_lab.memory.keys import KeyCounts, count_keys
from engram_lab.memory.layout import table_layout
from engram_lab.model.config import EngramLMConfig
from engram_lab.model.modeling import EngramLM
from engram_lab.probes.hot_tier import hot_tier_loss, random_keys
from engram_lab.scales import pick
from engram_lab.tokens.tokenizer import load_tokenizer
from engram_lab.training.config import DataConfig, RunConfig, TrainConfig
from engram_lab.training.data import load_data
from engram_lab.training.fit import TrainedRun, fit

ARMS = ("hash", "hot_cold", "random_keys")
OTHER_SIZES = {"smaller": 0.6, "larger": 1.6}
"""Rows of these arms, as shares of those of `hash`: 300K and 800K to 500K in the source."""
HOT_SHARE = 0.25
FEWEST_ROWS = 16
"""Rows of the throw-away model that gives every arm the same start."""


@dataclass(frozen=True, kw_only=True)
class HotTierRun:
    """A training run whose memory blocks share one table, with a hot tier or without.

    Attributes:
        run: the run; its memory has the hashed rows.
        hot_keys: n-grams of each order that get rows of their own; empty for none.
        chosen: "frequent" takes the most frequent ones of the training text, "random" any.
    """

    run: RunConfig
    hot_keys: tuple[int, ...] = ()
    chosen: str = "frequent"

    def __post_init__(self):
        if self.chosen not in ("frequent", "random"):
            raise ValueError(f"chosen must be frequent or random; got {self.chosen!r}")


def train_hot_tier(config: HotTierRun, *, progress: bool = True) -> TrainedRun:
    """Train a model whose memories share rows and, where asked for, have a hot tier.

    Args:
        config: what to train.
        progress: whether to show a bar.
    """
    run = config.run
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        model = hot_tier_model(config)
    steps = paths.checkpoints_dir() / f"{fingerprint(config)}.steps"
    trained = fit(run, model=model, checkpoint_dir=steps, progress=progress)
    if not trained.interrupted:
        shutil.rmtree(steps, ignore_errors=True)
    return trained


def hot_tier_model(
    config: HotTierRun, *, index: Callable[[KeyCounts], KeyIndex] = KeyDictionary
) -> EngramLM:
    """The untrained model of a run; its weights come from the global generator.

    All but the rows start alike in every arm of a seed, so that arms differ by their rows alone.

    Args:
        config: what to build.
        index: what finds the hot keys.

    Raises:
        ValueError: if the training text has fewer distinct n-grams than get rows.
    """
    data = load_data(config.run)
    backbone = EngramLM(_with_rows(config.run.model, FEWEST_ROWS), data.compression)
    model = EngramLM(config.run.model, data.compression)
    _copy_all_but_rows(backbone, model)
    memories = list(model.memories.values())
    share_rows(memories)
    if config.hot_keys:
        counts = count_keys(memories[0].hash, data.train, data.compression)
        indices = {}
        for number, (order, keys) in zip(config.hot_keys, counts.items(), strict=True):
            if config.chosen == "random":
                hot = random_keys(keys, number, seed=config.run.seed)
            else:
                hot = keys.select(keys.most_frequent(number))
            indices[order] = index(hot)
        add_hot_tier(memories[:1], indices)
        share_rows(memories)
    return model


def hot_tier_run(rows: int, arm: str, seed: int) -> HotTierRun:
    """Config of one point.

    Args:
        rows: rows per order and head of `hash`.
        arm: one of `ARMS`, "smaller" or "larger".
        seed: of weights, order of batches and random keys.

    Raises:
        ValueError: if the arm is not known.
    """
    if arm not in (*ARMS, *OTHER_SIZES):
        raise ValueError(f"arm must be one of {', '.join((*ARMS, *OTHER_SIZES))}; got {arm!r}")
    if arm in OTHER_SIZES:
        return HotTierRun(run=_training_run(round(OTHER_SIZES[arm] * rows), seed))
    if arm == "hash":
        return HotTierRun(run=_training_run(rows, seed))
    cold = _training_run(round((1 - HOT_SHARE) * rows), seed)
    freed = zip(_order_rows(_training_run(rows, seed)), _order_rows(cold), strict=True)
    heads = cold.model.engram.n_head_per_ngram
    hot_keys = tuple(round((whole - part) / heads) for whole, part in freed)
    return HotTierRun(
        run=cold, hot_keys=hot_keys, chosen="random" if arm == "random_keys" else "frequent"
    )


def _training_run(rows: int, seed: int) -> RunConfig:
    """A dense model on real text with so many rows per order and head."""
    train = TrainConfig(
        batch_size=pick(tiny=4, workshop=8, full=64),
        seq_len=pick(tiny=64, workshop=128, full=512),
        lr=pick(tiny=3e-3, workshop=5e-3, full=1e-3),
    )
    data = DataConfig(
        corpus="text",
        train_tokens=pick(tiny=8_000, workshop=500_000, full=15_000_000),
        eval_tokens=pick(tiny=2_000, workshop=40_000, full=500_000),
    )
    return RunConfig(model=_model(rows), data=data, train=train, seed=seed)


def _model(rows: int) -> EngramLMConfig:
    """Two heads of one width per order and memory blocks at the bottom, as in the source."""
    heads = 2
    return EngramLMConfig(
        vocab_size=load_tokenizer("bpe4k").vocab_size,
        hidden_size=pick(tiny=32, workshop=96, full=512),
        num_hidden_layers=pick(tiny=2, workshop=3, full=12),
        num_attention_heads=pick(tiny=2, workshop=4, full=8),
        intermediate_size=pick(tiny=64, workshop=256, full=1_536),
        initializer_range=pick(tiny=0.06, workshop=0.05, full=0.02),
        max_position_embeddings=pick(tiny=256, workshop=512, full=2_048),
        engram=EngramConfig(
            layer_ids=pick(tiny=(0, 1), workshop=(1, 2), full=(2, 4, 6)),
            engram_vocab_size=(rows, rows),
            n_head_per_ngram=heads,
            n_embed_per_ngram=heads * pick(tiny=8, workshop=16, full=64),
        ),
    )


def _with_rows(model: EngramLMConfig, rows: int) -> EngramLMConfig:
    sizes = (rows,) * len(model.engram.engram_vocab_size)
    return model.replace(engram=replace(model.engram, engram_vocab_size=sizes))


@torch.no_grad()
def _copy_all_but_rows(source: EngramLM, target: EngramLM) -> None:
    given = dict(source.named_parameters())
    for name, parameter in target.named_parameters():
        if not name.endswith(".table.weight"):
            parameter.copy_(given[name])


def _order_rows(run: RunConfig) -> list[int]:
    """Hashed rows of each order in the shared table, all heads together."""
    engram = run.model.engram
    return [sum(primes) for primes in table_layout(engram)[engram.layer_ids[0]]]


def _grid() -> list[Point]:
    """The size nearest to the published one first, with all arms; then many rows, then few."""
    sizes = pick(tiny=(400,), workshop=(8_000, 48_000, 2_000), full=(100_000, 500_000))
    seeds = pick(tiny=(0,), workshop=(0, 1, 2), full=(0, 1))
    nearest = product(rows=sizes[:1], arm=(*ARMS, *OTHER_SIZES), seed=seeds)
    return nearest + product(rows=sizes[1:], arm=ARMS, seed=seeds)


ENGRAM_HOT_TIER = Sweep(
    name="engram_hot_tier",
    grid=_grid,
    configure=hot_tier_run,
    measure=hot_tier_loss,
    execute=train_hot_tier,
)
