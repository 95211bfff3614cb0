"""Arms of one budget on any corpus: dense, experts, hybrids and the two controls.

The hybrid has the published split, three quarters of the sparse parameters for experts. On the
corpora of the allocation experiment its models, and those of pure experts and of both controls, are
the very runs of that experiment, so nothing is trained twice.
"""

from dataclasses import replace

from engram_lab.experiments.catalog.engram_allocation import base_model, training
from engram_lab.model.budget import allocate, budget, spend_on_ffn
from engram_lab.model.config import EngramLMConfig
from engram_lab.scales import pick
from engram_lab.training.config import DataConfig, RunConfig
from engram_lab.training.data import vocab_size

RATIO = 0.75
EVEN_RATIO = 0.5  # the split at which the allocation experiment has hybrids on the phrasebook
ARMS = ("dense", "experts", "engram", "engram_3x", "neighbour", "wide_ffn")
LARGER = 3  # times the rows of "engram" in "engram_3x"


def seeds() -> tuple[int, ...]:
    """Seeds of every arm, those of the allocation experiment."""
    return pick(tiny=(0,), workshop=(0, 1, 2), full=(0, 1))


def generated(corpus: str, *, workshop_tokens: int, **rules: object) -> DataConfig:
    """Data of a run on D3 or D5, documents as long as the rows it is trained on.

    Args:
        corpus: "d3" or "d5".
        workshop_tokens: tokens to train on at workshop scale.
        rules: further fields of `DataConfig`.
    """
    return DataConfig(
        corpus=corpus,
        document_length=training("d1").seq_len,
        train_tokens=pick(tiny=8_000, workshop=workshop_tokens, full=100_000_000),
        eval_tokens=pick(tiny=2_000, workshop=20_000, full=500_000),
        **rules,
    )


def arm_run(
    data: DataConfig,
    arm: str,
    seed: int,
    *,
    ratio: float = RATIO,
    base: EngramLMConfig | None = None,
) -> RunConfig:
    """Config of one arm; all arms have the active parameters, data and steps of pure experts.

    Args:
        data: what is read; its corpus decides sizes, as in the allocation experiment (D3 and D5
            have those of D1).
        arm: "dense" has no sparse parameters; "experts" is pure MoE; "engram" has the share `ratio`
            of the sparse parameters in experts and the rest in rows; "engram_3x" has three times
            the rows (its total is larger); "neighbour" reads the rows of the next sequence in the
            batch; "wide_ffn" spends the memory on a wider shared expert (more active parameters).
        seed: of weights and order of batches.
        ratio: share of the sparse parameters that experts have.
        base: model at ratio 1 with the template of the memory; None takes that of the allocation
            experiment.

    Raises:
        ValueError: if the arm is not known.
    """
    if arm not in ARMS:
        raise ValueError(f"arm must be one of {', '.join(ARMS)}; got {arm!r}")
    sized_as = data.corpus if data.corpus in ("d8", "text") else "d1"
    base = (base or base_model(sized_as)).replace(vocab_size=vocab_size(data))
    return RunConfig(model=_arm(base, arm, ratio), data=data, train=training(sized_as), seed=seed)


def _arm(base: EngramLMConfig, arm: str, ratio: float) -> EngramLMConfig:
    if arm == "dense":
        return _dense(allocate(base, 1.0))
    model = allocate(base, 1.0 if arm == "experts" else ratio)
    if arm == "wide_ffn":
        return spend_on_ffn(model)
    if arm == "neighbour":
        return model.replace(engram=replace(model.engram, addresses="neighbour"))
    if arm == "engram_3x":
        rows = tuple(LARGER * size for size in model.engram.engram_vocab_size)
        return model.replace(engram=replace(model.engram, engram_vocab_size=rows))
    return model


def _dense(experts: EngramLMConfig) -> EngramLMConfig:
    """The active parameters of a mixture of experts, in dense blocks."""
    bare = experts.replace(moe=None, intermediate_size=1)
    column = 3 * bare.hidden_size * bare.num_hidden_layers
    width = 1 + round((budget(experts).active - budget(bare).active) / column)
    return bare.replace(intermediate_size=width)
