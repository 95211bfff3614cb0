"""`check_...(your_function)`: says on which input a function differs from the library, and how."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from engram_lab.probes.lossless import (
    Game,
    accept_chance,
    output_law,
    residual_law,
    target_law,
)
from engram_lab.probes.lossless_games import appendix_game

CLOSE = 1e-6
DRAWS = 40
OneRule = Callable[[np.ndarray], int]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a check found.

    Attributes:
        function: name of the function that was checked.
        passed: whether it does what it should.
        finding: what it does, or the first input on which it does not.
    """

    function: str
    passed: bool
    finding: str

    def __repr__(self) -> str:
        """A line to read."""
        return f"{'passed' if self.passed else 'not yet'}: {self.function} {self.finding}"


def check_accept(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Report:
    """Whether a function gives the chance to keep each token that a drafter may propose.

    Args:
        function: takes the target's law and the drafter's, gives a chance for every token; those
            that the drafter never proposes do not count.
    """
    return _compare(function, accept_chance, lambda p, q: q > 0)


def check_residual(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Report:
    """Whether a function gives the law of the token that replaces a refused draft.

    Args:
        function: takes the target's law and the drafter's, gives a law; where nothing is ever
            refused it does not count.
    """
    return _compare(function, residual_law, lambda p, q: np.full(len(p), (p < q).any()))


def check_length_rule(rule: OneRule, game: Game | None = None) -> Report:
    """Whether a rule may choose how many drafts are verified without changing what comes out.

    Draft k may be verified by what was known before it was drawn: the confidences up to its own.
    So what is said about later drafts must not move that decision. Then the law is worked out.

    Args:
        rule: takes the confidences of one block, gives a number of drafts.
        game: what the law is worked out for; None for the counterexample of the paper.
    """
    name = _name(rule)
    game = game or appendix_game()
    generator = np.random.default_rng(0)
    for _ in range(5 * DRAWS):
        block = generator.random(game.block).round(2)
        kept = int(generator.integers(game.block))
        other = np.append(block[: kept + 1], generator.random(game.block - kept - 1).round(2))
        lengths = []
        for confidences in (block, other):
            length = _asked(rule, confidences)
            if isinstance(length, str):
                return Report(function=name, passed=False, finding=length)
            if not 0 <= length <= game.block:
                finding = f"chose {length} of {game.block} drafts for {_shown(confidences)}"
                return Report(function=name, passed=False, finding=finding)
            lengths.append(int(length))
        if (lengths[0] > kept) != (lengths[1] > kept):
            finding = (
                f"verifies {lengths[0]} for {_shown(block)} but {lengths[1]} for {_shown(other)}: "
                f"whether draft {kept + 1} is verified hangs on what is said about later ones"
            )
            return Report(function=name, passed=False, finding=finding)
    law = output_law(game, lambda text, drafts: int(rule(game.confidences(text, drafts)[0])))
    off = float(np.abs(law - target_law(game)).sum() / 2)
    told = f"is causal, and the output is {off:.2g} from the target's law"
    return Report(function=name, passed=off < CLOSE, finding=told)


def _compare(function: Callable, wanted: Callable, counts: Callable) -> Report:
    """A function of two laws against the library's, on edges first and then on random ones."""
    name = _name(function)
    for p, q in _laws():
        found = _asked(function, p, q)
        if isinstance(found, str):
            return Report(function=name, passed=False, finding=found)
        right, matters = wanted(p, q), counts(p, q)
        if np.shape(found) != right.shape:
            told = f"gives shape {np.shape(found)} for laws of {len(p)} tokens"
            return Report(function=name, passed=False, finding=told)
        off = np.where(matters, np.abs(np.asarray(found, dtype=float) - right), 0.0)
        if not off.max() < CLOSE:  # also if it is no number
            told = (
                f"differs by {off.max():.3g}: for target {_shown(p)} and drafter {_shown(q)} it "
                f"gives {_shown(np.asarray(found))}, should be {_shown(right)}"
            )
            return Report(function=name, passed=False, finding=told)
    return Report(function=name, passed=True, finding="agrees on all laws that were tried")


def _laws() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield np.array([0.7, 0.3]), np.array([0.5, 0.5])
    yield np.array([0.5, 0.5, 0.0]), np.array([0.2, 0.3, 0.5])
    yield np.array([0.2, 0.8, 0.0]), np.array([1.0, 0.0, 0.0])
    yield np.array([0.25, 0.75]), np.array([0.25, 0.75])
    generator = np.random.default_rng(0)
    for size in generator.integers(2, 7, DRAWS):
        p, q = generator.dirichlet(np.ones(size), size=2)
        yield p, q


def _asked(function: Callable, *arguments: np.ndarray) -> object:
    """What a learner's function gives, or a sentence on why it gives nothing yet."""
    try:
        found = function(*arguments)
    except Exception as error:  # whatever a function under work may raise
        return f"raised {type(error).__name__}: {error}"
    return "returns nothing yet" if found is None or found is ... else found


def _shown(values: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in np.asarray(values, dtype=float)) + ")"


def _name(function: Callable) -> str:
    return getattr(function, "__name__", type(function).__name__)
