"""Whose letters the accent step takes: marks that are accents in one script are letters in another.

Stripping marks turns é into e, but also the Japanese が (ga) into か (ka), and a Devanagari or
Bengali consonant with its vowel sign into the bare consonant.
"""

import unicodedata

import pandas as pd

from engram_lab.probes.compression import folded, named_texts
from engram_lab.tokens.compression import VocabCompression

UNDECODABLE = "\ufffd"


def script_frame(
    compression: VocabCompression, *, tokenizer: str = "", least: int = 100
) -> pd.DataFrame:
    """Ids that the accent step changes and merges, by script.

    Args:
        compression: a map with token texts.
        tokenizer: name written into the frame.
        least: ids that a script needs to be listed.

    Returns:
        Columns tokenizer, script (of a token's first letter, in the words of Unicode), ids, changed
        (ids that lose a mark), changed_share (of the script's ids), removed (ids that the step
        merges with another of the same script, by itself; a few compatibility characters merge
        without a mark) and removed_share, the most ids first.

    Raises:
        ValueError: if the map has no token texts, or no script has so many ids.
    """
    texts = [text for text in named_texts(compression) if UNDECODABLE not in text]
    frame = pd.DataFrame({"script": map(script, texts), "text": texts})
    frame["stripped"] = [folded(text, ["accent"]) or text for text in texts]
    # the step also decomposes what it keeps, such as Korean syllables: compare composed texts
    composed = [unicodedata.normalize("NFC", text) for text in frame["stripped"]]
    frame["changed"] = (
        frame["text"].map(lambda text: unicodedata.normalize("NFC", text)) != composed
    )
    groups = frame[frame["script"] != ""].groupby("script")
    counts = groups.agg(
        ids=("text", "size"), changed=("changed", "sum"), left=("stripped", "nunique")
    )
    counts = counts[counts["ids"] >= least].sort_values("ids", ascending=False).reset_index()
    if counts.empty:
        raise ValueError(f"no script has {least} ids of {len(texts)}; take a smaller least=")
    counts.insert(0, "tokenizer", tokenizer)
    counts.insert(4, "changed_share", counts["changed"] / counts["ids"])
    counts["removed"] = counts["ids"] - counts.pop("left")
    return counts.assign(removed_share=counts["removed"] / counts["ids"])


def script(text: str) -> str:
    """Script of a text's first letter, in Unicode's word: "Latin", "Hiragana"; "" for none."""
    for character in text:
        if character.isalpha():
            return unicodedata.name(character, "").partition(" ")[0].capitalize()
    return ""
