"""From a `DataConfig` to documents to train on, documents to measure on, and a token map."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.corpus import Documents, load_text_corpus, sample_texts, split_documents
from engram_lab.tokens.synthetic import (
    FactbookConfig,
    NeedlesConfig,
    PhrasebookConfig,
    PolysemyConfig,
    RepliesConfig,
    SyntheticConfig,
    TwoCapacitiesConfig,
    factbook,
    needles,
    phrasebook,
    polysemy,
    replies,
    two_capacities,
)
from engram_lab.tokens.tokenizer import RESERVED, Tokenizer, load_tokenizer
from engram_lab.training.config import DataConfig, RunConfig

# Fixed, so that runs of different length are measured on the same documents.
TEXT_VALIDATION_SHARE = 0.05
TEXT_EVAL_PIECE = 256
"""Ids read of one piece of validation text: short, so that many texts are heard."""

_GENERATED = {
    "d1": phrasebook,
    "d3": factbook,
    "d4": needles,
    "d5": polysemy,
    "d8": two_capacities,
    "d9": replies,
}


class RunData(NamedTuple):
    """What `load_data` gives.

    Attributes:
        train: documents to train on.
        validation: documents to measure on; none of them is in `train`.
        tokenizer: of the text corpus; None for generated corpora, whose ids stand for themselves.
        compression: token ids to canonical ids; the identity for generated corpora.
    """

    train: Documents
    validation: Documents
    tokenizer: Tokenizer | None
    compression: VocabCompression


def load_data(run_config: RunConfig) -> RunData:
    """Documents, tokenizer and token map of a run; kept in this process, text also on disk.

    Raises:
        ValueError: if the model's `vocab_size` is not that of the corpus, or the corpus cannot give
            the tokens asked for.
    """
    data = corpus_data(run_config.data)
    wanted, found = run_config.model.vocab_size, data.train.vocab_size
    if wanted != found:
        raise ValueError(
            f"EngramLMConfig.vocab_size must be {found}, the vocabulary of corpus "
            f"{run_config.data.corpus!r}; got {wanted}. "
            f"Use config.replace(vocab_size=vocab_size(data)) with the run's DataConfig."
        )
    return data


def vocab_size(data: DataConfig) -> int:
    """Number of token ids of a corpus: what `EngramLMConfig.vocab_size` has to be."""
    if data.corpus == "text":
        return load_tokenizer(data.tokenizer).vocab_size
    return language(data).vocab_size


@lru_cache(maxsize=4)
def corpus_data(data: DataConfig) -> RunData:
    """Documents, tokenizer and token map of a `DataConfig`, whatever the model.

    Raises:
        ValueError: if the corpus cannot give the tokens asked for.
    """
    if data.corpus == "text":
        return _text(data)
    rules = language(data)
    if data.corpus == "d4" and data.filler != "words":
        return _needles_in_filler(data, rules)
    generate = _GENERATED[data.corpus]
    # one language, two samples of it; other data seeds share no sample with these
    train = generate(rules, data.train_tokens, 2 * data.seed)
    validation = generate(rules, data.eval_tokens, 2 * data.seed + 1)
    return RunData(train, validation, None, VocabCompression.identity(rules.vocab_size))


def language(data: DataConfig) -> SyntheticConfig:
    """The rules of a generated corpus, for its floor, its labels and questions about it.

    Raises:
        ValueError: if the corpus is text, which has no such rules.
    """
    shared = {
        "static_share": data.static_share,
        "document_length": data.document_length,
        "seed": data.seed,
    }
    if data.corpus == "d1":
        return PhrasebookConfig(**shared)
    if data.corpus == "d3":
        return FactbookConfig(entities=data.entities, **shared)
    if data.corpus == "d4":
        shared["plain_share"] = shared.pop("static_share")
        if data.filler != "words":
            shared["words"] = vocab_size(_filler(data)) - len(RESERVED)
        return NeedlesConfig(keys=data.needle_keys, values=data.needle_values, **shared)
    if data.corpus == "d5":
        return PolysemyConfig(topics=data.topics, **shared)
    if data.corpus == "d8":
        return TwoCapacitiesConfig(
            topics=data.topics, topic_zipf=data.topic_zipf, pairs=data.pairs, **shared
        )
    if data.corpus == "d9":
        return RepliesConfig(modes=data.modes, cues=data.cues, **shared)
    raise ValueError(f"only generated corpora have rules of their own; got {data.corpus!r}")


def needle_filler(data: DataConfig) -> RunData | None:
    """What the needles of "d4" lie in, where that is another corpus: to train and to measure on."""
    return None if data.filler == "words" else corpus_data(_filler(data))


def _filler(data: DataConfig) -> DataConfig:
    """The corpus of the filler: the text bundle, or the phrases of D1 and nothing else."""
    corpus = "text" if data.filler == "text" else "d1"
    return replace(data, corpus=corpus, filler="words", static_share=1.0)


def _needles_in_filler(data: DataConfig, rules: NeedlesConfig) -> RunData:
    """D4 in another corpus: its ids, and behind them those of the needles."""
    text = needle_filler(data)
    train = needles(rules, data.train_tokens, 2 * data.seed, filler=text.train)
    validation = needles(rules, data.eval_tokens, 2 * data.seed + 1, filler=text.validation)
    folded = text.compression.table
    others = torch.arange(rules.vocab_size - len(folded)) + text.compression.canonical_vocab_size
    table = VocabCompression.from_table(torch.cat([folded, others]))
    return RunData(train, validation, None, table)


def _text(data: DataConfig) -> RunData:
    tokenizer = load_tokenizer(data.tokenizer)
    everything = load_text_corpus(tokenizer, parts=data.parts)
    train, validation = split_documents(everything, TEXT_VALIDATION_SHARE, data.seed)
    if validation.token_count < data.eval_tokens:
        raise ValueError(
            f"DataConfig.eval_tokens must be at most {validation.token_count}, the validation part "
            f"of the text bundle; got {data.eval_tokens}"
        )
    return RunData(
        _beginning(train, data.train_tokens),
        sample_texts(validation, data.eval_tokens, longest=TEXT_EVAL_PIECE, like=train),
        tokenizer,
        VocabCompression.from_tokenizer(tokenizer),
    )


def _beginning(documents: Documents, tokens: int) -> Documents:
    """Whole documents from the start until there are `tokens` tokens, or all of them."""
    count = int(np.searchsorted(documents.offsets, tokens))
    return documents.select(np.arange(min(count, len(documents))))
