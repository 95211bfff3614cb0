"""Pairs of spellings that the token map merges: does the text keep them apart?

Two spellings are worth telling apart where other tokens follow the one than the other. That is
measured as the Jensen-Shannon divergence between the two lists of next tokens: 0 where they agree,
log 2 = 0.693 nats where they have nothing in common. Short lists differ by chance, so the same
divergence between two random halves of equal sizes stands beside it.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd

from engram_lab.probes.compression import visible
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents

MINIMAL_PAIRS = (
    *(("US", "us"), ("May", "may"), ("Polish", "polish"), ("AIDS", "aids"), ("Bush", "bush")),
    *(("résumé", "resume"), ("pâté", "pate"), ("Ångström", "angstrom"), ("naïve", "naive")),
    *(("True", "true"), ("List", "list"), ("N", "n"), ("x²", "x2"), ("¼", "1/4"), ("ﬁ", "fi")),
    *(("１２", "12"), ("Ａ", "A"), (" the", "the"), ("\n", " "), ("ß", "ss"), ("Σ", "σ")),
)
"""Pairs that a reader tells apart, or that only look different: case, accent, form and space."""


@runtime_checkable
class Backend(Protocol):
    """What a probe needs of a `tokenizers.Tokenizer`."""

    def encode(self, text: str, *, add_special_tokens: bool) -> object:
        """Encoding of a text, with its `ids` and `tokens`."""


def minimal_pair_frame(
    compression: VocabCompression,
    backend: Backend,
    pairs: Sequence[tuple[str, str]] = MINIMAL_PAIRS,
    *,
    tokenizer: str = "",
) -> pd.DataFrame:
    """Which pairs of strings the map makes one.

    Args:
        compression: the map.
        backend: its tokenizer.
        pairs: strings to compare.
        tokenizer: name written into the frame.

    Returns:
        Columns tokenizer, first, second, first_tokens and second_tokens (how many) and merged
        (whether both become the same canonical ids, so that no memory can tell them apart).
    """
    table, rows = compression.table.cpu().numpy(), []
    for first, second in pairs:
        ids = [backend.encode(text, add_special_tokens=False).ids for text in (first, second)]
        rows.append(
            {
                "tokenizer": tokenizer,
                "first": visible(first),
                "second": visible(second),
                "first_tokens": len(ids[0]),
                "second_tokens": len(ids[1]),
                "merged": table[ids[0]].tolist() == table[ids[1]].tolist(),
            }
        )
    return pd.DataFrame(rows)


def pair_frame(
    compression: VocabCompression,
    documents: Documents,
    *,
    tokenizer: str = "",
    least: int = 50,
    seed: int = 0,
) -> pd.DataFrame:
    """The two commonest spellings of every canonical id: how differently they are followed.

    Args:
        compression: a map with token texts.
        documents: token ids of a text.
        tokenizer: name written into the frame.
        least: occurrences that both spellings need, with a token behind them.
        seed: of the random halves.

    Returns:
        Columns tokenizer, first and second (the spellings, the commoner first), first_count,
        second_count, divergence_nats, by_chance_nats and excess_nats (the difference), the largest
        excess first.

    Raises:
        ValueError: if the map has no token texts, or no two spellings of one canonical id occur
            often enough.
    """
    if compression.tokens is None:
        raise ValueError(
            "pairs are named by token texts, which this map lacks; make it with "
            "VocabCompression.from_tokenizer"
        )
    table, texts = compression.table.cpu().numpy(), compression.tokens
    inside = np.ones(documents.token_count, dtype=bool)
    inside[documents.offsets[1:] - 1] = False  # the last token of a document has nothing behind it
    places = np.flatnonzero(inside)
    ids, following = documents.ids[places].astype(np.int64), documents.ids[places + 1]
    pairs = _commonest_pairs(ids, table, least)
    if not pairs:
        raise ValueError(
            f"no two spellings of one canonical id occur {least} times each in "
            f"{documents.token_count} tokens; take more text or a smaller least="
        )
    order = np.argsort(ids, kind="stable")
    bounds = np.searchsorted(ids[order], np.arange(len(table) + 1))
    behind = [[following[order[bounds[i] : bounds[i + 1]]] for i in pair] for pair in pairs]
    generator, rows = np.random.default_rng(seed), []
    for (first, second), (after_first, after_second) in zip(pairs, behind, strict=True):
        both = generator.permutation(np.concatenate([after_first, after_second]))
        halves = both[: len(after_first)], both[len(after_first) :]
        rows.append(
            {
                "tokenizer": tokenizer,
                "first": visible(texts[first]),
                "second": visible(texts[second]),
                "first_count": len(after_first),
                "second_count": len(after_second),
                "divergence_nats": divergence(after_first, after_second),
                "by_chance_nats": divergence(*halves),
            }
        )
    frame = pd.DataFrame(rows)
    frame["excess_nats"] = frame["divergence_nats"] - frame["by_chance_nats"]
    return frame.sort_values("excess_nats", ascending=False, ignore_index=True)


def divergence(first: np.ndarray, second: np.ndarray) -> float:
    """Jensen-Shannon divergence of two samples of numbers, in nats; both weigh the same."""
    values, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    shares = [
        np.bincount(part, minlength=len(values)) / len(part)
        for part in (places[: len(first)], places[len(first) :])
    ]
    middle = (shares[0] + shares[1]) / 2
    return sum(
        float((share[share > 0] * np.log(share[share > 0] / middle[share > 0])).sum()) / 2
        for share in shares
    )


def _commonest_pairs(ids: np.ndarray, table: np.ndarray, least: int) -> list[tuple[int, int]]:
    """The two commonest token ids of every canonical id, where both are common enough."""
    seen = np.bincount(ids, minlength=len(table))
    order = np.lexsort((-seen, table))  # by canonical id, the commonest first
    first = np.ones(len(order), dtype=bool)
    first[1:] = table[order][1:] != table[order][:-1]
    starts = np.flatnonzero(first)
    starts = starts[starts + 1 < len(order)]
    starts = starts[~first[starts + 1]]
    pairs = zip(order[starts].tolist(), order[starts + 1].tolist(), strict=True)
    return [pair for pair in pairs if seen[pair[1]] >= least]
