"""Where phrases of the book lie in D1 documents: the labels that a gate is compared with."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from engram_lab.tokens.documents import Documents
from engram_lab.tokens.items import FILLER, STATIC
from engram_lab.tokens.phrasebook import PhrasebookConfig, phrase_book


@dataclass(frozen=True, kw_only=True, eq=False)
class PhrasePlaces:
    """Which tokens stand in phrases of the book.

    Attributes:
        last: the last word of a whole phrase.
        inside: any word of a whole phrase, the last one included.
    """

    last: Bool[np.ndarray, "token"]
    inside: Bool[np.ndarray, "token"]


def phrase_places(config: PhrasebookConfig, documents: Documents) -> PhrasePlaces:
    """Places of the phrases in documents of D1; a phrase that the end cuts off does not count.

    Args:
        config: the language the documents were drawn from.
        documents: documents of `phrasebook`, with their classes.

    Raises:
        ValueError: if the documents have no classes, or a run of static words is no phrase of the
            book and not cut by the end of its document.
    """
    if documents.classes is None:
        raise ValueError("phrase_places needs the classes that phrasebook() gives its documents")
    book = phrase_book(config)
    whole = {
        tuple(ids[:length])
        for ids, length in zip(book.phrases.tolist(), book.lengths.tolist(), strict=True)
    }
    static = documents.classes == STATIC
    ends = np.flatnonzero(static & ~np.append(static[1:], False))
    starts = np.flatnonzero(static & ~np.append(False, static[:-1])) - 1  # the first word is filler
    last, inside = np.zeros((2, documents.token_count), dtype=bool)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        words = tuple(documents.ids[start : end + 1].tolist())
        if words in whole and documents.classes[start] == FILLER:
            last[end] = inside[start : end + 1] = True
        elif end + 2 not in documents.offsets:
            raise ValueError(
                f"static words must be a phrase of the book of this config; got ids {words}. "
                "Use the config the documents were drawn from"
            )
    return PhrasePlaces(last=last, inside=inside)
