"""A published model under the lenses: SmolLM2-135M reads real text, layer by layer.

Nothing is trained but the maps of a tuned lens. `LENS_FOREIGN` looks through both lenses at the
same texts, `_CKA` asks which layers resemble each other, `_ATTENTION` how far back they look. The
rows are the same at every scale.

Source: Engram paper, section 6.1 (logit lens, CKA), section 6.5 (attention).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor

from engram_lab.experiments.sweep import Sweep
from engram_lab.model.smollm import NAME, Foreign, load_smollm2
from engram_lab.probes.attention import attention_mass
from engram_lab.probes.cka import cka_frame
from engram_lab.probes.lens import logit_lens
from engram_lab.probes.tuned_lens import TunedLensConfig, fit_tuned_lens, tuned_lens
from engram_lab.tokens.bundle import load_corpus_texts

CHARACTERS = 16  # per token, at most, of the beginning of a text
EVERY_SECOND = tuple(range(0, 31, 2))


@dataclass(frozen=True, kw_only=True)
class ForeignRun:
    """What a published model reads.

    Attributes:
        model: its name.
        part: part of the text bundle.
        texts: beginnings of so many texts, drawn at random.
        length: tokens of each.
        seed: of the draw.
        remove_top: directions of most variance taken out of every layer before CKA.
        tuned: how a tuned lens is fitted; None looks without one.
        fitted_on: texts a tuned lens is fitted on, others than those it looks at.
    """

    model: str = NAME
    part: str = "countries"
    texts: int
    length: int
    seed: int = 0
    remove_top: int = 0
    tuned: TunedLensConfig | None = None
    fitted_on: int = 0


class Reading(NamedTuple):
    """A model and what it reads.

    Attributes:
        config: what was asked for.
        foreign: model and tokenizer.
        token_ids: the texts to look at.
        others: the texts to fit on.
    """

    config: ForeignRun
    foreign: Foreign
    token_ids: Int64[Tensor, "batch seq"]
    others: Int64[Tensor, "rest seq"]

    @property
    def model(self) -> torch.nn.Module:
        """The model alone, for the record of where it ran."""
        return self.foreign.model


def read(config: ForeignRun) -> Reading:
    """Load the model and its texts.

    Raises:
        FileNotFoundError: if the model is not at hand, with the call that fetches it.
        ValueError: if the part has too few texts of that length.
    """
    foreign, wanted = _loaded(), config.texts + config.fitted_on
    texts = load_corpus_texts([config.part])[config.part]
    chosen = []
    for place in np.random.default_rng(config.seed).permutation(len(texts)):
        ids = foreign.tokenizer(texts[place][: CHARACTERS * config.length])["input_ids"]
        if len(ids) >= config.length:
            chosen.append(ids[: config.length])
        if len(chosen) == wanted:
            break
    if len(chosen) < wanted:
        raise ValueError(
            f"{config.part} must have {wanted} texts of {config.length} tokens; it has "
            f"{len(chosen)}"
        )
    ids = torch.tensor(chosen)
    return Reading(config, foreign, ids[: config.texts], ids[config.texts :])


def lens(reading: Reading) -> pd.DataFrame:
    """`probes.lens.logit_lens` of the texts, or `tuned_lens` after a fit on others."""
    tokenizer = reading.foreign.tokenizer

    def decode(ids: list[int]) -> list[str]:
        return [tokenizer.decode([token_id]) for token_id in ids]

    words = {"tokens": decode(reading.token_ids.flatten().tolist()), "decode": decode}
    tuned = reading.config.tuned
    if tuned is None:
        frame = logit_lens(reading.model, reading.token_ids, **words)
    else:
        maps = fit_tuned_lens(reading.model, reading.others, config=tuned)
        frame = tuned_lens(reading.model, reading.token_ids, lens=maps, **words)
    return _with_size(frame, reading)


def resemblance(reading: Reading) -> pd.DataFrame:
    """`probes.cka.cka_frame` of the model with itself, at every second depth."""
    config = reading.config
    frame = cka_frame(
        reading.model,
        reading.model,
        reading.token_ids,
        layers=EVERY_SECOND,
        remove_top=config.remove_top,
    )
    return _with_size(frame, reading)


def reach(reading: Reading) -> pd.DataFrame:
    """`probes.attention.attention_mass` of the texts."""
    return _with_size(attention_mass(reading.model, reading.token_ids), reading)


def _with_size(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    return frame.round(6).assign(params=reading.foreign.model.num_parameters())


@lru_cache(maxsize=1)
def _loaded() -> Foreign:
    return load_smollm2()


def _lens_run(lens: str) -> ForeignRun:
    if lens == "logit":
        return ForeignRun(texts=8, length=24)
    tuned = TunedLensConfig(steps=24, sequences=4, learning_rate=1.5e-3)
    return ForeignRun(texts=8, length=24, tuned=tuned, fitted_on=96)


LENS_FOREIGN = Sweep(
    name="lens_foreign",
    grid={"lens": ("logit", "tuned")},
    configure=_lens_run,
    measure=lens,
    execute=read,
)
LENS_FOREIGN_CKA = Sweep(
    name="lens_foreign_cka",
    grid={"remove_top": (0, 4)},
    configure=lambda remove_top: ForeignRun(texts=16, length=64, remove_top=remove_top),
    measure=resemblance,
    execute=read,
)
LENS_FOREIGN_ATTENTION = Sweep(
    name="lens_foreign_attention",
    grid={"part": ("countries", "python_code")},
    configure=lambda part: ForeignRun(part=part, texts=4, length=384),
    measure=reach,
    execute=read,
)
