"""Generated corpora with a known answer, and their floors.

D1 (phrasebook), D3 (fact book), D4 (needles), D5 (polysemy), D8 (two capacities) and D9 (replies).

The language of a corpus (pairs, maps, phrases) hangs on the seed of its config alone, the documents
on the seed given when they are drawn: training and validation share the rules, not the documents.
Every token has a class: static (fixed by the words just before it: work for a memory), computed
(fixed by the context: work for attention and experts), or filler (what no rule fixes).

    config = TwoCapacitiesConfig(static_share=0.5)
    train, validation = two_capacities(config, 3_000_000, 0), two_capacities(config, 50_000, 1)
    floor = entropy_floor(config)
"""

import pandas as pd

from engram_lab.tokens.capacities import (
    TwoCapacitiesConfig,
    TwoCapacitiesLanguage,
    two_capacities,
    two_capacities_floor,
    two_capacities_language,
)
from engram_lab.tokens.factbook import FactBook, FactbookConfig, fact_book
from engram_lab.tokens.factbook_items import factbook, factbook_floor, factbook_questions
from engram_lab.tokens.items import CLASS_NAMES
from engram_lab.tokens.needles import NeedlesConfig, NeedlesLanguage, needles_language
from engram_lab.tokens.needles_documents import needle_questions, needles, needles_floor
from engram_lab.tokens.phrasebook import PhraseBook, PhrasebookConfig, phrase_book
from engram_lab.tokens.phrasebook_spans import phrasebook, phrasebook_floor
from engram_lab.tokens.polysemy import (
    PolysemyConfig,
    PolysemyLanguage,
    polysemy,
    polysemy_floor,
    polysemy_language,
    polysemy_twins,
)
from engram_lab.tokens.replies import RepliesConfig, acceptance_of, replies, replies_floor
from engram_lab.tokens.tokenizer import RESERVED

__all__ = [
    "CLASS_NAMES",
    "FactBook",
    "FactbookConfig",
    "NeedlesConfig",
    "NeedlesLanguage",
    "PhraseBook",
    "PhrasebookConfig",
    "PolysemyConfig",
    "PolysemyLanguage",
    "RepliesConfig",
    "SyntheticConfig",
    "TwoCapacitiesConfig",
    "TwoCapacitiesLanguage",
    "acceptance_of",
    "entropy_floor",
    "fact_book",
    "factbook",
    "factbook_questions",
    "needle_questions",
    "needles",
    "needles_language",
    "phrase_book",
    "phrasebook",
    "polysemy",
    "polysemy_language",
    "polysemy_twins",
    "replies",
    "token_strings",
    "two_capacities",
    "two_capacities_language",
]

SyntheticConfig = (
    PhrasebookConfig
    | TwoCapacitiesConfig
    | FactbookConfig
    | NeedlesConfig
    | PolysemyConfig
    | RepliesConfig
)
_FLOORS = {
    PhrasebookConfig: phrasebook_floor,
    TwoCapacitiesConfig: two_capacities_floor,
    FactbookConfig: factbook_floor,
    NeedlesConfig: needles_floor,
    PolysemyConfig: polysemy_floor,
    RepliesConfig: replies_floor,
}


def entropy_floor(config: SyntheticConfig, *, first_token: bool = False) -> pd.DataFrame:
    """Lowest loss that any predictor can reach on a generated corpus, by token class.

    It is what a reader pays who knows the language, the mixture and the length of documents. Where
    an item ends he must also guess the kind of the next one. Class means are per token of the
    class: the floor of the mean loss is the sum of `share` x `floor_nats`.

    Args:
        config: of any generated corpus; D4 with its own chain of words as filler.
        first_token: whether to count the first token of a document. Without (the default) the
            numbers compare with losses of `padded_batches`, where nothing predicts that token.

    Returns:
        One row per class that occurs, with columns token_class, floor_nats, share (of the tokens
        counted) and exact (true throughout: the corpora are built so that the sums are finite).

    Raises:
        TypeError: if the config is of another kind.
    """
    if type(config) not in _FLOORS:
        raise _unknown("entropy_floor", config)
    return _FLOORS[type(config)](config, first_token=first_token)


def token_strings(config: SyntheticConfig) -> tuple[str, ...]:
    """A readable name for every id, in order of id: `<pad>`, ..., `topic3`, `k17`, `a5`, `w201`.

    Marks stand for themselves and digits of D1 are written as such.

    Raises:
        TypeError: if the config is of another kind.
    """
    if not isinstance(config, SyntheticConfig):
        raise _unknown("token_strings", config)
    names = list(RESERVED)
    for name, ids in config.token_ranges.items():
        stem = "" if name == "digit" else name
        names += [f"{stem}{i}" if name.isalpha() else name for i in range(len(ids))]
    return tuple(names)


def _unknown(caller: str, config: object) -> TypeError:
    return TypeError(
        f"{caller} takes one of {', '.join(known.__name__ for known in _FLOORS)}, "
        f"got {type(config).__name__}"
    )
