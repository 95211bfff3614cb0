"""Games to play against a verifier: the counterexample of the paper, and random ones."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from jaxtyping import Float

from engram_lab.draft.costs import CostTable, from_steps_per_second
from engram_lab.draft.oracle import GlobalSearch
from engram_lab.draft.schedule import FixedLength, LengthRule, PrefixScheduler
from engram_lab.probes.lossless import Game, Law, LawOf, Text


def appendix_game() -> Game:
    """The counterexample: the second draft is almost certain behind A, and hopeless behind B.

    Source: DSpark paper, appendix A.
    """
    target, draft = np.array([0.7, 0.3]), np.array([0.5, 0.5])

    def confidence(text: Text) -> float:
        if not text:
            return 0.8
        return 0.9 if text[-1] == 0 else 0.0

    return Game(
        vocab=2,
        block=2,
        target=lambda text: target,
        draft=lambda text: draft,
        confidence=confidence,
    )


def appendix_costs() -> CostTable:
    """Its engine: 1, 0.5 and 0.45 steps a second for one, two and three tokens."""
    return from_steps_per_second({1: 1.0, 2: 0.5, 3: 0.45}, name="appendix A")


def appendix_policies() -> dict[str, LengthRule]:
    """Rules that the counterexample tells apart: only the search looks back."""
    costs = appendix_costs()
    return {
        "plain decoding": FixedLength(length=0),
        "whole block": FixedLength(length=2),
        "early stop": PrefixScheduler(costs=costs),
        "unrestricted": GlobalSearch(costs=costs),
    }


def random_game(
    vocab: int = 4, block: int = 3, *, likeness: float = 0.5, sharpness: float = 1.0, seed: int = 0
) -> Game:
    """A target of random laws behind every text, and a drafter that resembles it.

    Args:
        vocab: tokens.
        block: drafts of a round.
        likeness: share of the target's law in the drafter's; 1 drafts perfectly.
        sharpness: the larger, the fewer tokens have most of the mass.
        seed: of all laws.

    Raises:
        ValueError: if the likeness is not in 0..1, or as `Game`.
    """
    if not 0 <= likeness <= 1:
        raise ValueError(f"likeness must lie in 0..1; got {likeness}")
    target = _laws(vocab, sharpness, (seed, 0))
    other = _laws(vocab, sharpness, (seed, 1))
    return Game(
        vocab=vocab,
        block=block,
        target=target,
        draft=cache(lambda text: likeness * target(text) + (1 - likeness) * other(text)),
    )


def table_game(
    target: Sequence[Float[np.ndarray, "..."]], draft: Sequence[Float[np.ndarray, "..."]]
) -> Game:
    """A game from tables: entry k gives the law of token k, by the tokens before it.

    Args:
        target: tables of rising rank; behind the last of them laws are uniform.
        draft: the same of the drafter; as many tables as a round has drafts.
    """
    vocab = len(target[0])

    def laws(tables: Sequence[np.ndarray]) -> LawOf:
        flat = np.full(vocab, 1 / vocab)
        return lambda text: tables[len(text)][text] if len(text) < len(tables) else flat

    return Game(vocab=vocab, block=len(draft), target=laws(target), draft=laws(draft))


def tempered(law: Law, temperature: float) -> Law:
    """A law as it is at another temperature.

    Args:
        law: chances at temperature 1.
        temperature: above 0.
    """
    powers = law ** (1 / temperature)
    return powers / powers.sum()


def _laws(vocab: int, sharpness: float, seed: tuple[int, ...]) -> Callable[[Text], Law]:
    @cache
    def law(text: Text) -> Law:
        generator = np.random.default_rng([*seed, len(text), *text])
        return generator.dirichlet(np.full(vocab, 1 / sharpness))

    return law
