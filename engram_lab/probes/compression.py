"""What the token map merges: how many ids, which groups, and by which step of the normaliser."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import pandas as pd

from engram_lab.tokens.compression import VocabCompression

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

KINDS = ("form", "accent", "case", "space")
"""Steps of the normaliser: compatibility forms (full width, ligatures, raised digits), accents,
case, white space at the ends and in runs."""
EXAMPLES = 8
"""Members of a group that are named."""
_LONE_SPACE = "\ue000"
_UNDECODABLE = "\ufffd"


def kind_frame(compression: VocabCompression, *, tokenizer: str = "") -> pd.DataFrame:
    """Ids that the map removes, in all and by each step of the normaliser.

    The steps work together (" The" meets "the" by case and space), so their shares do not add up:
    `alone` counts what a step removes without the others, `needed` what they miss without it.

    Args:
        compression: a map with token texts (`VocabCompression.from_tokenizer`).
        tokenizer: name written into the frame.

    Returns:
        A row for kind "all" and one for each of `KINDS`, with columns tokenizer, kind, ids,
        canonical_ids (that are left when the kind acts alone), alone (ids removed), alone_share (of
        all ids), needed and needed_share.

    Raises:
        ValueError: if the map has no token texts.
    """
    texts = named_texts(compression)
    ids, removed = len(texts), len(texts) - compression.canonical_vocab_size
    whole = _removed(texts, KINDS)
    rows = [("all", removed, removed)]
    for kind in KINDS:
        others = [other for other in KINDS if other != kind]
        rows.append((kind, _removed(texts, [kind]), whole - _removed(texts, others)))
    frame = pd.DataFrame(rows, columns=["kind", "alone", "needed"])
    frame.insert(0, "tokenizer", tokenizer)
    frame.insert(2, "ids", ids)
    frame.insert(3, "canonical_ids", ids - frame["alone"])
    frame.insert(5, "alone_share", frame["alone"] / ids)
    frame["needed_share"] = frame["needed"] / ids
    return frame


def group_frame(
    compression: VocabCompression, *, tokenizer: str = "", largest: int = 20
) -> pd.DataFrame:
    """The largest groups of ids that share a canonical id.

    Args:
        compression: a map with token texts.
        tokenizer: name written into the frame.
        largest: groups to name.

    Returns:
        Columns tokenizer, rank (1 is the largest), size (ids in the group), canonical (the text
        they share) and members (some of them, readable).

    Raises:
        ValueError: if the map has no token texts, or `largest` is below 1.
    """
    named_texts(compression)
    if largest < 1:
        raise ValueError(f"group_frame needs largest to be at least 1 group; got {largest}")
    groups = compression.groups()
    groups = groups[groups["size"] > 1].sort_values(
        ["size", "canonical_id"], ascending=[False, True]
    )
    chosen = groups["canonical_id"].drop_duplicates().head(largest)
    rows = []
    for rank, canonical in enumerate(chosen, 1):
        members = groups.loc[groups["canonical_id"] == canonical, "token"].tolist()
        rows.append(
            {
                "tokenizer": tokenizer,
                "rank": rank,
                "size": len(members),
                "canonical": visible(folded(members[0], KINDS) or members[0]),
                "members": " · ".join(map(visible, members[:EXAMPLES])),
            }
        )
    return pd.DataFrame(rows, columns=["tokenizer", "rank", "size", "canonical", "members"])


def named_texts(compression: VocabCompression) -> tuple[str, ...]:
    """Text of every token id.

    Raises:
        ValueError: if the map has none.
    """
    if compression.tokens is None:
        raise ValueError(
            "what a map merges is told from token texts, which this one lacks; make it with "
            "VocabCompression.from_tokenizer"
        )
    return compression.tokens


def folded(text: str, kinds: Iterable[str]) -> str:
    """A text normalised by some steps only; all of `KINDS` give `tokens.normaliser.normalise`.

    Raises:
        ValueError: if a kind is not in `KINDS`.
    """
    return _pipeline(frozenset(kinds)).normalize_str(text)


def merging_kind(first: str, second: str) -> str:
    """The step that makes two spellings one: one of `KINDS`, or "several" that must work together.

    Raises:
        ValueError: if all steps together leave them different.
    """
    for kind in KINDS:
        if folded(first, [kind]) == folded(second, [kind]):
            return kind
    if folded(first, KINDS) != folded(second, KINDS):
        raise ValueError(f"no step of the normaliser makes {first!r} and {second!r} one")
    return "several"


def visible(text: str) -> str:
    """A token's text with white space and control characters made visible."""
    marks = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "↵"}
    return "".join(
        marks.get(character, character if character.isprintable() else f"\\u{ord(character):04x}")
        for character in text
    )


def _removed(texts: Sequence[str], kinds: Sequence[str]) -> int:
    """Ids that some steps merge away; tokens that are no text alone stay apart."""
    fold = _pipeline(frozenset(kinds)).normalize_str
    whole = [text for text in texts if _UNDECODABLE not in text]
    return len(whole) - len({fold(text) or text for text in whole})


@cache
def _pipeline(kinds: frozenset[str]) -> "Normalizer":
    from tokenizers import Regex, normalizers

    if unknown := kinds.difference(KINDS):
        raise ValueError(f"kinds must be among {', '.join(KINDS)}; got {sorted(unknown)}")
    steps = {
        "form": [normalizers.NFKC()],
        "accent": [normalizers.NFD(), normalizers.StripAccents()],
        "case": [normalizers.Lowercase()],
        "space": [
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), _LONE_SPACE),
            normalizers.Strip(),
            normalizers.Replace(_LONE_SPACE, " "),
        ],
    }
    return normalizers.Sequence([step for kind in KINDS if kind in kinds for step in steps[kind]])
