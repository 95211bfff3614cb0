"""Tasks of every corpus: facts (D3), needles (D4), token classes (D1, D5, D8, text)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from engram_lab.model.budget import budget
from engram_lab.probes.ablation import ablation_frame
from engram_lab.probes.allocation import rounded, significant
from engram_lab.probes.tasks import Task, item_frame
from engram_lab.scales import pick
from engram_lab.tokens.documents import Documents
from engram_lab.tokens.synthetic import (
    FactbookConfig,
    NeedlesConfig,
    factbook_questions,
    needle_questions,
)
from engram_lab.training.data import language, needle_filler
from engram_lab.training.fit import TrainedRun

CLASSES = ("static", "computed")


def fact_tasks(config: FactbookConfig, *, items: int = 200, seed: int = 0) -> list[Task]:
    """Recall and reading of D3.

    Recall: "closed_book" (facts that documents only state; left out where there are none) and
    "asked_before"; chance is one of all values, which are equally frequent. Reading: "passage" (of
    strangers) and "passage_known" (of entities in the book); chance is one of the values stated, as
    for a reader who does not look whose they are.
    """
    kinds = {"asked_before": "recall", "passage": "reading", "passage_known": "reading"}
    if config.asked_relations < config.relations:
        kinds = {"closed_book": "recall"} | kinds
    chance = {"recall": 1 / config.values, "reading": 1 / config.passage_facts}
    return [
        Task(
            family=family,
            name=kind,
            documents=factbook_questions(config, kind, items, seed),
            chance=chance[family],
        )
        for kind, family in kinds.items()
    ]


def needle_tasks(
    config: NeedlesConfig,
    *,
    items: int = 500,
    seed: int = 0,
    filler: Documents | None = None,
    taught: bool = False,
) -> list[Task]:
    """Every kind of D4 in the config, at its document length, with keys that were not taught.

    Chance is one of the values that the document states, or of all values where it states one.

    Args:
        config: the language; a longer `document_length` asks at a longer distance.
        items: documents a kind.
        seed: of the documents.
        filler: running text, where the config is for that.
        taught: ask with the keys of training documents instead, and values of the moment.
    """
    stated = {"single": config.values, "tracking": config.chains}
    return [
        Task(
            family="needles",
            name=kind,
            documents=needle_questions(config, kind, items, seed, filler=filler, taught=taught),
            chance=1 / stated.get(kind, config.pairs),
        )
        for kind in config.kinds
    ]


def class_tasks(
    documents: Documents, *, classes: Sequence[str] = CLASSES, family: str = "tokens"
) -> list[Task]:
    """Prediction of every token of a class, in the classes that the documents have.

    Chance is the share of the most frequent token of the class, as for a reader who always names
    that one.

    Raises:
        ValueError: if the documents have none of the classes.
    """
    numbers = [name for name in classes if name in documents.class_names]
    tasks = []
    for name in numbers:
        marked = documents.classes == documents.class_names.index(name)
        marked[documents.offsets[:-1]] = False
        if marked.any():
            often = np.bincount(documents.ids[marked]).max() / marked.sum()
            tasks.append(
                Task(
                    family=family,
                    name=name,
                    documents=documents,
                    scored=name,
                    chance=min(float(often), np.nextafter(1, 0)),
                )
            )
    if not tasks:
        raise ValueError(
            f"documents need tokens of the classes {', '.join(classes)}; {documents.name!r} has "
            f"the classes {documents.class_names}"
        )
    return tasks


def tasks_of(trained_run: TrainedRun, *, items: int | None = None, seed: int = 0) -> list[Task]:
    """The tasks of the corpus a model was trained on, with items it was not trained on.

    Args:
        trained_run: names the corpus and its language.
        items: questions a task (D3, D4), by default 8, 200 or 1,000 by scale; token classes take
            all validation documents.
        seed: of the questions.
    """
    data = trained_run.config.data
    items = pick(tiny=8, workshop=200, full=1_000) if items is None else items
    if data.corpus == "d3":
        return fact_tasks(language(data), items=items, seed=seed)
    if data.corpus == "d4":
        filler = needle_filler(data)
        text = None if filler is None else filler.validation
        return needle_tasks(language(data), items=items, seed=seed, filler=text)
    classes = trained_run.validation.class_names if data.corpus == "text" else CLASSES
    return class_tasks(trained_run.validation, classes=classes)


def task_items(trained_run: TrainedRun) -> pd.DataFrame:
    """What a trained model answers, item by item, beside its budget; the measure of E3.

    Returns:
        The columns of `item_frame`, and chance, train_tokens, params, active_params and
        sparse_params (embedding and head left out). Numbers have six significant digits.
    """
    tasks = tasks_of(trained_run)
    frame = item_frame(trained_run.model, tasks)
    counts = budget(trained_run.config.model)
    return rounded(frame).assign(
        chance=frame["task"].map({task.name: significant(task.chance) for task in tasks}),
        train_tokens=trained_run.train_tokens,
        params=counts.total,
        active_params=counts.active,
        sparse_params=counts.sparse,
    )


def trained_ablation(trained_run: TrainedRun) -> pd.DataFrame:
    """`ablation_frame` of a trained model on the tasks of its corpus; the measure of E7."""
    seed = trained_run.config.seed
    frame = ablation_frame(trained_run.model, tasks_of(trained_run), seed=seed)
    return rounded(frame).assign(
        train_tokens=trained_run.train_tokens, params=budget(trained_run.config.model).total
    )
