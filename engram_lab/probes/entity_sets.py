"""Depth of entities for a trained model: the fact book's names, names of nobody, patches."""

from dataclasses import replace

import numpy as np
import pandas as pd

from engram_lab.model.budget import budget
from engram_lab.probes.allocation import rounded
from engram_lab.probes.entity import entity_frame
from engram_lab.probes.entity_mentions import entity_mentions, stranger_names
from engram_lab.probes.entity_patch import Patch, patch_accuracy, patch_frame
from engram_lab.scales import pick
from engram_lab.tokens.factbook import NAME_LENGTHS, FactbookConfig, fact_book
from engram_lab.tokens.synthetic import token_strings
from engram_lab.training.data import language
from engram_lab.training.fit import TrainedRun

STRANGERS = 500  # names of nobody, at most, that stand in prompts


def trained_entities(trained_run: TrainedRun) -> pd.DataFrame:
    """At which depth a model trained on D3 knows whose name it read; the measure of E11.

    Returns:
        Columns names ("book", "nobody": see `entity_mentions`), those of `entity_frame`, and
        memory_layers (blocks that read a memory, as text), train_tokens and params. Rows of the
        probe "patch" are those of `patch_accuracy`, with names "book", known_accuracy (of the same
        facts when the source itself goes on with the relation) and an example: asked (name,
        relation and value of one patch) and said (what the prompt said). Numbers have six
        significant digits.

    Raises:
        ValueError: if the model was trained on another corpus.
    """
    data = trained_run.config.data
    if data.corpus != "d3":
        raise ValueError(f"entities are those of the fact book (d3); got a run on {data.corpus!r}")
    config, model = language(data), trained_run.model
    most = min(config.entities, pick(tiny=12, workshop=500, full=1_000))
    parts = [
        entity_frame(
            model, entity_mentions(config, entities=most, strangers=names == "nobody")
        ).assign(names=names)
        for names in ("book", "nobody")
    ]
    patches = fact_patches(config, items=pick(tiny=8, workshop=300, full=1_000))
    parts.append(_patched(trained_run, config, patches))
    engram = trained_run.config.model.engram
    frame = pd.concat(parts, ignore_index=True)
    frame.insert(0, "names", frame.pop("names"))
    return rounded(frame).assign(
        memory_layers=" ".join(str(layer) for layer in engram.layer_ids) if engram else "",
        train_tokens=trained_run.train_tokens,
        params=budget(trained_run.config.model).total,
    )


def _patched(trained_run: TrainedRun, config: FactbookConfig, patches: list[Patch]) -> pd.DataFrame:
    """Accuracy of patches by layer, and what the prompt of the first one said."""
    frame, names = patch_frame(trained_run.model, patches), token_strings(config)
    example, first = patches[0], frame[frame["patch"] == 0].set_index("layer")["generated"]
    said = first.map(lambda text: names[int(text.removeprefix("#"))])
    name = example.source[-fact_book(config).lengths[example.entity] :]
    asked = " ".join(names[i] for i in (*name, example.prompt[-1], *example.answers[0]))
    known = patch_frame(trained_run.model, [_asked_plainly(patch) for patch in patches])
    rows = patch_accuracy(frame)
    return rows.assign(
        names="book",
        known_accuracy=known.loc[known["layer"] == 0, "hit"].mean(),
        asked=asked,
        said=rows["layer"].map(said),
    )


def _asked_plainly(patch: Patch) -> Patch:
    """The source itself, going on with the relation: does the model know the fact at all?"""
    prompt = (*patch.source, patch.prompt[-1])
    return replace(patch, prompt=prompt, placeholder=len(patch.source) - 1)


def fact_patches(config: FactbookConfig, *, items: int = 300, seed: int = 0) -> list[Patch]:
    """Patches for models that know only D3: a statement about nobody, whose name is replaced.

    All names have two words, so that all texts have one length. Both texts open with the same two
    facts of others. The source ends with the name of an entity; the prompt goes on with a name of
    nobody, whose last word is the placeholder, and a relation. Patched, it should say the entity's
    value: a right answer is one in `values` by chance.

    Args:
        config: the language.
        items: how many, each about another fact that documents ask about, as far as there are such.
        seed: of the choice.

    Raises:
        ValueError: if `items` is below 1, or no name of nobody is found.
    """
    if items < 1:
        raise ValueError(f"items must be at least 1; got {items}")
    book, ranges = fact_book(config), config.token_ranges
    rng = np.random.default_rng([seed, config.seed])
    short = np.flatnonzero(book.lengths == NAME_LENGTHS[0])
    strangers = stranger_names(book, rng.permutation(config.entities)[:STRANGERS], rng)
    facts = np.argwhere(book.asked & (book.lengths == NAME_LENGTHS[0])[:, None])
    patches = []
    for entity, relation in rng.permutation(facts)[:items].tolist():
        others = rng.choice(short[short != entity], size=2).tolist()
        opening = [word for other in others for word in _fact(config, other, rng)]
        stranger = strangers[rng.integers(len(strangers))][-2:]
        value = int(book.values[entity, relation])
        name = book.names[entity, : book.lengths[entity]].tolist()
        prompt = [*opening, *stranger, ranges["r"].start + relation]
        patches.append(
            Patch(
                entity=entity,
                source=(*opening, *name),
                prompt=tuple(prompt),
                placeholder=len(prompt) - 2,
                answers=((value,),),
            )
        )
    return patches


def _fact(config: FactbookConfig, entity: int, rng: np.random.Generator) -> list[int]:
    book = fact_book(config)
    relation = int(rng.integers(config.relations))
    name = book.names[entity, : book.lengths[entity]].tolist()
    value = int(book.values[entity, relation])
    return [*name, config.token_ranges["r"].start + relation, value]
