"""Questions to score: documents in which the answers are marked as a class of tokens."""

from collections.abc import Sequence

import numpy as np

from engram_lab.tokens.documents import Documents

QUESTION_CLASSES = ("context", "answer")
ANSWER = QUESTION_CLASSES[1]
QUESTIONS = 2  # random stream of questions, beside `items.LANGUAGE` and `items.SAMPLE`


def questions(
    documents: Sequence[np.ndarray], answers: Sequence[np.ndarray], *, vocab_size: int, name: str
) -> Documents:
    """Documents of the classes "context" and "answer", one question each.

    Args:
        documents: token ids of each question with its answer.
        answers: which tokens of each are the answer, as truth values.
        vocab_size: ids lie below it.
        name: what the questions are called.
    """
    return Documents.from_lists(
        documents,
        vocab_size=vocab_size,
        classes=answers,
        class_names=QUESTION_CLASSES,
        name=name,
    )


def question_generator(seed: int, kind: int) -> np.random.Generator:
    """Generator of the questions of one kind, apart from those of languages and documents."""
    return np.random.default_rng([QUESTIONS, seed, kind])


def check_questions(kind: str, kinds: Sequence[str], items: int) -> None:
    """Refuse an unknown kind of question, or none at all.

    Raises:
        ValueError: naming the kinds, or the number.
    """
    if kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}")
    if items < 1:
        raise ValueError(f"items must be at least 1, got {items}")
