"""E5, E6 and E11, depth: are predictions ready earlier with memory, as if layers were deeper?

Narrow models of eight blocks on a fact book (D3) that they can learn by heart: pure experts, the
hybrid of the same total and active parameters, the control whose rows never fitted its text, and
experts with one more block (more parameters), which gives "deeper" a unit. `ENGRAM_LENS` is their
logit lens, `ENGRAM_CKA` and its `_ALIGNMENT` and `_GAIN` compare layers with those of pure experts
at the last tokens of names, also of another seed of pure experts, as the null. `ENGRAM_ENTITY` asks
from which layer on the state at those tokens tells whose name it is.

Source: Engram paper, section 6.1 and figure 4; section 6.2 and table 3.
"""

from dataclasses import dataclass

from engram_lab.experiments.catalog.engram_allocation import base_model
from engram_lab.experiments.catalog.engram_head_to_head import facts
from engram_lab.experiments.catalog.memory_arms import arm_run, seeds
from engram_lab.experiments.sweep import Point, Sweep, product
from engram_lab.memory.config import EngramConfig
from engram_lab.model.config import EngramLMConfig, MoEConfig
from engram_lab.probes.entity_sets import trained_entities
from engram_lab.probes.trained_depth import (
    ModelPair,
    pair_alignment,
    pair_gain,
    pair_map,
    trained_lens,
)
from engram_lab.scales import pick
from engram_lab.training.config import RunConfig
from engram_lab.training.fit import load_or_fit

MODELS = ("experts", "engram", "neighbour", "deeper")
COMPARISONS = ("engram", "seed", "neighbour", "deeper")


@dataclass(frozen=True, kw_only=True)
class PairConfig:
    """Two runs of one corpus, to be compared layer by layer.

    Attributes:
        plain: pure experts.
        other: what is compared with them.
    """

    plain: RunConfig
    other: RunConfig


def depth_model() -> EngramLMConfig:
    """Narrow and deep, at ratio 1 with the template of the memory, at the scale in force."""
    return base_model("d1").replace(
        hidden_size=pick(tiny=32, workshop=96, full=512),
        num_hidden_layers=pick(tiny=4, workshop=8, full=16),
        moe=pick(
            tiny=MoEConfig(n_routed_experts=8, topk=2, expert_width=16, shared_width=48),
            workshop=MoEConfig(n_routed_experts=16, topk=2, expert_width=32, shared_width=96),
            full=MoEConfig(n_routed_experts=64, topk=4, expert_width=256, shared_width=512),
        ),
        engram=EngramConfig(
            layer_ids=(1,),
            n_head_per_ngram=pick(tiny=2, workshop=4, full=8),
            n_embed_per_ngram=pick(tiny=16, workshop=32, full=256),
        ),
    )


def depth_run(model: str, seed: int) -> RunConfig:
    """Config of one model of the depth experiments.

    Args:
        model: one of `MODELS`.
        seed: of weights and order of batches.
    """
    base = depth_model()
    if model == "deeper":
        base, model = base.replace(num_hidden_layers=base.num_hidden_layers + 1), "experts"
    data = facts(pick(tiny=20, workshop=500, full=10_000))
    return arm_run(data, model, seed, base=base)


def load_pair(config: PairConfig, *, fresh: bool = False) -> ModelPair:
    """Both models of a pair, trained where they are not stored.

    Args:
        config: of both.
        fresh: train anew what is stored, too.
    """
    plain, other = (load_or_fit(run, fresh=fresh) for run in (config.plain, config.other))
    return ModelPair(plain=plain, other=other)


def _pair(comparison: str, seed: int) -> PairConfig:
    """Pure experts of a seed, and the model compared; "seed" stands for experts of the next one."""
    if comparison == "seed":
        other = depth_run("experts", (seed + 1) % max(2, len(seeds())))
    else:
        other = depth_run(comparison, seed)
    return PairConfig(plain=depth_run("experts", seed), other=other)


def _models() -> list[Point]:
    return product(model=MODELS, seed=seeds())


def _pairs() -> list[Point]:
    return product(comparison=COMPARISONS, seed=seeds())


ENGRAM_LENS = Sweep(name="engram_lens", grid=_models, configure=depth_run, measure=trained_lens)
ENGRAM_CKA = Sweep(
    name="engram_cka", grid=_pairs, configure=_pair, measure=pair_map, execute=load_pair
)
ENGRAM_CKA_ALIGNMENT = Sweep(
    name="engram_cka_alignment",
    grid=_pairs,
    configure=_pair,
    measure=pair_alignment,
    execute=load_pair,
)
ENGRAM_CKA_GAIN = Sweep(
    name="engram_cka_gain", grid=_pairs, configure=_pair, measure=pair_gain, execute=load_pair
)
ENGRAM_ENTITY = Sweep(
    name="engram_entity", grid=_models, configure=depth_run, measure=trained_entities
)
