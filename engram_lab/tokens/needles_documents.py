"""D4 document by document: needles laid into filler, questions behind, and what that costs."""

from itertools import pairwise
from math import factorial, log

import numpy as np
import pandas as pd

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.items import (
    CLASS_NAMES,
    COMPUTED,
    FILLER,
    Block,
    distinct,
    documents_from_blocks,
    draw,
    entropy,
)
from engram_lab.tokens.needles import (
    NEEDLE_KINDS,
    PLAIN,
    NeedlesConfig,
    filler_words,
    needles_language,
)
from engram_lab.tokens.questions import check_questions, question_generator, questions
from engram_lab.tokens.tokenizer import EOS_ID, RESERVED

Parts = tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]
"""Needles in order, questions with their answers in order, which of those tokens are answers."""


def needles(
    config: NeedlesConfig, n_tokens: int, seed: int, *, filler: Documents | None = None
) -> Documents:
    """Documents of the D4 language of `config`, with the class of every token.

    Computed are the answers to the questions; filler is all the rest.

    Args:
        config: the language and the mixture.
        n_tokens: tokens wished, rounded up to whole documents.
        seed: names the sample; another seed gives other documents of the same language.
        filler: running text to hide the needles in, instead of the chain of words; its ids must be
            those of a tokenizer with `config.words` ids behind the reserved ones.

    Raises:
        ValueError: if `n_tokens` is below 1, `seed` below 0, or the filler has other ids or too few
            of them.
    """
    text = _running_text(config, filler)

    def block(rng: np.random.Generator, count: int) -> Block:
        kinds = list(config.kind_probabilities)
        chosen = draw(np.array(list(config.kind_probabilities.values())), rng, (count,))
        drawn = [kinds[number] for number in chosen]
        return _block(config, drawn, rng, text, taught=True)

    return documents_from_blocks(
        block,
        n_tokens=n_tokens,
        document_length=config.document_length,
        seed=seed,
        vocab_size=config.vocab_size,
        name="d4",
    )


def needle_questions(
    config: NeedlesConfig,
    kind: str,
    items: int,
    seed: int = 0,
    *,
    filler: Documents | None = None,
    taught: bool = False,
) -> Documents:
    """Documents of one kind, one question set each, with keys that no training document uses.

    Args:
        config: the language; another `document_length` asks at another distance.
        kind: one of `NEEDLE_KINDS`.
        items: how many documents.
        seed: names the sample.
        filler: as for `needles`; text that was not trained on.
        taught: use the keys of training documents instead; their values are new all the same.

    Returns:
        Documents of the classes "context" and "answer", without eos.

    Raises:
        ValueError: if the kind is unknown, `items` is below 1 or the filler does not fit.
    """
    check_questions(kind, NEEDLE_KINDS, items)
    rng = question_generator(seed, NEEDLE_KINDS.index(kind))
    text = _running_text(config, filler)
    ids, classes = _block(config, [kind] * items, rng, text, taught=taught)
    return questions(
        list(ids[:, :-1]),
        list(classes[:, :-1] == COMPUTED),
        vocab_size=config.vocab_size,
        name=f"d4/{kind}",
    )


def needles_floor(config: NeedlesConfig, *, first_token: bool = False) -> pd.DataFrame:
    """Exact floor of D4 with filler of chained words; see `synthetic.entropy_floor`.

    A document's surprisals add up to the entropy of the rules it is drawn by, and none of it falls
    on answers.
    """
    probabilities = config.kind_probabilities
    nats = entropy(np.array(list(probabilities.values())))
    answers = needle_first = 0.0
    for kind, probability in probabilities.items():
        nats += probability * _kind_nats(config, kind)
        answers += probability * _answers(config, kind)
        needle_first += probability * _needle_first(config, kind)
    count = config.document_length - answers
    if not first_token:
        mark = entropy(np.array([needle_first, 1 - needle_first]))
        nats -= mark + (1 - needle_first) * log(config.words)
        count -= 1
    rows = {FILLER: (nats / count, count), COMPUTED: (0.0, answers)}
    frame = pd.DataFrame(
        {
            "token_class": [CLASS_NAMES[row] for row in sorted(rows)],
            "floor_nats": [rows[row][0] for row in sorted(rows)],
            "share": [rows[row][1] / (count + answers) for row in sorted(rows)],
            "exact": True,
        }
    )
    return frame[frame["share"] > 0].reset_index(drop=True)


def _kind_nats(config: NeedlesConfig, kind: str) -> float:
    """Entropy of a document of one kind: filler, places of needles, keys, values, questions."""
    language = needles_language(config)
    filler = log(config.words) + (config.filler_length(kind) - 1) * entropy(language.probability)
    nats = filler + log(config.places(kind))
    if kind == PLAIN:
        return nats
    count = config.needle_count(kind)
    keys = 1 if kind == "multivalue" else count
    nats += sum(log(config.taught_keys - taken) for taken in range(keys))
    chains, hops = config.chains, config.hops
    nats += log(config.values) * (chains if kind == "tracking" else count)
    if kind == "tracking":  # chains that are told apart by their order of appearance alone
        orders = factorial(chains * hops) // (factorial(hops) ** chains * factorial(chains))
        return nats + log(orders) + log(chains)
    orders = {"multikey": config.pairs, "multiquery": factorial(config.pairs)}
    return nats + log(orders.get(kind, 1))


