"""The exact law of what comes out of speculative decoding, by summing over all that may happen.

A game is a target and a drafter over a handful of tokens, small enough for every draft, every
acceptance and every correction to be gone through. Any rule may choose how many drafts are
verified; only a causal one leaves the law of the target alone.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd
from jaxtyping import Float

from engram_lab.draft.schedule import LengthRule
from engram_lab.draft.verify import SMALLEST

Text = tuple[int, ...]
Law = Float[np.ndarray, "vocab"]
LawOf = Callable[[Text], Law]
Rule = Callable[[Text, Text], int]
"""From what stands already and all drafts of a block to the number of drafts to verify."""
MOST_VOCAB, MOST_BLOCK = 6, 3
LETTERS = "ABCDEF"


@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """A target and a drafter over a few tokens.

    Attributes:
        vocab: tokens, at most 6.
        block: drafts of a round, at most 3.
        target: next-token law of the target behind every text.
        draft: the same of the drafter.
        confidence: stated chance that a draft survives, from what stands before it; by default the
            true one, the mass that both laws share.

    Raises:
        ValueError: if there are too many tokens or drafts to go through.
    """

    vocab: int
    block: int
    target: LawOf
    draft: LawOf
    confidence: Callable[[Text], float] | None = None

    def __post_init__(self):
        for name, value, most in (
            ("vocab", self.vocab, MOST_VOCAB),
            ("block", self.block, MOST_BLOCK),
        ):
            if not 1 <= value <= most:
                raise ValueError(
                    f"Game.{name} must lie in 1..{most}, or there is too much to go through; got "
                    f"{value}"
                )

    def drafts(self, text: Text) -> Iterator[tuple[Text, float]]:
        """Every block that the drafter may propose behind a text, with its chance."""
        for block in itertools.product(range(self.vocab), repeat=self.block):
            chance = 1.0
            for slot, token in enumerate(block):
                chance *= self.draft(text + block[:slot])[token]
            if chance > 0:
                yield block, chance

    def confidences(self, text: Text, drafts: Text) -> Float[np.ndarray, "1 position"]:
        """Stated chances of all drafts of a block, each from what stands before it."""
        before = [text + drafts[:slot] for slot in range(len(drafts))]
        stated = self.confidence or self.shared
        return np.array([[stated(prefix) for prefix in before]])

    def shared(self, text: Text) -> float:
        """Mass that target and drafter share behind a text: the chance that a draft survives."""
        return min(1.0, float(np.minimum(self.target(text), self.draft(text)).sum()))


def accept_chance(p: Law, q: Law) -> Law:
    """Chance to keep each token, had the drafter proposed it: target over draft, at most 1.

    Args:
        p: law of the target.
        q: law of the drafter.

    Source: DSpark paper, section 2.1.
    """
    return np.minimum(1.0, p / np.maximum(q, SMALLEST))


def residual_law(p: Law, q: Law) -> Law:
    """Law of the token that replaces a refused draft: the positive part of target minus draft.

    Args:
        p: law of the target; taken itself where no mass is left.
        q: law of the drafter.

    Source: DSpark paper, section 2.1.
    """
    left = np.maximum(p - q, 0.0)
    return left / left.sum() if left.sum() >= SMALLEST else p


def _correction(p: Law, q: Law) -> Float[np.ndarray, "refused vocab"]:
    return np.tile(residual_law(p, q), (len(p), 1))


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """What verification does at one draft; the defaults are right, others are mistakes to study.

    Attributes:
        accept: from the laws of target and drafter to the chance of keeping each token.
        correct: from both laws to the law of the replacement, one row for each refused token.
        bonus: from both laws behind the last draft to that of the token that follows it.
        row: from the text before a draft to the text whose target law it is held against.
    """

    accept: Callable[[Law, Law], Law] = accept_chance
    correct: Callable[[Law, Law], Float[np.ndarray, "refused vocab"]] = _correction
    bonus: Callable[[Law, Law], Law] = field(default=lambda p, q: p)
    row: Callable[[Text], Text] = field(default=lambda text: text)


def by_length(rule: LengthRule, game: Game) -> Rule:
    """A rule of `draft.schedule` for the one request of a game.

    Args:
        rule: from confidences to lengths.
        game: states the confidences.
    """
    return lambda text, drafts: int(rule(game.confidences(text, drafts))[0])


def output_law(
    game: Game,
    rule: Rule | None = None,
    *,
    tokens: int = 2,
    rounds: int = 1,
    verifier: Verifier = Verifier(),  # noqa: B008  (frozen)
) -> Float[np.ndarray, "..."]:
    """Exact law of the first tokens that come out.

    Args:
        game: who drafts and who decides.
        rule: how many drafts are verified; None for all of them.
        tokens: how many are looked at.
        rounds: of drafting; behind them the target goes on alone.
        verifier: how drafts are verified.

    Returns:
        One axis for every token, each of the size of the vocabulary; adds up to 1.

    Raises:
        ValueError: if no token is looked at, or a rule wants more drafts than there are.
    """
    if tokens < 1 or rounds < 0:
        raise ValueError(
            f"output_law looks at 1 token or more after 0 rounds or more; got tokens={tokens}, "
            f"rounds={rounds}"
        )

    referee = _Referee(game, verifier)

    @cache
    def ahead(text: Text, left: int) -> np.ndarray:
        """Law of the tokens that are still missing behind a text."""
        missing = tokens - len(text)
        if missing <= 0:
            return np.ones(())
        if left == 0:
            chances = game.target(text)
            return np.stack([c * ahead((*text, t), 0) for t, c in enumerate(chances)])
        law = np.zeros((game.vocab,) * missing)
        for drafts, chance in game.drafts(text):
            length = game.block if rule is None else rule(text, drafts)
            _check_length(length, game.block)
            for new, share in referee.round(text, drafts[:length]):
                law[new[:missing]] += chance * share * ahead((text + new)[:tokens], left - 1)
        return law

    return ahead((), rounds)


def target_law(game: Game, *, tokens: int = 2) -> Float[np.ndarray, "..."]:
    """Law of the first tokens when the target decodes alone.

    Args:
        game: only its target counts.
        tokens: how many are looked at.
    """
    return output_law(game, tokens=tokens, rounds=0)


def total_variation(law: np.ndarray, other: np.ndarray) -> float:
    """Half the sum of absolute differences: the largest difference in the chance of any event."""
    return float(np.abs(law - other).sum() / 2)


def law_frame(
    game: Game, policies: Mapping[str, Rule | LengthRule], *, tokens: int = 1, rounds: int = 1
) -> pd.DataFrame:
    """The law of what comes out under several rules, beside that of the target.

    Args:
        game: who drafts and who decides.
        policies: rules by name; those of `draft.schedule` are asked with the game's confidences.
        tokens: how many are looked at.
        rounds: of drafting.

    Returns:
        One row per policy and text, with columns policy, causal (as the rule says of itself; None
        for a plain function), text (letters), target, output (chances) and total_variation (of the
        whole law of the policy).

    Raises:
        ValueError: without a policy, or as `output_law`.
    """
    if not policies:
        raise ValueError("law_frame needs at least one policy; got none")
    wanted = target_law(game, tokens=tokens)
    parts = []
    for name, rule in policies.items():
        plain = by_length(rule, game) if isinstance(rule, LengthRule) else rule
        found = output_law(game, plain, tokens=tokens, rounds=rounds)
        parts.append(compared(found, wanted).assign(policy=name, causal=_causal(rule)))
    frame = pd.concat(parts, ignore_index=True)
    return frame[["policy", "causal", "text", "target", "output", "total_variation"]]


def compared(found: np.ndarray, wanted: np.ndarray) -> pd.DataFrame:
    """Two laws of texts side by side.

    Args:
        found: one axis for every token.
        wanted: of the same shape.

    Returns:
        One row per text, with columns text, target, output and total_variation.
    """
    texts = itertools.product(LETTERS[: found.shape[0]], repeat=found.ndim)
    return pd.DataFrame(
        {
            "text": ["".join(text) for text in texts],
            "target": wanted.ravel(),
            "output": found.ravel(),
            "total_variation": total_variation(found, wanted),
        }
    )


class _Referee:
    """Chances at every place of a block, worked out once."""

    def __init__(self, game: Game, verifier: Verifier):
        self.game, self.verifier = game, verifier
        self.draft = cache(self._draft)
        self.bonus = cache(self._bonus)

    def round(self, text: Text, drafts: Text) -> Iterator[tuple[Text, float]]:
        """Tokens that one round may emit, with their chances."""
        reached = 1.0
        for slot, token in enumerate(drafts):
            accept, correct = self.draft(text + drafts[:slot])
            for other, share in correct[token]:
                yield (*drafts[:slot], other), reached * (1 - accept[token]) * share
            reached *= accept[token]
        for token, share in self.bonus(text + drafts):
            yield (*drafts, token), reached * share

    def _draft(self, here: Text) -> tuple[list[float], list[Sequence[tuple[int, float]]]]:
        p, q = self.game.target(self.verifier.row(here)), self.game.draft(here)
        accept = self.verifier.accept(p, q).tolist()
        rows = self.verifier.correct(p, q)
        return accept, [_likely(row) if a < 1 else () for a, row in zip(accept, rows, strict=True)]

    def _bonus(self, here: Text) -> Sequence[tuple[int, float]]:
        p, q = self.game.target(self.verifier.row(here)), self.game.draft(here)
        return _likely(self.verifier.bonus(p, q))


def _likely(law: Law) -> Sequence[tuple[int, float]]:
    return [(token, float(share)) for token, share in enumerate(law) if share > 0]


def _causal(rule: Rule | LengthRule) -> bool | None:
    return getattr(rule, "causal", None)


def _check_length(length: int, block: int) -> None:
    if not 0 <= length <= block:
        raise ValueError(f"a rule must choose 0..{block} drafts, the block there is; got {length}")
