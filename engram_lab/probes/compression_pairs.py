"""Pairs of spellings that the token map merges: does the text keep them apart?

Two spellings are worth telling apart where other tokens follow the one than the other. That is
measured as the Jensen-Shannon divergence between the two lists of next tokens: 0 where they agree,
log 2 = 0.693 nats where they have nothing in common. Short lists differ by chance, so the same
divergence between two random halves of equal sizes stands beside it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd

from engram_lab.probes.compression import merging_kind, named_texts, visible
from engram_lab.probes.contexts import Followers, read_followers
from engram_lab.tokens.compression import VocabCompression
from engram_lab.tokens.documents import Documents

Pair = tuple[str, str]
MINIMAL_PAIRS: dict[str, tuple[Pair, ...]] = {
    "case": (
        *((" US", " us"), (" May", " may"), (" Polish", " polish"), (" AIDS", " aids")),
        *((" Bush", " bush"), (" True", " true"), (" List", " list"), (" N", " n"), (" Σ", " σ")),
    ),
    "accent": (
        *((" résumé", " resume"), (" pâté", " pate"), (" Ångström", " Angstrom")),
        *((" naïve", " naive"), (" schön", " schon"), (" año", " ano")),
        *(("й", "и"), ("が", "か"), ("की", "का")),
    ),
    "form": (*(("x²", "x2"), ("１２", "12"), ("Ａ", "A"), ("ﬁ", "fi"), ("½", "1/2"), ("ß", "ss")),),
    "space": ((" the", "the"), ("\n", " "), ("\n\n", "\n"), ("    return", " return")),
}
"""Pairs that a reader tells apart, or that only look different, by the step that would merge them.

Words stand behind a space, as they do in a sentence. `½` and `ß` are kept apart by every step: a
fraction slash is no slash, and lower case keeps ß.
"""


@runtime_checkable
class Backend(Protocol):
    """What a probe needs of a `tokenizers.Tokenizer`."""

    def encode(self, text: str, *, add_special_tokens: bool) -> object:
        """Encoding of a text, with its `ids` and `tokens`."""


def minimal_pair_frame(
    compression: VocabCompression,
    backend: Backend,
    pairs: Mapping[str, Sequence[Pair]] = MINIMAL_PAIRS,
    *,
    tokenizer: str = "",
) -> pd.DataFrame:
    """Which pairs of strings the map makes one.

    Args:
        compression: the map.
        backend: its tokenizer.
        pairs: strings to compare, by kind.
        tokenizer: name written into the frame.

    Returns:
        Columns tokenizer, kind, first, second, first_tokens and second_tokens (how many) and merged
        (whether both become the same canonical ids, so that no memory can tell them apart).
    """
    table, rows = compression.table.cpu().numpy(), []
    for kind, (first, second) in [(kind, pair) for kind, own in pairs.items() for pair in own]:
        ids = [backend.encode(text, add_special_tokens=False).ids for text in (first, second)]
        rows.append(
            {
                "tokenizer": tokenizer,
                "kind": kind,
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
        Columns tokenizer, kind (the step that merges the two, as `merging_kind` names it), first
        and second (the spellings, the commoner first), first_count, second_count, divergence_nats,
        by_chance_nats and excess_nats (the difference), the largest excess first.

    Raises:
        ValueError: if the map has no token texts, or no two spellings of one canonical id occur
            often enough.
    """
    texts = named_texts(compression)
    followers = read_followers(documents.ids.astype(np.int64), documents)
    pairs = _commonest_pairs(followers, compression.table.cpu().numpy(), least)
    if not len(pairs):
        raise ValueError(
            f"no two spellings of one canonical id occur {least} times each in "
            f"{documents.token_count} tokens; take more text or a smaller least="
        )
    frame = _named(texts, followers, pairs)
    frame.insert(0, "tokenizer", tokenizer)
    measured = _divergences(followers, pairs, np.random.default_rng(seed))
    frame["divergence_nats"], frame["by_chance_nats"] = measured.T
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


def _named(texts: Sequence[str], followers: Followers, pairs: np.ndarray) -> pd.DataFrame:
    """The step that merges each pair, its readable spellings and their occurrences."""
    first, second = ([texts[token_id] for token_id in followers.numbers[side]] for side in pairs.T)
    return pd.DataFrame(
        {
            "kind": list(map(merging_kind, first, second)),
            "first": list(map(visible, first)),
            "second": list(map(visible, second)),
            "first_count": followers.counts[pairs[:, 0]],
            "second_count": followers.counts[pairs[:, 1]],
        }
    )


def _divergences(
    followers: Followers, pairs: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Divergence of the followers of each pair, and of two random halves of the same sizes."""
    measured = []
    for first, second in map(followers.behind, pairs):
        both = generator.permutation(np.concatenate([first, second]))
        halves = both[: len(first)], both[len(first) :]
        measured.append((divergence(first, second), divergence(*halves)))
    return np.array(measured)


def _commonest_pairs(followers: Followers, table: np.ndarray, least: int) -> np.ndarray:
    """Places of the two commonest spellings of every canonical id, where both are common enough."""
    common = np.flatnonzero(followers.counts >= least)
    canonical = table[followers.numbers[common]]
    order = np.lexsort((-followers.counts[common], canonical))  # the commonest spelling first
    starts = np.append(True, np.diff(canonical[order]) != 0)
    firsts = np.flatnonzero(starts[:-1] & ~starts[1:])
    return common[order[np.stack([firsts, firsts + 1], axis=1)]]