def _answers(config: NeedlesConfig, kind: str) -> int:
    return {PLAIN: 0, "multivalue": config.pairs, "multiquery": config.pairs}.get(kind, 1)


def _needle_first(config: NeedlesConfig, kind: str) -> float:
    """Probability that a document opens with a needle."""
    count = config.needle_count(kind)
    return count / (config.filler_length(kind) + count)


def _block(
    config: NeedlesConfig,
    kinds: list[str],
    rng: np.random.Generator,
    text: np.ndarray | None,
    *,
    taught: bool,
) -> Block:
    """Ids and classes of documents of the given kinds, [document place]."""
    shape = (len(kinds), config.document_length)
    ids, classes = np.full(shape, EOS_ID, dtype=np.int32), np.full(shape, FILLER, dtype=np.uint8)
    allowed = np.flatnonzero(needles_language(config).taught == taught)
    words = filler_words(config, rng, shape) if text is None else _pieces(text, rng, shape)
    for row, kind in enumerate(kinds):
        hidden, asked, answers = _keyed(config, kind, allowed, rng)
        length = config.filler_length(kind)
        slots = np.sort(distinct(length + len(hidden), rng, (1, len(hidden)))[0])
        before = slots - np.arange(len(hidden))  # filler words in front of each needle
        stream = np.split(words[row, :length], before)
        body = [stream[0]]
        for part, rest in zip(hidden, stream[1:], strict=True):
            body += [part, rest]
        document = np.concatenate([*body, *asked])
        ids[row, : len(document)] = document
        if answers:
            marked = np.concatenate(answers)
            classes[row, len(document) - len(marked) : len(document)][marked] = COMPUTED
    return ids, classes


def _keyed(
    config: NeedlesConfig, kind: str, allowed: np.ndarray, rng: np.random.Generator
) -> Parts:
    """What one document hides and asks, its keys drawn from the allowed ones."""
    if kind == PLAIN:
        return [], [], []
    ranges, count = config.token_ranges, config.needle_count(kind)
    chosen = allowed[distinct(len(allowed), rng, (1, count))[0]]
    digits = np.stack(np.unravel_index(chosen, (config.keys,) * config.key_length), axis=-1)
    keys = list(ranges["k"].start + digits)
    values = ranges["v"].start + rng.integers(config.values, size=(count, 1))
    contents = list(values)
    if kind == "tracking":
        contents, pairs = _chains(config, keys, values, rng)
    elif kind == "multivalue":
        keys = keys[:1] * count
        pairs = [(keys[0], values.ravel())]
    else:
        asked = rng.permutation(count)[: count if kind == "multiquery" else 1]
        pairs = [(keys[i], values[i]) for i in asked]
    hide, ask = [ranges["!"].start], [ranges["?"].start]
    hidden = [np.concatenate([hide, *part]) for part in zip(keys, contents, strict=True)]
    questions = [np.concatenate([ask, key, answer]) for key, answer in pairs]
    answers = [np.arange(1 + len(key) + len(answer)) > len(key) for key, answer in pairs]
    return hidden, questions, answers


def _chains(
    config: NeedlesConfig, keys: list[np.ndarray], values: np.ndarray, rng: np.random.Generator
) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
    """What each key of interleaved chains is given, and the key asked for with its value."""
    owner = rng.permutation(np.repeat(np.arange(config.chains), config.hops))
    links = [np.flatnonzero(owner == chain) for chain in range(config.chains)]
    contents = list(values)
    for link in links:
        for source, target in pairwise(link):
            contents[target] = keys[source]
    asked = links[rng.integers(config.chains)]
    return contents, [(keys[asked[-1]], values[asked[0]])]


def _running_text(config: NeedlesConfig, filler: Documents | None) -> np.ndarray | None:
    """The ids of a text without reserved ones, enough of them for any document."""
    if filler is None:
        return None
    wanted = len(RESERVED) + config.words
    text = filler.ids[filler.ids >= len(RESERVED)]
    if filler.vocab_size != wanted or len(text) <= config.document_length:
        raise ValueError(
            f"filler must have a vocabulary of {wanted} (config.words and {len(RESERVED)} reserved "
            f"ids) and more than {config.document_length} tokens, got {filler.vocab_size} and "
            f"{len(text)}"
        )
    return text


def _pieces(text: np.ndarray, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Pieces of a text that begin anywhere, [document place]."""
    begin = rng.integers(len(text) - shape[1], size=(shape[0], 1))
    return text[begin + np.arange(shape[1])]
